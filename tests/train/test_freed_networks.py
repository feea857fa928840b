"""Frozen networks leave when all that they say is cached; previews keep the codec, which decodes,
and no text encoder."""

import gc
from weakref import ref

import pytest
import torch

from fulcrum.measure import evaluation as run_evaluation
from fulcrum.measure import preview
from fulcrum.measure.preview import PreviewPlan, previewing
from fulcrum.spec.run import System
from fulcrum.studies import cell as evaluation_points
from fulcrum.studies.cell import Points
from fulcrum.training.painter import KnownPrompts, Painter
from fulcrum.training.session import Order, perform

PROMPTS = ("a red circle", "a large blue ring at the left.")


@pytest.mark.parametrize(("every", "kept"), [(24, {"codec"}), (0, set())])
def test_what_is_cached_leaves_memory(tiny, tmp_path, monkeypatch, every, kept):
    monkeypatch.setattr(run_evaluation, "VALIDATION", 16)
    monkeypatch.setattr(preview, "SHARE", 1000.0)
    begun, alive, loads = {}, [], []

    def observers(built, folder, state):
        feed = built.feed
        watching = previewing(PreviewPlan(PROMPTS, every))(built, folder, state)
        begun.update({name: ref(network) for name, network in feed.networks.items()})
        loaded = feed._network
        monkeypatch.setattr(
            feed, "_network", lambda name, filler: loads.append(name) or loaded(name, filler)
        )

        def look(seen):
            gc.collect()
            alive.append({name for name, network in begun.items() if network() is not None})

        return [*watching, look]

    result = perform(
        Order(tiny("spark + repa"), 0, "spark", tmp_path, System(), quiet=True), print, observers
    )
    assert set(begun) == {"codec", "text"} and alive == [kept] * len(alive) and len(alive) > 1
    assert [name.split()[0] for name in loads] == ["codec", "text", "teacher"], (
        "for the first batch; none is loaded again"
    )
    assert bool(list((tmp_path / result["key"]).glob("previews/*.png"))) == bool(every)


@pytest.mark.parametrize(
    "phrase", ["spark + repa", "spark + resolution_ladder", "spark + repa + end_to_end_codec"]
)
def test_no_network_lies_beside_a_step(tiny, tmp_path, monkeypatch, phrase):
    """Neither the first of a phase, nor one after a look that measured: that is when memory is at
    its peak."""
    monkeypatch.setattr(run_evaluation, "VALIDATION", 16)
    monkeypatch.setattr(evaluation_points, "quality_of", lambda *given: ({}, None))
    beside, looked = [], []

    def observers(built, folder, state):
        feed, step = built.feed, built.step

        def forward(batch, draw, weights, real=step.forward):
            beside.append({name.split()[0] for name in feed.networks})
            return real(batch, draw, weights)

        monkeypatch.setattr(step, "forward", forward)
        points = Points(
            built, folder, 8, "how", (0.5,), tell=lambda metrics, images: looked.append(images)
        )
        return [*previewing(PreviewPlan(PROMPTS, 24))(built, folder, state), points]

    run = tiny(phrase)
    perform(Order(run, 0, phrase, tmp_path, System(), quiet=True), print, observers)
    assert looked and looked[0] < run.budget.images, "it measured between two steps"
    assert beside == [set()] * (run.budget.images // run.budget.batch)


def test_known_prompts_are_drawn_as_by_their_encoder(tiny):
    from fulcrum.training.build import build

    run = tiny("spark")
    codec, text, weights = (
        run.encode.codec.build(None),
        run.encode.text.build(None),
        build(run, 0).backbone.state_dict(),
    )
    known = KnownPrompts(text, PROMPTS)
    # a fresh one draws noise
    weights = {name: value + 0.02 * torch.ones_like(value) for name, value in weights.items()}
    one, other = (
        torch.cat(list(Painter(run, weights, codec, part).pictures(PROMPTS, 1)))
        for part in (text, known)
    )
    assert (one.int() - other.int()).abs().max() <= 1
    with pytest.raises(KeyError):
        known.encode(["a green square"])
