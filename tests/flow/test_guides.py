"""Guides combine what they ask for, ask for no more than they need, and say what a run must
have."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.slots import Chance
from fulcrum.training.build import build
from fulcrum.training.feed import Feed
from fulcrum.training.flow.fillers import (
    CFG,
    CorrectedGuide,
    PathDropGuide,
    RoutedGuide,
    Velocity,
    XPrediction,
)
from fulcrum.training.flow.noise import Draws
from fulcrum.training.flow.sampling import ListeningDenoiser, euler, paths_asked
from fulcrum.training.painter import Painter

WEAK = {
    CFG: (False, "full"),
    RoutedGuide: (True, "routed"),
    PathDropGuide: (False, "short"),
}


@pytest.mark.parametrize("guide", WEAK)
def test_away_from_the_weak_one(guide) -> None:
    answers = {
        (prompt, path): torch.randn(2, 3)
        for prompt in (True, False)
        for path in ("full", "routed", "short")
    }

    class Answering(ListeningDenoiser):
        def __call__(self, x_t, t, prompt, path="full"):
            super().__call__(x_t, t, prompt, path)
            return answers[prompt, path]

    denoise = Answering()
    asked, weak, strong = denoise.asked, answers[WEAK[guide]], answers[True, "full"]
    found = guide(scale=2.5)(denoise, torch.zeros(2, 3), torch.zeros(2))
    assert torch.allclose(found, weak + 2.5 * (strong - weak)) and asked == [
        (True, "full"),
        WEAK[guide],
    ]
    asked.clear()
    assert torch.equal(
        guide(scale=1.0)(denoise, torch.zeros(2, 3), torch.zeros(2)), strong
    ) and asked == [(True, "full")]
    assert paths_asked(guide(scale=3.0)) == {"full", WEAK[guide][1]}


@pytest.fixture
def painter(tiny):
    """Draws with loud random weights; the codec and the text encoder are the run's own."""

    def make(text):
        run = tiny(text)
        weights = build(run).backbone.state_dict()
        generator = torch.Generator().manual_seed(0)
        loud = {
            name: 0.2 * torch.randn(value.shape, generator=generator)
            for name, value in weights.items()
        }
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
    drawing, prompts, index = (
        painter(text),
        ["a red circle", "a small blue square"],
        np.array([4, 7]),
    )
    found = drawing.latents(prompts, 0, index)
    model, (emb, mask), (none, seen) = (
        drawing.backbone,
        drawing.text.encode(prompts),
        drawing.text.encode([""] * 2),
    )
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
        expected = euler(
            velocity, _noise(drawing, index), drawing.run.sample.steps, drawing.run.sample.shift
        )
    assert len(taken) == drawing.run.sample.steps
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
    unguided = Painter(
        put(drawing.run, "sample.guide.scale", 1.0), model.state_dict(), drawing.codec, drawing.text
    )
    assert (unguided.latents(prompts, 0, index) - found).abs().max() > 1e-2


