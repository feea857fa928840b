"""Guides combine what they ask for, ask for no more than they need, and say what a run must have."""

import numpy as np
import pytest
import torch

from fulcrum.flow.draw import Chance, Draws
from fulcrum.flow.guide import ClassifierFree, PathDrop, RoutedVersusFull, paths_asked
from fulcrum.flow.sample import euler
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.train.build import build
from fulcrum.train.drawing.painter import Painter

WEAK = {ClassifierFree: (False, "full"), RoutedVersusFull: (True, "routed"), PathDrop: (False, "short")}


@pytest.mark.parametrize("guide", WEAK)
def test_away_from_the_weak_one(guide) -> None:
    answers = {(prompt, path): torch.randn(2, 3) for prompt in (True, False) for path in ("full", "routed", "short")}
    asked = []

    def denoise(x_t, t, prompt, path="full"):
        asked.append((prompt, path))
        return answers[prompt, path]

    weak, strong = answers[WEAK[guide]], answers[True, "full"]
    found = guide(2.5)(denoise, torch.zeros(2, 3), torch.zeros(2))
    assert torch.allclose(found, weak + 2.5 * (strong - weak)) and asked == [(True, "full"), WEAK[guide]]
    asked.clear()
    assert torch.equal(guide(1.0)(denoise, torch.zeros(2, 3), torch.zeros(2)), strong) and asked == [(True, "full")]
    assert paths_asked(guide(3.0)) == {"full", WEAK[guide][1]}


@pytest.fixture
def painter(tiny):
    """Draws with loud random weights; the codec and the text encoder are the run's own."""

    def make(text):
        run = tiny(text)
        weights = build(run).backbone.state_dict()
        generator = torch.Generator().manual_seed(0)
        loud = {name: 0.2 * torch.randn(value.shape, generator=generator) for name, value in weights.items()}
        return Painter(run, loud, run.encode.codec.build(None), run.encode.text.build(None))

    return make


@pytest.mark.parametrize(
    "text",
    [
        "spark + tread + routed_guidance(scale=3.0)",
        "spark + sprint + routed_guidance(scale=3.0)",
        "spark + sprint + path_drop_guidance(scale=3.0)",
    ],
)
def test_pictures_follow_the_hand_combined_velocities(text, painter) -> None:
    drawing, prompts, index = painter(text), ["a red circle", "a small blue square"], np.array([4, 7])
    found = drawing.latents(prompts, 0, index)
    model, (emb, mask), (none, seen) = drawing.denoise.backbone, drawing.text.encode(prompts), drawing.text.encode([""] * 2)
    keep, taken = drawing.keep(0, index), []

    def velocity(x_t, t):
        strong = model(x_t, t, (emb, mask)).pred
        if "routed" in text:
            weak = model(x_t, t, (emb, mask), keep=keep).pred
        else:
            weak = model(x_t, t, (none, seen), short=True).pred
        taken.append(x_t)
        return weak + 3.0 * (strong - weak)

    with torch.no_grad():
        expected = euler(velocity, _noise(drawing, index), drawing.run.sample.steps, drawing.run.sample.shift)
    assert len(taken) == drawing.run.sample.steps
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
    unguided = Painter(put(drawing.run, "sample.guide.scale", 1.0), model.state_dict(), drawing.codec, drawing.text)
    assert (unguided.latents(prompts, 0, index) - found).abs().max() > 1e-2


def _noise(drawing, index):
    from fulcrum.flow import keyed_noise

    codec, size = drawing.run.encode.codec, drawing.run.data.size
    return keyed_noise.normal(0, "sample", index, (codec.channels, size // codec.stride, size // codec.stride))


@pytest.mark.parametrize(
    "setting, message", [("routed(scale=2.0)", "model.route drops none"), ("path_drop(scale=2.0)", "no path around")]
)
def test_a_guide_that_was_typed_in_asks_for_its_route_too(setting, message, tiny) -> None:
    run = tiny("spark", f"sample.guide={setting}")
    with pytest.raises(BadInput, match=message):
        Painter(run, build(run).backbone.state_dict(), None, None)


def test_chances_are_keyed_by_image() -> None:
    draws = Draws(seed=1, time=lambda u: u, shape=(1, 2, 2), drop_text=0.1, needs={"drop_path": Chance(0.25)})
    whole = draws.at(0, 400)
    assert whole.drop_path.dtype == torch.bool and 70 < whole.drop_path.sum() < 130 and whole.extra == {}
    assert torch.equal(torch.cat([draws.at(0, 150).drop_path, draws.at(150, 250).drop_path]), whole.drop_path)
    assert draws._replace(needs={}).at(0, 4).drop_path is None
