"""One fault, written as different people write it, and near misses: what rules read of a script or
a configuration."""

import json

import pytest

from fulcrum.advice.audit import audit

SCALER = "scaler = torch.amp.GradScaler()\n"
SCALED = "scaler.scale(loss).backward()\n"
CLIP = "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
STEP = "scaler.step(opt)\n"
FID = "fid = FrechetInceptionDistance(normalize=True).to(device)\n"
METHODS = (
    "class Trainer:\n    def backward(self, loss):\n        self.amp.scale(loss).backward()\n\n   "
    " def step(self):\n{}"
)
TRAIN = "loss.backward()\nopt.step()\n"

ENCODE = "latents = vae.encode(x).latent_dist.sample()\n"
MIXED = (
    "x_t = (1 - t) * latents + t * noise\nloss = (net(x_t) - (noise - latents)).square().mean()\n"
)
PIPE = "pipe = FluxPipeline.from_pretrained(name, torch_dtype=torch.bfloat16)\n"
PIPE_OPT = "opt = torch.optim.AdamW(pipe.transformer.parameters())\n"

SCRIPTS = [  # rule, code, is it a fault?
    ("weights-in-bf16", PIPE + PIPE_OPT, True),
    (
        "weights-in-bf16",
        PIPE + "net = pipe.transformer\nopt = torch.optim.AdamW(net.parameters())\n",
        True,
    ),
    ("weights-in-bf16", PIPE + "pipe.transformer.to(torch.float32)\n" + PIPE_OPT, False),
    (
        "weights-in-bf16",
        PIPE + "net = pipe.transformer\nnet.float()\nopt = torch.optim.AdamW(net.parameters())\n",
        False,
    ),
    ("weights-in-bf16", PIPE + "pipe.transformer.add_adapter(config)\n" + PIPE_OPT, False),
    ("weights-in-bf16", PIPE + "opt = torch.optim.AdamW(projector.parameters())\n", False),
    ("weights-in-bf16", PIPE.replace("bfloat16", "float32") + PIPE_OPT, False),
    ("latent-scale-missing", ENCODE + MIXED + TRAIN, True),
    ("latent-scale-missing", ENCODE.replace("sample", "mode") + MIXED + TRAIN, True),
    (
        "latent-scale-missing",
        ENCODE + MIXED + TRAIN + "x = vae.decode(z / vae.config.scaling_factor)\n",
        True,
    ),
    (
        "latent-scale-missing",
        "def see(x):\n    return vae.encode(x).latent_dist.sample()\n" + TRAIN + "z = see(x)\n",
        True,
    ),
    (
        "latent-scale-missing",
        ENCODE + "latents = latents * vae.config.scaling_factor\n" + MIXED + TRAIN,
        False,
    ),
    ("latent-scale-missing", ENCODE + "latents *= 0.2\n" + MIXED + TRAIN, False),
    ("latent-scale-missing", ENCODE + "latents = (latents - a) * b\n" + MIXED + TRAIN, False),
    ("latent-scale-missing", ENCODE + "latents = latents.mul(f)\n" + MIXED + TRAIN, False),
    ("latent-scale-missing", ENCODE + "latents = normalised(latents)\n" + MIXED + TRAIN, False),
    (
        "latent-scale-missing",
        "latents = 0.18215 * vae.encode(x).latent_dist.sample()\n" + MIXED + TRAIN,
        False,
    ),
    (
        "latent-scale-missing",
        ENCODE + "latents = (latents - latents_mean) / latents_std\n" + TRAIN,
        False,
    ),
    (
        "latent-scale-missing",
        "def see(x):\n    return vae.encode(x).latent_dist.sample()\n" + TRAIN + "z = see(x) * s\n",
        False,
    ),
    (
        "latent-scale-missing",
        "p = vae.encode(x).latent_dist\nloss = p.kl().mean()\n" + TRAIN,
        False,
    ),
    (
        "latent-scale-missing",
        "opt = Adam(vae.parameters())\nx = vae.decode(vae.encode(x).latent_dist.mode())\n" + TRAIN,
        False,
    ),
    # made before a training, not in one
    ("latent-scale-missing", ENCODE + "torch.save(latents, path)\n", False),
    ("clip-of-scaled-gradients", SCALER + SCALED + CLIP + STEP, True),
    (
        "clip-of-scaled-gradients",
        SCALER + "scaled = scaler.scale(loss)\nscaled.backward()\n" + CLIP + STEP,
        True,
    ),
    (
        "clip-of-scaled-gradients",
        SCALER + SCALED + CLIP.replace("norm_", "value_") + "scaler.unscale_(opt)\n" + STEP,
        True,
    ),
    (
        "clip-of-scaled-gradients",
        METHODS.format("        clip_grad_norm_(self.net.parameters(), 1)\n"),
        True,
    ),
    (
        "clip-of-scaled-gradients",
        METHODS.format("        self.amp.unscale_(o)\n        clip_grad_norm_(self.p, 1)\n"),
        False,
    ),
    (
        "clip-of-scaled-gradients",
        SCALER + SCALED + "if clip:\n    scaler.unscale_(opt)\n    " + CLIP + STEP,
        False,
    ),
    (
        "clip-of-scaled-gradients",
        SCALER + SCALED + CLIP.replace("1.0", "scaler.get_scale()") + STEP,
        False,
    ),
    (
        "clip-of-scaled-gradients",
        "accelerator.backward(loss)\naccelerator.clip_grad_norm_(p, 1.0)\n",
        False,
    ),
    (
        "clip-of-scaled-gradients",
        "def a():\n    scaler.scale(loss).backward()\n\ndef b():\n    clip_grad_norm_(p, 1)\n",
        False,
    ),
    (
        "clip-of-scaled-gradients",
        (
            "def go(loss):\n    scaler.scale(loss).backward()\n\ndef fit():\n    go(x)\n   "
            " dispatch_clip_grad(p, 1)\n"
        ),
        True,
    ),
    ("clip-of-scaled-gradients", SCALED + "optimizer.clip_grad_norm(1.0)\n", False),
    ("clip-of-scaled-gradients", "x = scaler.scale(x)\nloss.backward()\n" + CLIP, False),
    ("metric-range", FID + "fid.update(torch.clamp(images, -1, 1), real=False)\n", True),
    ("metric-range", FID + "images = net(z).tanh()\nfid.update(images.cpu(), real=False)\n", True),
    ("metric-range", FID + "fid.update(vae.decode(z).sample, real=False)\n", True),
    ("metric-range", FID + "fid.update(pictures * 2 - 1, real=True)\n", True),
    (
        "metric-range",
        FID + "x = x.clamp(-1, 1)\nx = (x + 1) / 2\nfid.update(x, real=False)\n",
        False,
    ),
    (
        "metric-range",
        FID + "x = x.clamp(-1, 1)\nx.add_(1).div_(2)\nfid.update(x, real=False)\n",
        False,
    ),
    ("metric-range", FID + "x = x.clamp(-1, 1)\nfid.update(to_unit(x), real=False)\n", False),
    (
        "metric-range",
        FID + "def a(x):\n    x = x.clamp(-1, 1)\n\ndef b(x):\n    fid.update(x, real=False)\n",
        False,
    ),
    (
        "metric-range",
        FID + "fid.update(vae.decode(z).sample.clamp(-1, 1).mul(0.5).add(0.5), real=False)\n",
        False,
    ),
    (
        "text-length-unequal",
        TRAIN + "ids = tokenizer(texts, max_length=77)\n\ndef log_validation():\n    ids ="
        " tokenizer(texts, max_length=120)\n",
        True,
    ),
    (
        "text-length-unequal",
        TRAIN
        + "p.add_argument('--length', default=77)\ne = encode(t, max_sequence_length=args.length)\n"
        "images = pipe(t, max_sequence_length=512).images\n",
        True,
    ),
    (
        "text-length-unequal",
        TRAIN
        + "p.add_argument('--length', default=77)\ne = encode(t, max_sequence_length=args.length)\n"
        "images = pipe(t, max_sequence_length=args.length).images\n",
        False,
    ),
    (
        "text-length-unequal",
        TRAIN + "a = tokenizer(t, max_length=77)\nb = tokenizer_2(t, max_length=256)\n",
        False,
    ),
    (
        "text-length-unequal",
        TRAIN
        + "a = tokenizer(t, max_length=77)\n\ndef retrieval():\n    tokenizer(t, max_length=9)\n",
        False,
    ),
    (
        "weights-only-checkpoint",
        TRAIN + "for x in y:\n    torch.save({'net': net.state_dict()}, f)\n",
        True,
    ),
    (
        "weights-only-checkpoint",
        TRAIN + "lion = Lion(p)\nfor x in y:\n    torch.save({'net': net.state_dict(), 'lion':"
        " lion.state_dict()}, f)\n",
        False,
    ),
]
SWEEP = {
    "seed": 0,
    "net": {"depth": 2},
    "hydra": {"sweeper": {"params": {"net.depth": "2,4", "seed": "choice(0, 1)"}}},
}
HIGH = {"resolution": 1024, "patch_size": 2, "vae": "AutoencoderKL"}

