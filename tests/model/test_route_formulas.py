"""TREAD and SPRINT against their authors' formulas, written out token by token; only what a block
computes is ours."""

import math

import pytest
import torch
from torch import Tensor

from fulcrum.spec.errors import BadInput
from fulcrum.spec.slots import GroupedSubset
from fulcrum.training.flow.noise import grouped_subset, make
from fulcrum.training.model.fillers import Carry, DropAndFuse
from fulcrum.training.model.transformer import Backbone, FuseRoute

SIZES = dict(channels=4, patch=2, width=16, depth=6, heads=2, text_width=8)
B, ROWS, COLUMNS, D = 2, 4, 3, 16
N = ROWS * COLUMNS


def built(route) -> Backbone:
    model, generator = Backbone(**SIZES, route=route), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model


@pytest.fixture
def given():
    generator = torch.Generator().manual_seed(1)
    text = (
        torch.randn(B, 5, 8, generator=generator),
        torch.arange(5) < torch.tensor([5, 2])[:, None],
    )
    return (
        torch.randn(B, 4, 2 * ROWS, 2 * COLUMNS, generator=generator),
        torch.rand(B, generator=generator),
        text,
    )


def angles(place: int) -> Tensor:
    """Rotary angles of a token: theta 10,000, half of a head of 8 for its row and half for its
    column."""
    turns = [at * 10_000.0 ** (-2 * i / 4) for at in divmod(place, COLUMNS) for i in range(2)]
    return torch.tensor([math.cos(turn) for turn in turns] + [math.sin(turn) for turn in turns])


def through(model, block: int, h: Tensor, places: list[list[int]], x_t, t, text) -> Tensor:
    """One block on the tokens that stand at these places of each sample's grid."""
    active = torch.nn.functional.silu(model.condition(x_t, t, None))
    texts, place, bias = model.pack_text(text)
    table = torch.stack([torch.stack([angles(at) for at in row]) for row in places])
    return model.blocks[block](h, active, table, texts[block], place, bias)


def picture(model, h: Tensor, x_t, t) -> Tensor:
    """The last layer, its patches of 2 x 2 laid where they belong."""
    patches = model.final_layer(h, torch.nn.functional.silu(model.condition(x_t, t, None)))
    out = torch.empty_like(x_t)
    for place in range(N):
        r, c = divmod(place, COLUMNS)
        out[:, :, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2] = patches[:, place].reshape(B, 4, 2, 2)
    return out


def tokens_of(model, x_t) -> Tensor:
    rows = []
    for place in range(N):
        r, c = divmod(place, COLUMNS)
        rows.append(model.img_in(x_t[:, :, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].reshape(B, -1)))
    return torch.stack(rows, dim=1)


EVERY = [list(range(N))] * B
KEEP = [[0, 3, 4, 7, 8, 11], [1, 2, 4, 5, 9, 10]]


@torch.no_grad()
def test_tread_as_its_authors_write_it(given):
    """The span sees the kept tokens with their own positions; afterwards the others are what they
    were before it."""
    x_t, t, text = given
    model = built(Carry(start=1, end=4))
    h = through(model, 0, tokens_of(model, x_t), EVERY, x_t, t, text)
    stash = h.clone()
    inside = torch.stack([torch.stack([h[row, place] for place in KEEP[row]]) for row in range(B)])
    for block in (1, 2, 3, 4):
        inside = through(model, block, inside, KEEP, x_t, t, text)
    after = stash
    for row in range(B):
        for number, place in enumerate(KEEP[row]):
            after[row, place] = inside[row, number]
    expected = picture(model, through(model, 5, after, EVERY, x_t, t, text), x_t, t)
    found = model(x_t, t, text, keep=torch.tensor(KEEP)).pred
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (found - model(x_t, t, text).pred).abs().max() > 1e-2  # routing is seen at all


