"""Alignment: each token meets the teacher of its own place, routed or not; the weight follows its
schedule."""

from math import isqrt

import pytest
import torch
from torch.nn import functional as F

from fulcrum.networks.teacher import OnGrid, to_grid
from fulcrum.spec.edit import diff, get
from fulcrum.spec.errors import BadInput
from fulcrum.training.loss.fillers import Alignment
from fulcrum.training.loss.terms import (
    AlignmentTerm,
    ConvProjector,
    MLPProjector,
    View,
    spatially_normalised,
)
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.model.parameters import initialise, roles
from fulcrum.training.model.transformer import Tokens

ROWS, SIDE, WIDTH, TEACHER = 3, 4, 12, 20
GRID = SIDE * SIDE
KEEP = torch.stack(
    [
        torch.randperm(GRID, generator=torch.Generator().manual_seed(row))[:7].sort().values
        for row in range(ROWS)
    ]
)


class Batch:
    def __init__(self, y):
        self.teacher = {"world": y}


def view(tokens, y):
    return View(
        Batch(y),
        None,
        torch.empty(1, 1, isqrt(y.shape[1]), isqrt(y.shape[1])),
        None,
        None,
        {2: tokens},
    )


def term(projector, normalise=False, alpha=1.0):
    made = AlignmentTerm(2, "world", projector(WIDTH, TEACHER), normalise, alpha)
    initialise(made, seed=0)
    return made


@pytest.fixture
def h():
    return torch.randn(ROWS, GRID, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def y():
    return torch.randn(ROWS, GRID, TEACHER, generator=torch.Generator().manual_seed(2)) + 3


def test_kept_tokens_meet_the_teachers_of_their_own_places(h, y):
    align = term(MLPProjector)
    dense = 1 - F.cosine_similarity(align.projector(Tokens(h), GRID), y, dim=-1)  # (B, N)
    assert torch.allclose(align(view(Tokens(h), y)), dense.mean(1))
    assert torch.allclose(
        align(view(Tokens(h).take(KEEP), y)), dense.gather(1, KEEP).mean(1), atol=1e-6
    )
    # the same features said to stand elsewhere: another loss
    elsewhere = torch.arange(7).expand(ROWS, 7)
    assert not torch.allclose(
        align(view(Tokens(h.gather(1, KEEP[..., None].expand(-1, -1, WIDTH)), elsewhere), y)),
        dense.gather(1, KEEP).mean(1),
        atol=1e-3,
    )


def test_convolution_sees_kept_tokens_in_their_places_and_zero_elsewhere(h, y):
    align = term(ConvProjector, normalise=True)
    there = torch.zeros(ROWS, GRID, 1).scatter(1, KEEP[..., None], 1.0)
    grid = (h * there).transpose(1, 2).reshape(ROWS, WIDTH, SIDE, SIDE)
    said = (
        F.conv2d(grid, align.projector.weight, align.projector.bias, padding=1)
        .flatten(2)
        .transpose(1, 2)
    )
    wanted = (y - y.mean(1, keepdim=True)) / y.std(1, correction=0, keepdim=True)
    expected = (1 - F.cosine_similarity(said, wanted, dim=-1)).gather(1, KEEP).mean(1)
    assert torch.allclose(align(view(Tokens(h).take(KEEP), y)), expected, atol=1e-5)


def test_spatial_normalisation_takes_away_what_all_tokens_share(y):
    normal = spatially_normalised(y)
    assert (
        normal.mean(1).abs().max() < 1e-5 and (normal.std(1, correction=0) - 1).abs().max() < 1e-4
    )
    assert torch.allclose(spatially_normalised(2 * y + 5), normal, atol=1e-4)
    assert spatially_normalised(torch.ones(1, 4, 2)).isfinite().all()


def literal_irepa(h, y, weight, bias, alpha):
    """arXiv:2512.10794 written out: for each channel (y - alpha mean over tokens) / deviation over
    tokens; what is said of a token comes from its 3 x 3 neighbourhood, zero outside the grid; 1 -
    cosine, mean over tokens."""
    losses = []
    for row in range(len(h)):
        target = torch.empty_like(y[row])
        for channel in range(y.shape[-1]):
            values = y[row, :, channel]
            target[:, channel] = (values - alpha * values.sum() / len(values)) / values.std()
        total = 0.0
        for place in range(SIDE * SIDE):
            said = bias.clone()
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    r, c = place // SIDE + down, place % SIDE + right
                    if 0 <= r < SIDE and 0 <= c < SIDE:
                        said = said + weight[:, :, down + 1, right + 1] @ h[row, r * SIDE + c]
            total = total + 1 - said @ target[place] / (said.norm() * target[place].norm())
        losses.append(total / (SIDE * SIDE))
    return torch.stack(losses)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 0.8, 1.0])