CONFIGS = [
    ("outputs-shared", {**SWEEP, "train": {"outputDir": "/runs/${net.depth}"}}, True),
    ("outputs-shared", {**SWEEP, "save_to": "s3://runs/${name}", "name": "a_${seed}"}, True),
    (
        "outputs-shared",
        {**SWEEP, "save_to": "s3://runs/${name}", "name": "a_${seed}_${net.depth}"},
        False,
    ),
    ("outputs-shared", {**SWEEP, "output_dir": "${hydra:runtime.output_dir}"}, False),
    ("outputs-shared", {**SWEEP, "output_dir": "/runs/${now:%H-%M-%S}"}, False),
    ("outputs-shared", {**SWEEP, "output_dir": "checkpoints"}, False),
    ("outputs-shared", {**SWEEP, "output_root": "/runs", "logs": {"dir": "/logs"}}, False),
    (
        "outputs-shared",
        {"output_dir": "/runs/a", "hydra": {"sweeper": {"params": {"betas": "[0.9,0.99]"}}}},
        False,
    ),
    (
        "outputs-shared",
        {
            "out_dir": "/runs/${optim.name}",
            "hydra": {"sweeper": {"params": {"optim": "adamw,muon"}}},
        },
        False,
    ),
    ("shift-without-resolution", {**HIGH, "discrete_flow_shift": 1.0}, True),
    ("shift-without-resolution", {**HIGH, "flow": {"shift": 1}}, True),
    ("shift-without-resolution", {**HIGH, "flow": {"shift": 3.0}}, False),
    (
        "shift-without-resolution",
        {**HIGH, "flow": {"shift": 1.0, "use_dynamic_shifting": True}},
        False,
    ),
    ("shift-without-resolution", {**HIGH, "flow": {"shift": 1.0, "logit_mean": 1.1}}, False),
    ("shift-without-resolution", {**HIGH, "augment": {"shift": 1.0}}, False),
    ("shift-without-resolution", {**HIGH, "resolution": 256, "flow": {"shift": 1.0}}, False),
    (
        "captions-truncated",
        {"max_text_tokens": 77, "captions": {"tokens": {"p50": 60, "p95": 90}}},
        True,
    ),
    ("captions-truncated", {"t5_max_length": 77, "data": {"mean_caption_words": 80}}, True),
    (
        "captions-truncated",
        {"t5_max_length": 77, "data": {"caption_tokens": {"p50": 40, "p95": 70, "p99": 99}}},
        False,
    ),
    (
        "captions-truncated",
        {"clip": {"max_length": 77}, "t5": {"max_length": 512}, "caption_tokens": {"p95": 341}},
        False,
    ),
    ("text-length-unequal", {"text": {"token_limit": 512}, "preview": {"token_limit": 77}}, True),
    ("text-length-unequal", {"t5_max_length": 256, "eval_t5_max_length": 512}, True),
    (
        "text-length-unequal",
        {"text": {"max_length": 256}, "sampling": {"max_length": "${text.max_length}"}},
        False,
    ),
    (
        "text-length-unequal",
        {"t5": {"max_length": 256}, "eval": {"max_new_tokens": 20, "image_tokens": 64}},
        False,
    ),
]


