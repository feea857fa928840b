"""Every rule that the published faults do not reach: a case that it finds, and a sound twin that
raises nothing."""

import json
from pathlib import Path

import pytest

from fulcrum.advice.audit import audit
from fulcrum.advice.rules import RULES

yaml = pytest.importorskip("yaml", reason="configurations are YAML")

LOOP = """
import torch

def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4{options})
    for batch in loader:
{body}
        optimizer.zero_grad()
"""


def loop(body, options=""):
    return LOOP.format(
        body="\n".join(f"        {line}" for line in body.split("\n")), options=options
    )


SOUND = (
    "with torch.autocast('cuda', dtype=torch.bfloat16):\n    loss ="
    " model(batch).mean()\nloss.backward()\noptimizer.step()"
)
SCALED = (
    "with torch.autocast('cuda', dtype=torch.float16):\n    loss ="
    " model(batch).mean()\nscaler.scale(loss).backward()\nscaler.unscale_(optimizer)\ntorch.nn.util"
    "s.clip_grad_norm_(model.parameters(),"
    " 1.0)\nscaler.step(optimizer)\nscaler.update()"
)
PREVIEW = "\ndef validate(pipe):\n    return pipe('a dog', max_sequence_length={}).images\n"
FLUX = "vae = AutoencoderKL.from_pretrained('black-forest-labs/FLUX.1-dev', subfolder='vae')\n"
BASE = {
    "run_name": "base",
    "seed": 1,
    "save_folder": "out/${run_name}",
    "model": {"depth": 16},
    "guidance_scale": 4.0,
}

COUNTED = (
    "def judge(net, loader):\n    fid = FrechetInceptionDistance(normalize=True)\n    drawn = 0\n  "
    "  for images in loader:\n        fid.update(net(images), real=False)\n        drawn +="
    " len(images)\n        if drawn >= {}:\n            break\n"
)
BY_HAND = "\n".join(
    [
        "import torch",
        "net = Net()",
        "ema = {name: weight.clone() for name, weight in net.state_dict().items()}",
        "optimizer = torch.optim.AdamW(net.parameters())",
        "for step in range(STEPS):",
        "    net(batch).mean().backward()",
        "    optimizer.step()",
        "    optimizer.zero_grad()",
        "    for name, weight in net.state_dict().items():",
        "        ema[name].mul_(0.9999).add_(weight, alpha=1e-4)",
    ]
)
ZIPPED = BY_HAND.replace(
    "for name, weight in net.state_dict().items():",
    "for a, b in zip(ema.parameters(), net.parameters()):",
)
ZIPPED = ZIPPED.replace(
    "ema[name].mul_(0.9999).add_(weight, alpha=1e-4)", "a.data.lerp_(b.data, 1 - 0.9999)"
)
ENCODES = loop(
    "latents = vae.encode(batch).latent_dist.sample() * vae.config.scaling_factor\n"
    + SOUND.replace("batch", "latents")
)
PREVIEWED = (
    "import torch\n\ndef preview(net):\n    net.eval()\n{after}\ndef main(loader):\n    net ="
    " Net()\n    optimizer = torch.optim.AdamW(net.parameters())\n    for batch in loader:\n       "
    " net(batch).mean().backward()\n        optimizer.step()\n        optimizer.zero_grad()\n      "
    "  preview(net)\n"
)
EPOCHS = (
    "import torch\nnet = Net()\noptimizer = torch.optim.AdamW(net.parameters())\nfor epoch in"
    " range(9):\n    net.train()\n    for batch in loader:\n        net(batch).mean().backward()\n "
    "       optimizer.step()\n        optimizer.zero_grad()\n    net.eval()\n    print(loss)\n"
)
OPTIONS = (
    "def parse():\n    parser = ArgumentParser()\n    parser.add_argument('--size')\n    return"
    " parser.parse_args()\n\nargs = parse()\n"
)

