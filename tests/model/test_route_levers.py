"""The routing levers in a run: phases, draws, costs, what they refuse, and a training that ends in
pictures."""

import numpy as np
import pytest
import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.routing import Sprint
from fulcrum.spec.edit import put, read
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.spec.stage import phases, route_of
from fulcrum.training.build import assemble, build, require_witness
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import train
from fulcrum.training.model.fillers import Dense
from fulcrum.training.painter import Painter


def trained(run, cache):
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    before = {name: value.clone() for name, value in built.step.named_parameters()}
    state = train(built, State(), [], lambda: False)
    assert state.images == run.budget.images
    return built, before


@pytest.mark.parametrize(
    "text",
    [
        "spark + sprint(path_drop=0.4, full_from=0.6)",
        "spark + sprint(full_from=0.7) + muon",
        "spark + tread @ (0, 0.5)",
        "spark + sprint(full_from=none) @ (0, 0.5)",
    ],
)
def test_it_trains_and_draws(text, tiny, cache):
    run = tiny(text, "budget.images=24")
    built, before = trained(run, cache)
    after = dict(built.step.named_parameters())
    assert all(torch.isfinite(value).all() for value in after.values())
    if "sprint" in text:
        assert all(not torch.equal(after[name], before[name]) for name in after if "route." in name)
    pictures = torch.cat(list(Painter.of(built).pictures(["a red circle", "a blue square"], 0)))
    assert pictures.shape == (2, 3, 32, 32)
    assert read(run.plain(), CATALOG.fillers) == run


def test_the_last_stage_keeps_every_token_and_still_drops_paths(tiny, cache):
    run = tiny("spark + sprint(path_drop=0.5, full_from=0.5)")
    first, last = phases(run)
    assert (
        (first.end, last.end) == (24, 48)
        and first.run.model.route.drop == 0.75
        and last.run.model.route.drop == 0
    )
    feed = Feed(run, 0, cache)
    early, late = feed.at(0)[1], feed.at(24)[1]
    assert early.keep.shape == (8, 4) and late.keep is None
    dropped = torch.cat([feed.at(position)[1].drop_path for position in range(0, 48, 8)])
    assert dropped.dtype == torch.bool and 12 < dropped.sum() < 36
    assert torch.equal(torch.cat([feed.at(at, 4)[1].drop_path for at in (24, 28)]), late.drop_path)
    for nothing in ("none", "1.0"):
        assert len(phases(tiny(f"spark + sprint(full_from={nothing})"))) == 1
    assert Feed(tiny("spark + sprint(path_drop=0.0)"), 0, cache).at(0)[1].drop_path is None


def test_one_route_for_all_phases_or_none(tiny):
    staged = tiny("spark + sprint(full_from=0.5)")
    assert route_of(staged) == staged.model.route
    assert build(staged).backbone.span == (1, 2) and build(staged).backbone.route.fuses
    half = tiny("spark + tread @ (0, 0.5)")
    assert half.model.route == Dense() and route_of(half).kind == "carry"
    with pytest.raises(BadInput, match="two routes in one run"):
        tiny("spark + tread @ (0, 0.5) + sprint(full_from=none)")
    with pytest.raises(BadInput, match="both write model.route"):
        tiny("spark + tread + sprint")


@pytest.mark.parametrize(
    "text, message",
    [
        ("spark + sprint(drop=1.0)", "less than 1"),
        ("spark + sprint(drop=0.0)", "greater than 0"),
        ("spark + sprint(path_drop=1.0)", "less than 1"),
        ("spark + sprint(full_from=0.0)", "greater than 0"),
        ("spark + sprint(start=1, end=4)", "blocks 1 to 4, but the model has blocks 0 to 3"),
        ("spark + tread(start=-9)", "but the model has blocks 0 to 3"),
        ("spark + sprint(start=3, end=1)", "blocks 3 to 1"),
        ("spark + routed_guidance", "drops none"),
        ("spark + path_drop_guidance", "no path around"),
        ("spark + tread + path_drop_guidance", "no path around"),
        ("spark + sprint(path_drop=0.0) + path_drop_guidance", "never trained alone"),
        ("spark + tread + routed_guidance(scale=1)", "guides nothing"),
        ("spark + tread + routed_guidance(scale=0)", "greater than 0"),
        ("spark + sprint + routed_guidance + path_drop_guidance", "both write sample.guide"),
    ],
)
def test_refused_when_the_phrase_is_read(text, message, tiny):
    with pytest.raises(BadInput, match=message):
        tiny(text)


@pytest.mark.parametrize(
    "text",
    [
        "spark + sprint + path_drop_guidance",
        "spark + sprint + routed_guidance",
        "spark + tread + routed_guidance(scale=3.0)",
    ],
)
def test_every_lever_sees_itself_and_no_other_run(text, tiny, cache):
    run = tiny(text)
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    levers = parse(text, CATALOG, ["model.depth=4"]).levers
    require_witness(levers, built)
    plain = assemble(tiny(), 0, System(), Feed(tiny(), 0, cache))
    assert not any(lever.witness(plain) for lever in levers)
    assert run.sample.guide.scale == (3.0 if "3.0" in text else tiny().sample.guide.scale)


def test_the_cost_is_that_of_the_average_step(tiny):
    run = tiny()
    always, late = Sprint(full_from=None), Sprint(full_from=0.5)
    dense, sparse = denoiser_training_flops(run), denoiser_training_flops(always.edit(run))
    full = denoiser_training_flops(put(always.edit(run), "model.route.drop", 0.0))
    assert sparse < dense < full
    assert denoiser_training_flops(late.edit(run)) == pytest.approx((sparse + full) / 2)
    assert always.cost(run).flops == pytest.approx(sparse / dense)
    assert late.cost(late.edit(run)) == late.cost(run)
    assert always.cost(run).memory < 1 < late.cost(run).memory  # the widest phase sets the peak
    for lever in (always, late):
        model = build(lever.edit(run)).backbone
        assert parameters(lever.edit(run)) == sum(
            parameter.numel() for parameter in model.parameters()
        )
    assert always.cost(run).parameters == pytest.approx(
        parameters(always.edit(run)) / parameters(run)
    )


def test_masks_of_pictures_belong_to_the_picture(tiny, cache):
    run = tiny("spark + tread + routed_guidance")
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    with torch.no_grad():  # a fresh model is silent: give it something to say
        for parameter in built.step.backbone.parameters():
            parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(parameter.numel()))
    painter, prompts = Painter.of(built), ["a red circle", "a blue square", "a green triangle"]
    index = np.array([5, 2, 9])
    masks = painter.keep(3, index)
    assert masks.shape == (3, 8) and not torch.equal(masks[0], masks[1])
    assert torch.equal(torch.cat([painter.keep(3, index[:1]), painter.keep(3, index[1:])]), masks)
    assert not torch.equal(painter.keep(4, index), masks)
    whole = painter.latents(prompts, 3, index)
    parts = torch.cat(
        [painter.latents(prompts[:1], 3, index[:1]), painter.latents(prompts[1:], 3, index[1:])]
    )
    assert (whole - parts).abs().max() <= 1e-4 * whole.abs().max()
    assert Painter.of(assemble(tiny(), 0, System(), Feed(tiny(), 0, cache))).keep(3, index) is None