def test_irepa_is_the_formula_of_its_authors(h, y, alpha):
    align = term(ConvProjector, normalise=True, alpha=alpha)
    with torch.no_grad():
        expected = literal_irepa(h, y, align.projector.weight, align.projector.bias, alpha)
        torch.testing.assert_close(align(view(Tokens(h), y)), expected, atol=1e-5, rtol=1e-5)
        other = literal_irepa(h, y, align.projector.weight, align.projector.bias, alpha=0.3)
        assert (other - expected).abs().max() > 1e-2


def test_irepa_has_the_weights_of_its_authors(tiny):
    aligned = get(tiny("spark + irepa"), "terms.alignment")
    assert (aligned.alpha, aligned.weight, aligned.projector, aligned.normalise) == (
        0.6,
        1.0,
        "conv",
        True,
    )
    plain = get(tiny("spark + repa"), "terms.alignment")
    assert (plain.weight, plain.projector, plain.normalise) == (0.5, "mlp", False)
    # what runs from before did, whose files name no alpha
    assert Alignment(normalise=True).alpha == 1.0


def test_a_perfect_projection_has_no_loss_and_the_opposite_has_two(h):
    class Same(torch.nn.Module):
        def forward(self, tokens, grid):
            return tokens.h

    align = AlignmentTerm(2, "world", Same(), normalise=False)
    assert align(view(Tokens(h), 3 * h)).abs().max() < 1e-6
    assert (align(view(Tokens(h), -h)) - 2).abs().max() < 1e-6


def test_the_projector_is_fp32_and_its_parameters_have_roles(h, y):
    for projector in (MLPProjector, ConvProjector):
        align = term(projector)
        assert set(roles(align).values()) == {"head", "vector"}
        loss = align(view(Tokens(h.bfloat16()), y))
        assert loss.dtype == torch.float32 and all(
            p.dtype == torch.float32 for p in align.parameters()
        )


def test_a_teacher_on_another_grid_is_refused(h, y):
    with pytest.raises(ValueError, match="16 tokens and the teacher 'world' 4"):
        term(MLPProjector)(view(Tokens(h), y[:, :4]))


def test_teacher_tokens_are_resized_with_antialiasing():
    tokens = torch.randn(2, 64, 5, generator=torch.Generator().manual_seed(0))
    assert to_grid(tokens, 8) is tokens
    small = to_grid(tokens, 4)
    expected = F.interpolate(
        tokens.reshape(2, 8, 8, 5).permute(0, 3, 1, 2), size=(4, 4), mode="bilinear", antialias=True
    )
    assert torch.equal(small, expected.permute(0, 2, 3, 1).reshape(2, 16, 5))
    # what is even stays even
    assert torch.allclose(to_grid(torch.ones(1, 64, 2), 4), torch.ones(1, 16, 2))
    with pytest.raises(ValueError, match="at least 16 x 16"):
        to_grid(tokens, 16)


def test_caches_tell_grids_apart():
    from fulcrum.networks.network_hash import network_hash
    from fulcrum.networks.teacher import load_teacher

    teacher = load_teacher()
    assert (
        len(
            {
                network_hash(OnGrid(teacher, 4)),
                network_hash(OnGrid(teacher, 8)),
                network_hash(teacher),
            }
        )
        == 3
    )