SCRIPTS = {  # rule: (fault, sound)
    "gradients-never-cleared": (
        loop(SOUND).replace("        optimizer.zero_grad()\n", ""),
        loop(SOUND),
    ),
    "left-in-eval-mode": (PREVIEWED.format(after=""), PREVIEWED.format(after="    net.train()\n")),
    "codec-range": (
        f"tf = Compose([Resize(256), ToTensor()])\nfid = Fid(normalize=True)\n{ENCODES}",
        (
            "tf = Compose([Resize(256), ToTensor(), Normalize([0.5], [0.5])])\nfid ="
            f" Fid(normalize=True)\n{ENCODES}"
        ),
    ),
    "weights-in-bf16": (
        (
            "import torch\nmodel = Net().half()\nparams = list(model.parameters())\noptimizer ="
            " torch.optim.Adam(params)\n"
        ),
        (
            "import torch\nvae = Net().half()\nmodel = Net()\noptimizer ="
            " torch.optim.Adam(model.parameters())\n"
        ),
    ),
    "latent-scale-missing": (
        loop(
            f"latents = vae.encode(batch).latent_dist.sample()\n{SOUND.replace('batch', 'latents')}"
        ),
        loop(
            "latents = vae.encode(batch).latent_dist.sample() * vae.config.scaling_factor\n"
            + SOUND.replace("batch", "latents")
        ),
    ),
    "average-in-bf16": (
        "import copy, torch\nmodel = Net().to(torch.bfloat16)\nema = copy.deepcopy(model)\n",
        "import copy, torch\nmodel = Net()\nema = copy.deepcopy(model)\n",
    ),
    "grad-scaler-with-bf16": (
        (
            "scaler = torch.amp.GradScaler()\nwith torch.autocast('cuda', dtype=torch.bfloat16):\n "
            "   pass\n"
        ),
        (
            "scaler = torch.amp.GradScaler()\nwith torch.autocast('cuda', dtype=torch.float16):\n  "
            "  pass\n"
        ),
    ),
    "clip-of-scaled-gradients": (
        loop(SCALED.replace("scaler.unscale_(optimizer)\n", "")),
        loop(SCALED),
    ),
    "text-length-unequal": (
        loop(f"text = pipe.encode_prompt(batch, max_sequence_length=77)\n{SOUND}")
        + PREVIEW.format(256),
        loop(f"text = pipe.encode_prompt(batch, max_sequence_length=77)\n{SOUND}")
        + PREVIEW.format(77),
    ),
    "fp16-without-scaler": (loop(SOUND.replace("bfloat16", "float16")), loop(SOUND)),
    "autocast-too-wide": (
        loop(SOUND.replace("\nloss.backward()", "\n    loss.backward()")),
        loop(SOUND),
    ),
    "loss-in-bf16": (
        loop("model.to(torch.bfloat16)\nloss = torch.nn.functional.mse_loss(model(batch), batch)"),
        loop("loss = torch.nn.functional.mse_loss(model(batch).float(), batch.float())"),
    ),
    "rotary-in-bf16": (
        "freqs_cis = table.to(torch.bfloat16)\n",
        "freqs_cis = table.to(torch.float32)\n",
    ),
    "time-in-bf16": (
        "timesteps = torch.rand(8)\ntimesteps = timesteps.to(torch.bfloat16)\n",
        "timesteps = torch.rand(8)\ntimesteps = timesteps.to('cuda')\n",
    ),
    "latent-scale-typed": (
        f"{FLUX}z = vae.encode(x) * 0.18215\n",
        f"{FLUX}z = vae.encode(x) * vae.config.scaling_factor\n",
    ),
    "adam-eps-large": (loop(SOUND, ", eps=1e-4"), loop(SOUND, ", eps=1e-8")),
    "average-longer-than-training": (
        (
            "parser.add_argument('--max_steps', default=1000)\nema = EMAModel(net.parameters(),"
            " decay=0.9999)\n"
        ),
        (
            "parser.add_argument('--max_steps', default=1000)\nema = EMAModel(net.parameters(),"
            " decay=0.99)\n"
        ),
    ),
    "few-samples-for-features": (
        "fid = Fid()\nparser.add_argument('--num_eval_samples', type=int, default=256)\n",
        "fid = Fid()\nparser.add_argument('--num_eval_samples', type=int, default=10000)\n",
    ),
    "epoch-not-set": (
        loop(f"sampler = DistributedSampler(batch, seed=3 + seed)\n{SOUND}"),
        loop(f"sampler = DistributedSampler(batch, seed=3 + seed)\nsampler.set_epoch(1)\n{SOUND}"),
    ),
    "boolean-as-text": (
        "parser.add_argument('--ema', type=bool)\n",
        "parser.add_argument('--ema', action='store_true')\n",
    ),
    "setting-read-by-nobody": (
        "parser.add_argument('--size')\nargs = parser.parse_args()\n",
        "parser.add_argument('--size')\nargs = parser.parse_args()\nprint(args.size)\n",
    ),
    "errors-swallowed": (
        "data = WebDataset(urls, handler=wds.ignore_and_continue)\n",
        "data = WebDataset(urls, handler=wds.reraise_exception)\n",
    ),
    "metric-range": (
        "fid = FrechetInceptionDistance(feature=64)\nfid.update(images.clamp(0, 1), real=False)\n",
        (
            "fid = FrechetInceptionDistance(feature=64)\nfid.update((images.clamp(0, 1) *"
            " 255).to(torch.uint8), real=False)\n"
        ),
    ),
}
MORE_SCRIPTS = [  # other forms of the same faults
    (
        "average-longer-than-training",
        BY_HAND.replace("STEPS", "3000"),
        BY_HAND.replace("STEPS", "300_000"),
    ),
    (
        "average-longer-than-training",
        ZIPPED.replace("STEPS", "3000"),
        ZIPPED.replace("STEPS", "300_000"),
    ),
    (
        "average-longer-than-training",
        "parser.add_argument('--steps', type=int, default=5000)\n"
        + BY_HAND.replace("STEPS", "args.steps"),
        BY_HAND.replace("range(STEPS)", "count()"),
    ),
    (
        "average-longer-than-training",
        BY_HAND.replace("range(STEPS)", "count()") + "\n    if step >= 2000:\n        break\n",
        BY_HAND.replace("range(STEPS)", "count()") + "\n    if bad_epochs >= 3:\n        break\n",
    ),
    (
        "average-longer-than-training",
        BY_HAND.replace("STEPS", "3000"),
        BY_HAND.replace("STEPS", "3000").replace("ema", "m"),
    ),
    (
        "average-in-bf16",
        BY_HAND.replace("Net()", "Net().bfloat16()").replace("STEPS", "300_000"),
        BY_HAND.replace("STEPS", "300_000"),
    ),
    ("few-samples-for-features", COUNTED.format(500), COUNTED.format(10_000)),
    ("setting-read-by-nobody", OPTIONS, OPTIONS + "print(args.size)\n"),
    (
        "gradients-never-cleared",
        loop(SOUND).replace("        optimizer.zero_grad()\n", ""),
        loop(SOUND).replace(
            "optimizer.zero_grad()", "for p in model.parameters():\n            p.grad = None"
        ),
    ),
    (
        "gradients-never-cleared",
        loop(SOUND).replace("        optimizer.zero_grad()\n", ""),
        loop(SOUND).replace("optimizer.zero_grad()", "after_step(model, optimizer)"),
    ),
    (
        "gradients-never-cleared",
        loop(SOUND).replace("        optimizer.zero_grad()\n", ""),
        (
            "import torch\nfor batch in loader:\n    optimizer ="
            " torch.optim.SGD(net.parameters())\n    net(batch).backward()\n    optimizer.step()\n"
        ),
    ),
    (
        "left-in-eval-mode",
        PREVIEWED.format(after=""),
        PREVIEWED.format(after="").replace(
            "        preview(net)", "        preview(deepcopy(net))"
        ),
    ),
    (
        "left-in-eval-mode",
        EPOCHS.replace("    net.train()\n", ""),
        EPOCHS,
    ),
    (
        "left-in-eval-mode",
        EPOCHS.replace("    net.train()\n", ""),
        EPOCHS.replace("    net.train()\n", "")
        .replace("    net.eval()\n", "")
        .replace("loss)", "loss)\nnet.eval()"),
    ),
    (
        "codec-range",
        f"tf = Compose([Resize(256), ToTensor()])\n{ENCODES}",
        (
            "tf = Compose([Resize(256),"
            f" ToTensor()])\n{ENCODES.replace('encode(batch)', 'encode(batch * 2 - 1)')}"
        ),
    ),
]
MORE_CONFIGS = [
    (
        "average-longer-than-training",
        {"ema": {"smoothing": 0.9999}, "max_duration": "5000ba"},
        {"max_duration": "5000ba"},
    ),
    (
        "average-longer-than-training",
        {"ema": {"smoothing": 0.9999, "update_interval": "1ba"}, "max_duration": "5000ba"},
        {"ema": {"smoothing": 0.9999, "update_interval": "1ba"}, "max_duration": "10ep"},
    ),
    (
        "adam-eps-large",
        {"optimizer_type": "AdamW8bit", "optimizer_args": ["weight_decay=0.01", "eps=1e-4"]},
        {"optimizer_type": "Lion", "optimizer_args": ["weight_decay=0.01", "eps=1e-4"]},
    ),
    (
        "adam-eps-large",
        {"optimizer_type": "AdamW8bit", "optimizer_args": ["weight_decay=0.01", "eps=1e-4"]},
        {"optimizer_type": "AdamW8bit", "optimizer_args": ["weight_decay=0.01", "eps=1e-8"]},
    ),
    (
        "shift-without-resolution",
        {
            "model": "black-forest-labs/FLUX.1-dev",
            "discrete_flow_shift": 1.0,
            "resolution": "1024,1024",
        },
        {
            "model": "black-forest-labs/FLUX.1-dev",
            "discrete_flow_shift": 1.0,
            "resolution": "256,256",
        },
    ),
    (
        "shift-without-resolution",
        {"model_family": "flux", "flux_schedule_shift": 0, "resolution": 1024},
        {
            "model_family": "flux",
            "flux_schedule_shift": 0,
            "flux_schedule_auto_shift": True,
            "resolution": 1024,
        },
    ),
    (
        "shift-without-resolution",
        {
            "model": "FLUX.1-dev",
            "discrete_flow_shift": 1.0,
            "timestep_sampling": "uniform",
            "resolution": "1024,1024",
        },
        {
            "model": "FLUX.1-dev",
            "discrete_flow_shift": 1.0,
            "timestep_sampling": "flux_shift",
            "resolution": "1024,1024",
        },
    ),
    (
        "shift-without-resolution",
        {"model_family": "flux", "flux_schedule_shift": 0, "resolution": 1024},
        {"model_family": "sdxl", "flux_schedule_shift": 0, "resolution": 1024},
    ),
]
CONFIGS = {
    "weights-in-bf16": (
        {"full_bf16": True, "lr": 1e-4},
        {"full_bf16": False, "mixed_precision": "bf16", "lr": 1e-4},
    ),
    "optimizer-state-in-bf16": (
        {"optimizer": {"state_dtype": "bf16"}},
        {"optimizer": {"state_dtype": "fp32"}},
    ),
    "average-in-bf16": ({"ema": {"dtype": "bfloat16"}}, {"ema": {"dtype": "float32"}}),
    "grad-scaler-with-bf16": (
        {"precision": "bf16", "grad_scaler": True},
        {"precision": "fp16", "grad_scaler": True},
    ),
    "prompts-unlike-captions": (
        {"data": {"caption_column": "short_caption"}, "eval": {"caption_column": "long_caption"}},
        {"data": {"caption_column": "long_caption"}, "eval": {"caption_column": "long_caption"}},
    ),
    "latent-scale-typed": (
        {"vae": "FLUX.1-dev", "scaling_factor": 0.18215},
        {"vae": "FLUX.1-dev", "scaling_factor": 0.3611},
    ),
    "routing-with-few-tokens": (
        {"resolution": 256, "patch_size": 2, "vae": {"stride": 8}, "tread": {"ratio": 0.5}},
        {"resolution": 1024, "patch_size": 2, "vae": {"stride": 8}, "tread": {"ratio": 0.5}},
    ),
    "alignment-never-off": (
        {"repa": {"weight": 0.5}, "max_train_steps": 400000},
        {"repa": {"weight": 0.5, "until": 0.5}, "max_train_steps": 400000},
    ),
    "average-longer-than-training": (
        {"ema_decay": 0.9999, "max_steps": 5000},
        {"ema_decay": 0.999, "max_steps": 50000},
    ),
    "no-warmup": ({"lr_warmup_steps": 0, "lr": "1e-4"}, {"lr_warmup_steps": 500, "lr": "1e-4"}),
    "adam-eps-large": ({"optimizer": {"eps": "1e-4"}}, {"optimizer": {"eps": "1e-8"}}),
    "few-samples-for-features": (
        {"metrics": ["fid"], "eval": {"num_samples": 512}},
        {"metrics": ["fid"], "eval": {"num_samples": 10000}},
    ),
    "validation-draws-anew": (
        {"validation": {"fixed_noise": False}},
        {"validation": {"fixed_noise": True}},
    ),
    "resize-without-smoothing": (
        {"teacher": {"resize": "nearest"}},
        {"teacher": {"resize": "bicubic"}},
    ),
    "noise-shared-by-samples": (
        {"evaluation": {"same_noise": True}},
        {"evaluation": {"same_noise": False}},
    ),
    "reference-in-training": (
        {"train": {"path": "/data/a"}, "fid": {"reference": {"path": "/data/a/"}}},
        {"train": {"path": "/data/a"}, "fid": {"reference": {"path": "/data/b"}}},
    ),
    "teacher-is-judge": (
        {"repa": {"teacher": "dinov2-base"}, "eval": {"metric": "dino_mmd"}},
        {"repa": {"teacher": "dinov2-base"}, "eval": {"metric": "dino_mmd", "also": "fid"}},
    ),
    "text-length-unequal": (
        {"text": {"max_tokens": 256}, "eval": {"max_tokens": 77}},
        {"text": {"max_tokens": 256}, "eval": {"max_tokens": 256}},
    ),
    "captions-truncated": (
        {"t5": {"max_length": 128}, "caption_stats": {"median_tokens": 150, "max_tokens": 700}},
        {"t5": {"max_length": 256}, "caption_stats": {"median_tokens": 150, "max_tokens": 700}},
    ),
    "shift-without-resolution": (
        {"image_size": 1024, "patch_size": 2, "vae": {"stride": 8}, "scheduler": {"shift": 1}},
        {"image_size": 256, "patch_size": 2, "vae": {"stride": 8}, "scheduler": {"shift": 1}},
    ),
    "outputs-shared": (
        {"out_dir": "/runs/a", "lr": 1e-4, "hydra": {"sweeper": {"params": {"lr": "1e-4,2e-4"}}}},
        {
            "out_dir": "/runs/${lr}",
            "lr": 1e-4,
            "hydra": {"sweeper": {"params": {"lr": "1e-4,2e-4"}}},
        },
    ),
    "boolean-as-text": ({"use_ema": "False"}, {"use_ema": False}),
    "errors-swallowed": ({"dataset": {"on_error": "skip"}}, {"dataset": {"on_error": "raise"}}),
    "metric-range": (
        {"fid": {"normalize": True, "dtype": "uint8"}},
        {"fid": {"normalize": False, "dtype": "uint8"}},
    ),
}
FAMILIES = {  # what an arm sets beside the baseline
    "guidance-unequal": ({"guidance_scale": 1.0}, {"model": {"depth": 12}}),
    "arm-changes-nothing": ({"run_name": "same"}, {"model": {"depth": 12}}),
    "seeds-unpaired": ({"seed": 2, "model": {"depth": 12}}, {"seed": 1, "model": {"depth": 12}}),
    "too-few-pairs": ({"seeds": [1, 2], "model": {"depth": 16}}, {"model": {"depth": 12}}),
}
# Rules that need more than a snippet, and where they are tried.
ELSEWHERE = {
    "norm-in-bf16": "test_probed_step",
    "softmax-in-bf16": "test_probed_step",
    "updates-round-away": "test_stored",
    "values-not-finite": "test_stored",
    "arm-refused": "test_audit_target",
    "samples-broken": "test_captions",
    "latent-deviation": "test_audit_target",
    "shift-without-resolution": "test_audit_target",
    "power-low": "test_audit_target",
}