def _noise(drawing, index):
    from fulcrum.training.flow import noise as keyed_noise

    codec, size = drawing.run.encode.codec, drawing.run.data.size
    return keyed_noise.normal(
        0, "sample", index, (codec.channels, size // codec.stride, size // codec.stride)
    )


@pytest.mark.parametrize(
    "setting, message",
    [
        ("routed(scale=2.0)", "drops none; add tread or sprint"),
        ("path_drop(scale=2.0)", "fuses nothing; add sprint"),
    ],
)
def test_a_guide_that_was_typed_in_asks_for_its_route_too(setting, message, tiny) -> None:
    run = tiny("spark", f"sample.guide={setting}")
    with pytest.raises(BadInput, match=message):
        Painter(run, build(run).backbone.state_dict(), None, None)


@pytest.mark.parametrize("predict", [Velocity(), XPrediction()], ids=str)
def test_the_correction_undoes_the_stretch_of_a_contrastive_term(predict) -> None:
    """By the authors' formula, written out: v = v0 + w (vc - v0), then (1 - l) v + l u, u the mean
    of eps - x over all."""
    generator = torch.Generator().manual_seed(0)
    pictures, mean_of = torch.randn(50, 2, 4, 4, generator=generator) + 0.5, []
    t, x_t = torch.tensor([0.02, 0.5, 1.0]), torch.randn(3, 2, 4, 4, generator=generator)
    part = predict.build(None)
    for time in t:  # the mean target over all pictures and as many noises that sum up to nothing
        noise = torch.randn(50, 2, 4, 4, generator=generator)
        whole, every = torch.cat([pictures, pictures]), torch.full((100,), float(time))
        eps = torch.cat([noise, -noise])
        mixed = (1 - time) * whole + time * eps
        mean_of.append(part.to_v(part.ideal(whole, eps, every), mixed, every).mean(0))
    mean = torch.stack(mean_of)
    meant = {
        True: torch.randn(3, 2, 4, 4, generator=generator),
        False: torch.randn(3, 2, 4, 4, generator=generator),
    }

    class Stretched(ListeningDenoiser):
        def __call__(self, x_t, t, prompt, path="full"):
            return (meant[prompt] - 0.05 * mean) / (1 - 0.05)

    stretched = Stretched()
    correct = CorrectedGuide(CFG(scale=3.0), 0.05, pictures.mean(0), part)
    corrected = correct(stretched, x_t, t)
    assert torch.allclose(corrected, meant[False] + 3.0 * (meant[True] - meant[False]), atol=1e-4)
    plain = CFG(scale=3.0)(stretched, x_t, t)
    assert torch.allclose(corrected, (1 - 0.05) * plain + 0.05 * mean, atol=1e-5)
    assert (plain - corrected).abs().max() > 0.01
    other = correct.mean_velocity(torch.zeros(1, 2, 8, 6), t[1:2])
    assert other.shape == (1, 2, 8, 6), "pictures of another size"


def test_the_correction_reads_the_runs_own_weights_and_pictures(tiny, cache) -> None:
    text = "spark + contrastive_flow(weight=0.2) + contrastive_correction(scale=2.0)"
    run = tiny(text, "terms.flow_matching.weight=2.0")
    guide = run.sample.guide.build(SimpleNamespace(run=run))
    assert guide.weight == 0.1 and guide.guide.scale == 2.0, (
        "lambda is the contrastive weight against flow matching's"
    )
    batches = [Feed(run, 0, cache).at(position, 8)[0] for position in range(0, 64, 8)]
    latents = {
        int(number): x0 for batch in batches for number, x0 in zip(batch.ids, batch.x0, strict=True)
    }
    assert len(latents) == run.data.source.count == 64
    # cached in 16 bits
    assert torch.allclose(guide.mean, torch.stack(list(latents.values())).mean(0), atol=2e-3)
    kept = tiny("spark + contrastive_flow + contrastive_correction(weight=0.3)")
    assert kept.sample.guide.build(SimpleNamespace(run=kept)).weight == 0.3
    assert kept.sample.guide.scale == tiny().sample.guide.scale


@pytest.mark.parametrize(
    "text, message",
    [
        ("spark + contrastive_correction", "nothing to correct: add contrastive_flow"),
        (
            "spark + contrastive_flow @ (0, 0.5) + contrastive_correction",
            "contrastive when the run ends",
        ),
        (
            "spark + contrastive_correction + contrastive_flow + end_to_end_codec + repa",
            "moves while their codec",
        ),
        ("spark + contrastive_flow + contrastive_correction(weight=1.0)", "less than 1"),
        (
            "spark + contrastive_flow + contrastive_correction + tread + routed_guidance",
            "both write sample.guide",
        ),
    ],
)
def test_what_cannot_be_corrected_is_refused(text, message, tiny) -> None:
    with pytest.raises(BadInput, match=message):
        tiny(text)


def test_chances_are_keyed_by_image() -> None:
    draws = Draws(
        seed=1, time=lambda u: u, shape=(1, 2, 2), drop_text=0.1, needs={"drop_path": Chance(0.25)}
    )
    whole = draws.at(0, 400)
    assert (
        whole.drop_path.dtype == torch.bool
        and 70 < whole.drop_path.sum() < 130
        and whole.extra == {}
    )
    assert torch.equal(
        torch.cat([draws.at(0, 150).drop_path, draws.at(150, 250).drop_path]), whole.drop_path
    )
    assert draws._replace(needs={}).at(0, 4).drop_path is None