def found(path):
    return {fault.rule for fault in audit(str(path)).faults}


@pytest.mark.parametrize(("rule", "code", "fault"), SCRIPTS)
def test_of_a_script(rule, code, fault, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(code)
    assert (rule in found(path)) == fault


@pytest.mark.parametrize(("rule", "plain", "fault"), CONFIGS)
def test_of_a_configuration(rule, plain, fault, tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(plain, indent=1))
    assert (rule in found(path)) == fault


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"id": "b", "save_to": "/runs/b", "net": {"pool": "mean"}}, False),
        ({"run": {"id": "b", "outDir": "/runs/b"}, "net": {"pool": "mean"}}, False),
        ({"id": "b", "checkpoint": {"dir": "/runs/b"}, "lr": 2, "net": {"pool": "mean"}}, True),
        ({"id": "b", "net": {"pool": "mean"}, "init": {"from": "/weights/b"}}, True),
    ],
)
def test_what_only_names_an_arm_is_no_decision(changed, fault, tmp_path):
    base = {
        "id": "a",
        "save_to": "/runs/a",
        "run": {"id": "a", "outDir": "/runs/a"},
        "checkpoint": {"dir": "/runs/a"},
        "init": {"from": "/weights/a"},
        "lr": 1,
        "net": {"pool": "max"},
    }
    (tmp_path / "baseline.json").write_text(json.dumps(base))
    (tmp_path / "arm_b.json").write_text(json.dumps({**base, **changed}))
    assert ("arm-is-compound" in found(tmp_path)) == fault


@pytest.mark.parametrize(("seeds", "fault"), [([1], True), ([1, 2], True), ([1, 2, 3], False)])
def test_of_other_peoples_seeds_three_are_enough_to_say_nothing(seeds, fault, tmp_path):
    for name in ("baseline", "arm"):
        (tmp_path / f"{name}.json").write_text(
            json.dumps({"name": name, "seeds": seeds, "depth": len(name)})
        )
    assert ("too-few-pairs" in found(tmp_path)) == fault