def found(path):
    return {fault.rule for fault in audit(str(path)).faults}


@pytest.mark.parametrize("rule", SCRIPTS)
def test_in_a_script(rule, tmp_path):
    fault, sound = (tmp_path / name for name in ("fault.py", "sound.py"))
    fault.write_text(SCRIPTS[rule][0])
    sound.write_text(SCRIPTS[rule][1])
    assert rule in found(fault) and not found(sound)


@pytest.mark.parametrize(("rule", "fault", "sound"), MORE_SCRIPTS)
def test_in_other_forms_of_scripts(rule, fault, sound, tmp_path):
    (tmp_path / "fault.py").write_text(fault)
    (tmp_path / "sound.py").write_text(sound)
    assert rule in found(tmp_path / "fault.py") and not found(tmp_path / "sound.py")


@pytest.mark.parametrize(("rule", "fault", "sound"), MORE_CONFIGS)
def test_in_other_forms_of_configurations(rule, fault, sound, tmp_path):
    (tmp_path / "fault.yaml").write_text(yaml.safe_dump(fault))
    (tmp_path / "sound.yaml").write_text(yaml.safe_dump(sound))
    assert found(tmp_path / "fault.yaml") == {rule} and not found(tmp_path / "sound.yaml")


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ("config.model", True),  # a part of it
        ("config", False),  # all of it: what is read there nobody knows
        ("config.model), build(config.extra", False),
    ],
)
def test_a_part_that_is_handed_on_hides_that_part_alone(read, told, tmp_path):
    """`instantiate(config.model)` hid the published BF16 fault itself: a setting of the arm that
    nothing reads."""
    (tmp_path / "baseline.yaml").write_text(yaml.safe_dump(BASE))
    arm = {"defaults": ["baseline"], "run_name": "arm", "extra": {"use_bf16_weights": True}}
    (tmp_path / "arm.yaml").write_text(yaml.safe_dump(arm))
    (tmp_path / "train.py").write_text(
        f"model = instantiate({read})\nprint(config.seed, config.model.depth)\n"
    )
    assert ("setting-read-by-nobody" in found(tmp_path)) == told


