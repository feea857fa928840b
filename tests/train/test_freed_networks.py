"""Frozen networks leave when all that they say is cached; previews keep the codec, which decodes, and no text encoder."""

import gc
from weakref import ref

import pytest
import torch

from fulcrum.spec.system import System
from fulcrum.study.run.measuring import preview, run_evaluation
from fulcrum.study.run.measuring.preview import PreviewPlan, previewing
from fulcrum.train.drawing.known_prompts import KnownPrompts
from fulcrum.train.drawing.painter import Painter
from fulcrum.train.session import Order, perform

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
        monkeypatch.setattr(feed, "_network", lambda name, filler: loads.append(name) or loaded(name, filler))

        def look(seen):
            gc.collect()
            alive.append({name for name, network in begun.items() if network() is not None})

        return [*watching, look]

    result = perform(Order(tiny("spark + repa"), 0, "spark", tmp_path, System(), quiet=True), print, observers)
    assert set(begun) == {"codec", "text"} and alive == [kept] * len(alive) and len(alive) > 1
    assert [name.split()[0] for name in loads] == ["codec", "text", "teacher"], "for the first batch; none is loaded again"
    assert bool(list((tmp_path / result["key"]).glob("previews/*.png"))) == bool(every)


def test_known_prompts_are_drawn_as_by_their_encoder(tiny):
    from fulcrum.train.build import build

    run = tiny("spark")
    codec, text, weights = run.encode.codec.build(None), run.encode.text.build(None), build(run, 0).backbone.state_dict()
    known = KnownPrompts(text, PROMPTS)
    weights = {name: value + 0.02 * torch.ones_like(value) for name, value in weights.items()}  # a fresh one draws noise
    one, other = (torch.cat(list(Painter(run, weights, codec, part).pictures(PROMPTS, 1))) for part in (text, known))
    assert (one.int() - other.int()).abs().max() <= 1
    with pytest.raises(KeyError):
        known.encode(["a green square"])
