"""Cost: every part against a count by hand."""

from pathlib import Path

import pytest
import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.networks.codec import KLCodec, load_codec
from fulcrum.networks.codec_flops import coding_flops
from fulcrum.networks.judges import load_features
from fulcrum.networks.teacher import load_teacher
from fulcrum.networks.text import load_text
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import PartFlops, denoiser_training_flops
from fulcrum.spec.phrase import parse
from fulcrum.training.cost_record import (
    BATCH,
    count_parts,
    count_training,
    measured_peak,
    peak_memory,
)
from fulcrum.training.feed import Feed
from fulcrum.training.model.counted_flops import counted

PROMPTS = [
    "a large red circle at the top left.",
    "a star.",
    "a small blue ring.",
    "a green square at the top.",
] * 2


def convolutions(network: torch.nn.Module, run) -> float:
    """By hand: 2 x outputs x inputs per output, for every convolution and linear layer, sides noted
    as it runs."""
    total = [0.0]

    def note(module, _, out):
        if isinstance(module, torch.nn.Conv2d):
            inputs = (
                module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
            )
        else:
            inputs = module.in_features
        total[0] += 2.0 * out.numel() * inputs

    kept = [
        module.register_forward_hook(note)
        for module in network.modules()
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)
    ]
    with torch.no_grad():
        run()
    for one in kept:
        one.remove()
    return total[0]


def test_codec_and_teacher_by_hand() -> None:
    pixels = torch.zeros(2, 3, 32, 32)
    for network, run in (
        (load_codec(), lambda n: n.encode(pixels)),
        (load_teacher(), lambda n: n.tokens(pixels)),
    ):
        with torch.no_grad():
            flops = counted(lambda network=network, run=run: run(network))
        assert flops == pytest.approx(
            convolutions(network, lambda network=network, run=run: run(network)), rel=1e-3
        )
        assert flops > 1e6


@pytest.mark.parametrize(
    ("channels", "widths", "layers"), [(8, (16, 32, 64), 1), (3, (8, 8, 16), 2), (4, (4, 8, 4), 1)]
)
def test_a_codecs_formula_is_what_is_counted(
    channels: int, widths: tuple[int, ...], layers: int
) -> None:
    codec, pixels = KLCodec(channels, widths, layers, groups=2), torch.zeros(1, 3, 64, 64)
    with torch.no_grad():
        assert coding_flops(codec.config, 64) == counted(lambda: codec.decode(codec.encode(pixels)))


def test_features_by_hand() -> None:
    """Convolutions, and the one product with the whitened directions."""
    network, images = load_features(), torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with torch.no_grad():
        flops = counted(lambda: network.features(images))
    assert (
        flops
        == convolutions(network, lambda: network.features(images)) + 2 * 2 * network.project.numel()
    )


def test_text_by_hand() -> None:
    """Linears over every padded token, and attention of the padded length with itself in each
    block."""
    text, words = load_text(), ["a large red circle at the top left.", "a star."]
    with torch.no_grad():
        flops = counted(lambda: text.encode(words))
    emb, _ = text.encode(words)
    batch, length, width = emb.shape
    attention = text.config["depth"] * 4 * batch * length * length * width
    assert flops == convolutions(text, lambda: text.encode(words)) + attention


def test_parts_of_a_run(tiny) -> None:
    run = tiny()
    parts = count_parts(run, PROMPTS, {"world": load_teacher()})
    # of scenes with up to two objects
    long, short = (denoiser_training_flops(run, tokens) for tokens in (24.2, 6.6))
    assert parts.denoiser == long
    shorter = count_parts(tiny("spark + short_captions"), PROMPTS)
    assert shorter.denoiser == short
    declared = next(iter(parse("spark + short_captions", CATALOG, []).levers)).cost(run).flops
    # the study's ratio and the parts agree
    assert shorter.denoiser / parts.denoiser == pytest.approx(declared)
    assert min(parts.codec, parts.decode, parts.text, parts.teachers["world"]) > 0
    assert parts.training() == parts.denoiser
    assert parts.evaluation > run.sample.steps * parts.denoiser / 3 + parts.decode
    with pytest.raises(BadInput, match=f"counting needs {BATCH} captions"):
        count_parts(run, PROMPTS[:2])
    assert PartFlops.model_validate_json(parts.model_dump_json()) == parts


def test_peak_of_this_machine() -> None:
    assert 1e8 < measured_peak(256, 2) < 1e15
    assert peak_memory() > 50e6


def test_a_term_that_a_stage_adds_costs_its_share_of_the_budget() -> None:
    """It cost nothing: neither a dry run's FLOPs nor a run's bill had it, nor the teacher that it
    brings."""
    whole, half = (
        parse(phrase, CATALOG).run for phrase in ("spark + repa", "spark + repa @ (0.5, 1)")
    )
    (name,) = count_training(whole).terms
    assert count_training(half).terms[name] == pytest.approx(
        0.5 * count_training(whole).terms[name], rel=1e-3
    )
    assert (
        list(Feed(half, 0, Path("unused")).teachers())
        == list(Feed(whole, 0, Path("unused")).teachers())
        != []
    )