@pytest.mark.parametrize("rule", CONFIGS)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_in_a_configuration(rule, suffix, tmp_path):
    fault, sound = (tmp_path / f"{name}.{suffix}" for name in ("fault", "sound"))
    for path, plain in zip((fault, sound), CONFIGS[rule], strict=True):
        path.write_text(yaml.safe_dump(plain) if suffix == "yaml" else json.dumps(plain, indent=1))
    assert found(fault) == {rule} and not found(sound)


@pytest.mark.parametrize("rule", FAMILIES)
def test_between_configurations(rule, tmp_path):
    for side, arm in zip(("fault", "sound"), FAMILIES[rule], strict=True):
        (tmp_path / side).mkdir()
        (tmp_path / side / "baseline.yaml").write_text(yaml.safe_dump(BASE))
        (tmp_path / side / "arm.yaml").write_text(
            yaml.safe_dump({"defaults": ["baseline"], "run_name": "arm", **arm})
        )
    assert rule in found(tmp_path / "fault") and not found(tmp_path / "sound")


def test_every_rule_is_tried_somewhere():
    folder = Path(__file__).parent
    tried = {*SCRIPTS, *CONFIGS, *FAMILIES, *ELSEWHERE}
    texts = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (*folder.glob("test_*.py"), folder.parent / "audit/test_cases.py")
    }
    missing = [
        rule.id
        for rule in RULES
        if rule.id not in tried and not any(f'"{rule.id}"' in text for name, text in texts.items())
    ]
    assert not missing
    assert not [rule for rule, file in ELSEWHERE.items() if f'"{rule}"' not in texts[file]]
