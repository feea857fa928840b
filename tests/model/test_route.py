"""Routes: what the span sees, how the rest comes back, and what may not change the numbers."""

import pytest
import torch

from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import forward_flops
from fulcrum.training.interop.diffusers import export
from fulcrum.training.model import passes as room
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.model.fillers import Carry
from fulcrum.training.model.parameters import Role, roles
from fulcrum.training.model.transformer import Backbone, FuseRoute, Tokens, recompute_blocks

SIZES = dict(channels=4, patch=2, width=16, depth=4, heads=2, text_width=8)
B, N, K, D = 3, 16, 6, 16


def filled(module: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return module


@pytest.fixture
def model() -> Backbone:
    return filled(Backbone(**SIZES, route=FuseRoute(1, 2, D)))


@pytest.fixture
def given() -> tuple:
    generator = torch.Generator().manual_seed(1)
    text = (
        torch.randn(B, 5, 8, generator=generator),
        torch.arange(5) < torch.tensor([5, 2, 1])[:, None],
    )
    return torch.randn(B, 4, 8, 8, generator=generator), torch.rand(B, generator=generator), text


@pytest.fixture
def keep() -> torch.Tensor:
    return (
        torch.rand(B, N, generator=torch.Generator().manual_seed(2))
        .argsort(1)[:, :K]
        .sort(1)
        .values
    )


def naive(
    route: FuseRoute, before: torch.Tensor, after: Tokens, dropped: torch.Tensor | None
) -> torch.Tensor:
    """W [dense; sparse] + b token by token, the grid filled with the mask token first."""
    out = torch.empty_like(before)
    for row in range(len(before)):
        grid = [route.mask] * N
        if after.index is None:
            grid = list(after.h[row])
        else:
            for place, value in zip(after.index[row].tolist(), after.h[row], strict=True):
                grid[place] = value
        if dropped is not None and dropped[row]:
            grid = [route.mask] * N
        for token in range(N):
            out[row, token] = (
                route.fuse.weight @ torch.cat((before[row, token], grid[token])) + route.fuse.bias
            )
    return out


@pytest.mark.parametrize(
    "dropped", [None, torch.tensor([False, True, False])], ids=["whole", "path dropped"]
)
@pytest.mark.parametrize("all_tokens", [False, True], ids=["some kept", "all kept"])
def test_fusing_equals_a_loop(dropped, all_tokens, keep) -> None:
    route = filled(FuseRoute(1, 2, D))
    before = Tokens(torch.randn(B, N, D))
    part = route.split(before, None if all_tokens else keep)
    assert part.h.shape == (B, N if all_tokens else K, D)
    after = part._replace(h=torch.randn_like(part.h))
    with torch.no_grad():
        found = route.merge(before, after, dropped)
        assert found.index is None
        expected = naive(route, before.h, after, dropped)
        assert (found.h - expected).abs().max() < 1e-5 * expected.abs().max()


def test_without_keep_it_still_fuses_and_a_carried_model_is_dense(model, given) -> None:
    everything = torch.arange(N).expand(B, N)
    full, kept = model(*given, taps=(2,)), model(*given, keep=everything)
    assert (
        full.taps[2].index is None
        and (full.pred - kept.pred).abs().max() < 1e-5 * kept.pred.abs().max()
    )
    shared = {
        name: value for name, value in model.state_dict().items() if not name.startswith("route.")
    }
    dense, carried = Backbone(**SIZES), Backbone(**SIZES, route=Carry(start=1, end=2))
    for other in (dense, carried):
        other.load_state_dict(shared)
    assert torch.equal(dense(*given).pred, carried(*given).pred)
    assert (dense(*given).pred - full.pred).abs().max() > 1e-2


def test_a_dropped_path_is_the_short_path_and_runs_none_of_its_blocks(model, given, keep) -> None:
    whole, short = model(*given, keep=keep).pred, model(*given, short=True).pred
    dropped = model(*given, keep=keep, drop_path=torch.tensor([False, True, True])).pred
    near = 1e-5 * short.abs().max()
    assert (dropped[1:] - short[1:]).abs().max() < near and (
        dropped[:1] - whole[:1]
    ).abs().max() < near
    assert (whole[1:] - short[1:]).abs().max() > 1e-2
    full = model(*given, drop_path=torch.tensor([True] * B)).pred
    assert (full - short).abs().max() < near
    ran = []
    for number, block in enumerate(model.blocks):
        block.register_forward_pre_hook(lambda block, inputs, number=number: ran.append(number))
    assert torch.equal(model(*given, short=True).pred, short)
    assert ran == [0, 3]


def test_gradients_reach_the_mask_and_both_halves(model, given, keep) -> None:
    model(*given, keep=keep).pred.square().mean().backward()
    weight = model.route.fuse.weight.grad
    for grad in (model.route.mask.grad, model.route.fuse.bias.grad, weight[:, :D], weight[:, D:]):
        assert (grad != 0).any(-1).all()
    model.zero_grad()
    # nothing is missing: nothing to learn for the mask
    model(*given).pred.square().mean().backward()
    assert model.route.mask.grad is None
    found = roles(model.route)
    assert found == {"mask": Role.vector, "fuse.weight": Role.head, "fuse.bias": Role.vector}
    frozen = FuseRoute(1, 2, D, learned_mask=False)
    assert roles(frozen) == {"fuse.weight": Role.head, "fuse.bias": Role.vector}


@pytest.mark.parametrize(
    "route", [Carry(start=1, end=2), FuseRoute(1, 2, D)], ids=["carry", "fuse"]
)
def test_recomputing_changes_no_bit(route, given, keep) -> None:
    model = filled(Backbone(**SIZES, route=route))
    more = {"keep": keep} | (
        {"drop_path": torch.tensor([False, True, False])} if route.fuses else {}
    )
    grads = []
    for again in (False, True):
        if again:
            recompute_blocks(model)
        model.zero_grad()
        model(*given, **more).pred.square().mean().backward()
        grads.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    assert all(torch.equal(grads[0][name], grads[1][name]) for name in grads[0])


def test_passes_add_up_to_the_batch(model, given, keep, monkeypatch) -> None:
    dropped = torch.tensor([False, True, False])
    expected = model(*given, keep=keep, drop_path=dropped).pred
    monkeypatch.setattr(room, "CACHED_TOKENS", N)
    passed = room.Passes(model)(*given, keep=keep, drop_path=dropped).pred
    assert (passed - expected).abs().max() < 1e-5 * expected.abs().max()


def test_the_state_is_the_published_one_unless_the_route_learns(model, tmp_path) -> None:
    plain, carried = (
        set(Backbone(**SIZES).state_dict()),
        set(Backbone(**SIZES, route=Carry(start=1, end=2)).state_dict()),
    )
    assert plain == carried
    assert set(model.state_dict()) - plain == {"route.mask", "route.fuse.weight", "route.fuse.bias"}
    with pytest.raises(BadInput, match="no slot for route.fuse.bias"):
        export(model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_what_cannot_be_asked_says_so(model, given, keep) -> None:
    carried = Backbone(**SIZES, route=Carry(start=1, end=2))
    for more in ({"short": True}, {"drop_path": torch.tensor([True] * B)}):
        with pytest.raises(ValueError, match="cannot be dropped"):
            carried(*given, **more)
        with pytest.raises(ValueError, match="cannot be dropped"):
            Backbone(**SIZES)(*given, **more)
    with pytest.raises(ValueError, match="cannot be tapped"):
        model(*given, taps=(1,), short=True)
    with pytest.raises(ValueError, match="keep or short"):
        model(*given, keep=keep, short=True)
    with pytest.raises(ValueError, match="does not fit 4 blocks"):
        Backbone(**SIZES, route=FuseRoute(1, 4, D))
    with pytest.raises(ValueError, match="route that fuses"):
        Carry(start=1, end=2).around(Tokens(torch.zeros(1, 2, 3)))


@pytest.mark.parametrize("kept", [None, K])
def test_the_formula_counts_the_fuse(model, kept) -> None:
    text = (torch.randn(2, 8, 8), torch.ones(2, 8, dtype=torch.bool))
    keep = None if kept is None else torch.arange(kept).expand(2, kept)
    found = counted(lambda: model(torch.randn(2, 4, 8, 8), torch.rand(2), text, keep=keep))
    mask = 2 * D * D  # the mask token's own product, once for the batch
    assert found == 2 * forward_flops(model.sizes, N, 8, kept).total + mask