def test_schedules():
    def weights(progresses, **settings):
        return [Alignment(**settings).weight_at(progress) for progress in progresses]

    assert weights([0, 0.5, 0.99, 1], weight=0.5) == [0.5] * 4
    assert weights([0, 0.49, 0.5, 1], weight=0.5, until=0.5) == [0.5, 0.5, 0, 0]
    assert weights([0, 0.25, 0.5, 1], weight=0.5, schedule="cosine", until=0.5) == [
        0.5,
        pytest.approx(0.25),
        0,
        0,
    ]
    assert weights([0, 0.5, 1], weight=1.0, schedule="cosine") == pytest.approx([1, 0.5, 0])


def test_until_alone_means_off_afterwards(tiny):
    run = tiny("spark + repa(until=0.5)")
    aligned = get(run, "terms.alignment")
    assert [aligned.weight_at(progress) for progress in (0, 0.49, 0.5)] == [0.5, 0.5, 0]
    assert {change.path for change in diff(tiny(), run) if change.path.count(".") == 1} == {
        "terms.alignment"
    }
    assert get(run, "encode.teachers.world").patch == 4


@pytest.mark.parametrize(
    ("depth", "layer", "block"),
    [(16, None, 7), (4, None, 1), (3, None, 1), (1, None, 0), (4, -1, 3), (4, 0, 0)],
)
def test_the_middle_block_is_the_eighth_of_sixteen(depth, layer, block):
    assert Alignment(layer=layer).tap(depth) == block


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        ("spark + repa(layer=4)", (), "block 4, but the model has blocks 0 to 3"),
        ("spark + repa(layer=-5)", (), "block -5, but the model has blocks 0 to 3"),
        ("spark + irepa(layer=9)", (), "block 9"),
        ("spark + repa(teacher=dino)", (), "no teacher is called 'dino'"),
        (
            "spark + repa",
            ("encode.codec=pixels", "model.patch=2"),
            "8 x 8 tokens, too few for the model's 16 x 16",
        ),
        ("spark + repa + dinov2", (), "larger tokens fit: --set model.patch=4"),
        (
            "spark + repa",
            ("encode.codec=pixels", "model.patch=5", "data.size=30"),
            "multiples of 4 px, found 30",
        ),
        ("spark + irepa", ("data.size=8",), "one token"),
        ("spark + irepa(alpha=1.1)", (), "at most 1"),
        ("spark + repa(alpha=0.6)", (), "alpha"),
        ("spark + repa(until=1.5)", (), "until"),
        ("spark + repa(weight=0.0)", (), "weight"),
        ("spark + repa + irepa", (), "both write terms.alignment"),
        ("spark + repa(until=0.5) + repa", (), "named twice"),
    ],
)
def test_refused_when_the_phrase_is_read(tiny, text, settings, said):
    with pytest.raises(BadInput, match=said):
        tiny(text, *settings)


def test_limited_to_a_stage(tiny):
    from fulcrum.spec.stage import phases

    first, last = phases(tiny("spark + repa @ (0, 0.5)"))
    assert [term.name for term in first.run.terms] == [
        "alignment",
        "flow_matching",
    ] and first.run.encode.teachers
    assert [term.name for term in last.run.terms] == [
        "flow_matching"
    ] and not last.run.encode.teachers


@pytest.mark.parametrize("projector", ["mlp", "conv"])
@pytest.mark.parametrize("route", ["dense", "carry(start=1, end=2, drop=0.5)"])
def test_flops_and_parameters_are_those_of_the_projector(tiny, projector, route, saved):
    lever = {"mlp": "repa", "conv": "irepa"}[projector]
    run = tiny(f"spark + {lever}", f"model.route={route}")
    spec = get(run, "terms.alignment")
    align = AlignmentTerm(
        1, "world", (MLPProjector if projector == "mlp" else ConvProjector)(32, 128), False
    )
    assert spec.parameters(run) == sum(p.numel() for p in align.parameters())
    tokens = Tokens(torch.randn(1, 16, 32, requires_grad=True))
    tokens = tokens if route == "dense" else tokens.take(torch.arange(8)[None])
    seen = View(
        Batch(torch.randn(1, 16, 128)), None, torch.empty(1, 1, 4, 4), None, None, {1: tokens}
    )
    spent = counted(lambda: align(seen).sum().backward())
    assert spec.flops(run) == spent
    assert spec.numbers(run) == pytest.approx(
        saved(lambda: align(seen), align.parameters()), rel=0.02
    )