@pytest.mark.parametrize("learned", [True, False], ids=["learned mask", "frozen mask"])
@torch.no_grad()
def test_sprint_as_its_authors_write_it(given, learned):
    """A grid of mask tokens, the sparse output at the kept places, W [dense; sparse] + b; the
    second sample's path is dropped: mask tokens everywhere."""
    x_t, t, text = given
    model = built(FuseRoute(1, 4, D, learned_mask=learned))
    m = model.route.mask if learned else torch.zeros(D)
    dense = through(model, 0, tokens_of(model, x_t), EVERY, x_t, t, text)
    inside = torch.stack(
        [torch.stack([dense[row, place] for place in KEEP[row]]) for row in range(B)]
    )
    for block in (1, 2, 3, 4):
        inside = through(model, block, inside, KEEP, x_t, t, text)
    fused = torch.empty_like(dense)
    for row, dropped in enumerate((False, True)):
        for place in range(N):
            seen = place in KEEP[row] and not dropped
            sparse = inside[row, KEEP[row].index(place)] if seen else m
            fused[row, place] = (
                model.route.fuse.weight @ torch.cat((dense[row, place], sparse))
                + model.route.fuse.bias
            )
    expected = picture(model, through(model, 5, fused, EVERY, x_t, t, text), x_t, t)
    found = model(x_t, t, text, keep=torch.tensor(KEEP), drop_path=torch.tensor([False, True])).pred
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize(
    ("depth", "tread", "sprint"),
    [
        (3, (1, 1), (1, 1)),
        (4, (1, 2), (1, 2)),
        (6, (1, 4), (1, 4)),
        (8, (1, 6), (2, 5)),
        (16, (2, 12), (2, 13)),
    ]
    + [(24, (3, 18), (2, 21))],
)
def test_the_span_scales_with_the_depth(depth, tread, sprint):
    assert Carry().bounds(depth) == tread and DropAndFuse(drop=0.75).bounds(depth) == sprint
    assert Carry(start=2, end=-3).bounds(16) == (2, 13)


@pytest.mark.parametrize("kept", [1, 2, 3])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (2, 6), (3, 5), (1, 4), (5, 1), (1, 1)])
def test_every_group_keeps_its_share(rows, columns, kept):
    index = torch.arange(40).numpy()
    keep = grouped_subset(3, "keep", index, rows, columns, kept)
    for row in keep.tolist():
        assert row == sorted(set(row))
        for r in range(0, rows, 2):
            for c in range(0, columns, 2):
                group = [
                    y * columns + x
                    for y in range(r, min(r + 2, rows))
                    for x in range(c, min(c + 2, columns))
                ]
                assert len(set(row) & set(group)) == math.ceil(len(group) * kept / 4)
    route = DropAndFuse(drop=1 - kept / 4, choice="grouped")
    needs = route.draws((rows, columns))
    if keep.shape[1] == rows * columns:
        assert "keep" not in needs
    else:
        assert needs["keep"] == GroupedSubset(rows, columns, kept)
        assert torch.equal(make(needs["keep"], 3, "keep", index), keep)
    if rows == columns:
        assert route.kept(rows * columns) == keep.shape[1]


def test_the_choice_in_a_group_is_even_and_keyed():
    index = torch.arange(4000).numpy()
    # (n, 2): one of {0, 1, 4, 5}, one of {2, 3, 6, 7}
    keep = grouped_subset(0, "keep", index, 2, 4, 1)
    counts = torch.bincount(keep.flatten(), minlength=8)
    assert counts.sum() == 8000 and (counts - 1000).abs().max() < 130  # four and a half deviations
    assert torch.equal(grouped_subset(0, "keep", index[7:9], 2, 4, 1), keep[7:9])
    assert not torch.equal(grouped_subset(1, "keep", index, 2, 4, 1), keep)


def test_a_uniform_choice_leaves_groups_empty():
    """What the grouped one is for: about three groups in ten have no token left, (3/4)^4."""
    from fulcrum.training.flow.noise import subset

    keep = subset(0, "keep", torch.arange(500).numpy(), 256, 64)
    there = torch.zeros(500, 256).scatter(1, keep, 1.0).reshape(500, 8, 2, 8, 2).amax((2, 4))
    assert 0.27 < float(1 - there.mean()) < 0.35


@pytest.mark.parametrize("text", ["spark + sprint(drop=0.6)", "spark + sprint(drop=0.9)"])
def test_shares_that_no_group_has_are_refused(tiny, text):
    with pytest.raises(BadInput, match="drop must be 0.25, 0.5 or 0.75"):
        tiny(text)
    assert tiny(text.replace(")", ", choice=uniform)")).model.route.choice == "uniform"


def test_the_lever_is_the_papers_and_old_files_are_read_as_they_were(tiny):
    route = tiny("spark + sprint").model.route
    assert (route.choice, route.mask, route.path_drop, route.drop) == (
        "grouped",
        "frozen",
        0.1,
        0.75,
    )
    # as a run's file from before says it
    before = DropAndFuse(drop=0.75, start=1, end=-2, path_drop=0.05)
    assert (before.choice, before.mask, before.bounds(4)) == ("uniform", "learned", (1, 2))
