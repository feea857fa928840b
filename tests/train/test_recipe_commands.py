"""What the page of a full-size recipe says to type, typed: it trains on the reader's pictures, and
fits the GPUs named."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.levers.recipes import MACHINES
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.speed import read_machine
from fulcrum.training import estimate as dry_run
from fulcrum.training.estimate import USABLE, estimate

DOCS = Path(__file__).parents[2] / "docs/recipes"
KL = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [128, 256, 512, 512],
    "latent_channels": 16,
}
CONFIGS = {  # what stands in config.json of the networks that the recipes name; no weights
    "FLUX.1 AutoencoderKL": KL,
    "REPA-E e2e-flux-vae": KL,
    "FLUX.2 AutoencoderKLFlux2": {**KL, "_class_name": "AutoencoderKLFlux2", "latent_channels": 32},
    "T5Gemma 2B-2B UL2 encoder": {
        "architectures": ["T5GemmaEncoderModel"],
        "encoder": {"hidden_size": 2304},
    },
    "Qwen3-VL text model": {
        "architectures": ["Qwen3VLModel"],
        "text_config": {"hidden_size": 2048},
    },
    "dinov3": {
        "architectures": ["DINOv3ViTModel"],
        "hidden_size": 1024,
        "patch_size": 16,
        "num_register_tokens": 4,
    },
}
PICTURES = 24


def typed(name):
    """The commands of the page's first block."""
    block = re.search(
        r"```\n(.*?)```", (DOCS / f"{name}.md").read_text(encoding="utf-8"), re.S
    ).group(1)
    return [shlex.split(line) for line in re.sub(r"\\\n\s*", " ", block).splitlines()]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Pictures of one's own, imported as the pages say."""
    place = tmp_path_factory.mktemp("own")
    (place / "given").mkdir()
    for number in range(PICTURES):
        Image.fromarray(np.full((1024, 1024, 3), 10 * number, np.uint8)).save(
            place / f"given/{number}.png"
        )
        (place / f"given/{number}.txt").write_text(f"a picture of the grey number {number}")
    with pytest.raises(SystemExit) as end:
        main(
            [
                "data",
                "import",
                str(place / "given"),
                str(place / "store"),
                "--size",
                "1024",
                "--quiet",
            ]
        )
    assert not end.value.code
    return place / "store"


@pytest.fixture
def tell(store, tmp_path, monkeypatch, capsys):
    """Type a page's training, with folders for its words, as a dry run under its launcher: what it
    told."""

    def counted(run, text):  # tests/train/test_sized.py counts it on tensors without memory
        return dry_run.CountedDenoiser(
            {"blocks": parameters(run)},
            denoiser_training_flops(run, text),
            denoiser_training_flops(run, text),
        )

    monkeypatch.setattr(dry_run, "count_denoiser", counted)

    def told(words, run, *more):
        parts = {
            "CODEC": getattr(run.encode.codec, "name", ""),
            "TEXT": run.encode.text.name,
            "TEACHER": "dinov3",
        }
        for word, name in parts.items():
            if any(word in one for one in words):
                (tmp_path / word).mkdir(exist_ok=True)
                (tmp_path / word / "config.json").write_text(json.dumps(CONFIGS[name]))
        own = {
            "STORE": store,
            "SHARED": tmp_path / "shared",
            **{word: tmp_path / word for word in parts},
        }
        line = [
            re.sub(r"\b(STORE|SHARED|CODEC|TEXT|TEACHER)\b", lambda one: str(own[one[1]]), word)
            for word in words
        ]
        start = line.index("fulcrum") + 1
        launcher = dict(zip(line[1:start], line[2:start], strict=False))
        monkeypatch.setenv(
            "WORLD_SIZE",
            str(int(launcher.get("--nnodes", "1")) * int(launcher["--nproc-per-node"])),
        )
        with pytest.raises(SystemExit) as end:
            main([*line[start:], "--dry-run", "--json", *more])
        printed = capsys.readouterr()
        assert not end.value.code, printed.err
        return json.loads(printed.out), launcher

    return told


@pytest.mark.parametrize("name", MACHINES)
def test_what_a_page_says_to_type_fits_its_gpus_and_trains_on_your_pictures(name, tell):
    from fulcrum import phrase

    machine, run, (encode, train) = read_machine(MACHINES[name]), phrase(name), typed(name)
    told, launcher = tell(train, run)
    assert (
        told["ranks"] == machine.number
        and told["disk"]["pictures"] < PICTURES < run.data.source.count
    )
    assert told["memory"][str(machine.number)]["total"] <= USABLE * machine.gpu.memory
    assert ("--rdzv-endpoint" in launcher) == ("--out" in train) == (machine.number > 8)
    promised = estimate(run, machine)  # what the page tells is what its command does
    assert told["memory"][str(machine.number)]["total"] == pytest.approx(promised["memory_total"])
    assert (
        told["microbatch"] == promised["microbatch"]
        and told["system"]["recompute"] == promised["recompute"]
    )
    assert encode[:3] == ["fulcrum", "encode", name] and {
        word for word in train if "=" in word
    } < set(encode)


@pytest.mark.parametrize("name", ["speedrun_24h", "prx_7b"])
def test_without_smaller_passes_it_would_not_fit(name, tell):
    from fulcrum import phrase

    machine, (_, train) = read_machine(MACHINES[name]), typed(name)
    at = train.index("--microbatch")
    told, _ = tell(train[:at] + train[at + 2 :], phrase(name))
    assert told["memory"][str(machine.number)]["total"] > machine.gpu.memory
    assert "microbatch" in told["assumed"] and "mesh" not in told["assumed"]
