"""Objectives: what a prediction means, times and weights, and the levers that change them."""

import math
from types import SimpleNamespace

import pytest
import torch

from fulcrum.cost.denoiser import parameters
from fulcrum.encode.fillers import Pixels
from fulcrum.flow import path
from fulcrum.flow.fillers import FILLERS, LogitNormal, MinSNR, Preconditioned, UniformTime, Velocity, XPrediction
from fulcrum.flow.predict import PreconditionedPrediction
from fulcrum.flow.sample import euler
from fulcrum.interop.diffusers import pipeline_of
from fulcrum.levers.catalog import CATALOG
from fulcrum.loss.flow_matching import FlowMatchingTerm
from fulcrum.loss.term import View
from fulcrum.measure.card import NotComparable, compatible
from fulcrum.measure.metrics.validation_loss import ValidationLoss
from fulcrum.model.counted_flops import counted
from fulcrum.recipes.pocket import pocket_pixels
from fulcrum.recipes.prx import prx_256, prx_pixels_1024
from fulcrum.spec import seam
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse
from fulcrum.spec.system import System
from fulcrum.study.judge.findings import effects_on
from fulcrum.study.judge.remarks import remarks
from fulcrum.study.plan.arms import prove
from fulcrum.study.plan.plan import Plan
from fulcrum.study.run.measuring.run_evaluation import Held, loss_of
from fulcrum.train.build import assemble, build
from fulcrum.train.drawing.painter import Painter
from fulcrum.train.feed import Feed

PREDICTS = [cls() for cls in FILLERS if issubclass(cls, seam.PredictFiller)] + [Preconditioned(sigma_data=0.5)]
TIMES = torch.tensor([0.0, 0.01, 0.05, 0.3, 0.5, 0.9, 1.0])
MINE = (
    "x_prediction",
    "uniform_time",
    "shifted_time",
    "min_snr",
    "edm_precondition",
    "contrastive_flow",
    "pixels",
    "bottleneck",
    "resolution_condition",
)


def built(filler, noise_scale=1.0):
    return filler.build(SimpleNamespace(run=SimpleNamespace(flow=SimpleNamespace(noise_scale=noise_scale))))


def pair(scale=1.0):
    generator = torch.Generator().manual_seed(0)
    x0, eps = (torch.randn(len(TIMES), 2, 4, 4, generator=generator) for _ in range(2))
    return x0, scale * eps


@pytest.mark.parametrize("filler", PREDICTS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_a_perfect_prediction_has_no_loss_and_is_the_picture(filler, scale):
    predict, (x0, eps) = built(filler, scale), pair(scale)
    x_t, ideal = path.mix(x0, eps, TIMES), predict.ideal(x0, eps, TIMES)
    target = predict.to_v(ideal, x_t, TIMES)
    view = View(None, SimpleNamespace(t=TIMES), v=predict.to_v(ideal.clone(), x_t, TIMES), target=target, x=None, taps={})
    assert float(FlowMatchingTerm(torch.ones_like)(view).max()) == 0
    assert torch.allclose(predict.to_x(ideal, x_t, TIMES), x0, atol=1e-5)
    floor = getattr(filler, "floor", 0.0)
    above = floor <= TIMES
    assert torch.allclose(target[above], (eps - x0)[above], atol=1e-4)  # regular at both ends: no nan, no pole
    wrong = predict.to_v(ideal + 0.1, x_t, TIMES)
    assert float((wrong - target).abs().min()) > 1e-3  # and an error is seen at every time


@pytest.mark.parametrize("filler", PREDICTS, ids=str)
def test_the_sampler_recovers_the_picture_from_an_ideal_denoiser(filler):
    """The oracle answers in the filler's own language; it knows x0, and x_t gives it eps."""
    predict, (x0, noise) = built(filler), pair()

    def velocity(x_t, t):
        eps = (x_t - (1 - t[0]) * x0) / t[0]
        return predict.to_v(predict.ideal(x0, eps, t), x_t, t)

    for k in (1.0, 3.0):
        assert torch.allclose(euler(velocity, noise, 10, k), x0, atol=1e-4)


@pytest.mark.parametrize(("s", "n"), [(1.0, 1.0), (0.5, 1.0), (0.5, 2.0)])
def test_preconditioning_is_edms(s, n):
    """Against table 1 of the paper in its own variable, sigma = n t / (1 - t), for x = x0 + sigma noise."""
    t = TIMES[(TIMES > 0) & (TIMES < 1)].double()
    x0, eps = (value[: len(t)].double() for value in pair(n))
    x_t, raw = path.mix(x0, eps, t), torch.randn_like(x0)
    sigma, x = path.over(n * t / (1 - t), x0), x_t / path.over(1 - t, x0)
    assert torch.allclose(x, x0 + sigma * (eps / n))  # EDM's own path
    c_skip, c_out = s**2 / (sigma**2 + s**2), sigma * s / (sigma**2 + s**2).sqrt()
    c_in = 1 / (s**2 + sigma**2).sqrt()
    ours = PreconditionedPrediction(s, n)
    assert torch.allclose(ours.inputs(x_t, t), c_in * x)
    assert torch.allclose(ours.to_x(raw, x_t, t), c_skip * x + c_out * raw)
    assert torch.allclose(ours.ideal(x0, eps, t), (x0 - c_skip * x) / c_out)
    assert torch.allclose(ours.to_v(raw, x_t, t), (x_t - ours.to_x(raw, x_t, t)) / path.over(t, x0))


def test_preconditioned_inputs_and_targets_have_unit_variance_at_every_time():
    predict, generator = PreconditionedPrediction(0.5, 2.0), torch.Generator().manual_seed(1)
    x0, eps = 0.5 * torch.randn(7, 20_000, generator=generator), 2.0 * torch.randn(7, 20_000, generator=generator)
    for value in (predict.inputs(path.mix(x0, eps, TIMES), TIMES), predict.ideal(x0, eps, TIMES)):
        assert float((value.std(1) - 1).abs().max()) < 0.03


def test_the_models_spread_of_the_data_is_what_the_defaults_say(tiny, cache):
    """sigma_data 1 for latents; the card says 0.4 to 0.5 for pixels."""
    for text, expected in (("spark", 1.0), ("spark + pixels", 0.45)):
        assert abs(float(Feed(tiny(text), 0, cache).at(0, 32)[0].x0.std()) - expected) < 0.1


def test_min_snr_by_hand():
    weight = MinSNR().build(None)(torch.tensor([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]))
    # SNR = (1 - t)^2 / t^2 is above 5 until t = 1 / (1 + sqrt 5) = 0.309
    assert torch.allclose(weight, torch.tensor([0.0, 0.05, 0.45, 0.25, 0.01, 0.0]), atol=1e-6)
    t = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    snr = ((1 - t) / t).square()
    assert torch.allclose(MinSNR(gamma=3.0).build(None)(t), snr.clamp(max=3.0) * t.square())  # x0 errs t times as much


def test_uniform_and_shifted_times():
    u = (torch.arange(1000) + 0.5) / 1000
    assert float((UniformTime().build(None)(u) - u).abs().max()) <= 1e-3
    assert abs(float(LogitNormal(uniform_share=0.0, shift=3.0).build(None)(u).median()) - 0.75) < 2e-3


def test_shifted_time_moves_the_sampler_too_and_keeps_the_uniform_share(tiny):
    run = tiny("spark + shifted_time(k=2.0)", "flow.time=logit_normal(uniform_share=0.3)")
    assert run.flow.time == LogitNormal(uniform_share=0.3, shift=2.0) and run.sample.shift == 2.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pocket_pixels_large + shifted_time(k=2.0)", "change nothing"),
        ("pocket + uniform_time + shifted_time", "logit-normal|both write"),
        ("pocket + shifted_time + uniform_time", "logit-normal|both write"),
        ("pocket_pixels + pixels", "change nothing"),
        ("pocket + bottleneck", "squeezes nothing"),
        ("pocket + bottleneck(width=32)", "squeezes nothing"),
        ("pocket + x_prediction + edm_precondition", "both write"),
        (
            "pocket_pixels + edm_precondition + x_prediction(floor=0.1)",
            "means something else|both write|leave one of them out",
        ),
        (
            "pocket_pixels + x_prediction(floor=0.1) + edm_precondition",
            "means something else|both write|leave one of them out",
        ),
        ("pocket + contrastive_flow(chunk=1)", "no other sample"),
        ("pocket + contrastive_flow(chunk=7)", "no multiple"),
        ("pocket + contrastive_flow(weight=1.0)", "less than 1"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_phrase_is_read(text, says):
    with pytest.raises(BadInput, match=says):
        parse(text, CATALOG)


def test_pixels_keep_the_tokens(tiny):
    latents, pixels = tiny(), tiny("spark + pixels")
    assert pixels.tokens == latents.tokens and pixels.encode.codec == Pixels() and pixels.model.patch == 8
    assert tiny("spark + pixels + bottleneck") == tiny("spark + bottleneck + pixels")


@pytest.mark.parametrize("name", MINE)
def test_witness_cost_and_parameters(name, tiny, cache):
    """Each lever is seen on the built run, costs the FLOPs that it declares, and draws pictures."""
    lever, plain, edited = CATALOG.levers[name](), tiny(), tiny(f"spark + {name}")
    base, arm = (assemble(run, 0, System(), Feed(run, 0, cache)) for run in (plain, edited))
    assert lever.witness(arm) and not lever.witness(base)

    def spent(one):
        return counted(lambda: one.step(*one.feed.at(0), one.weights(0)).total.backward())

    cost = lever.cost(plain)
    assert abs(cost.flops / (spent(arm) / spent(base)) - 1) < 0.05
    counts = [sum(p.numel() for p in one.step.backbone.parameters()) for one in (base, arm)]
    assert counts == [parameters(plain), parameters(edited)]
    assert math.isclose(cost.parameters, counts[1] / counts[0])
    painter = Painter(edited, arm.step.backbone.state_dict(), arm.feed.codec(), arm.feed.text())
    picture = torch.cat(list(painter.pictures(["a red circle"], 0)))
    assert picture.shape == (1, 3, 32, 32)


def test_published_parameter_counts():
    assert parameters(prx_256()) == 1_170_691_648 and parameters(prx_pixels_1024()) == 1_177_215_744


def test_a_resolution_model_is_told_the_size_it_sees(tiny):
    backbone = build(tiny("spark + resolution_condition")).backbone
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(0))
    x_t, t, text = torch.randn(2, 8, 8, 8), torch.rand(2), (torch.randn(2, 3, 96), None)
    plain = backbone(x_t, t, text).pred
    assert torch.equal(plain, backbone(x_t, t, text, size=torch.tensor([[8.0, 8.0]]).expand(2, 2)).pred)
    assert not torch.equal(plain, backbone(x_t, t, text, size=torch.tensor([[16.0, 8.0]]).expand(2, 2)).pred)


@pytest.mark.parametrize(
    "change",
    [
        "flow.predict=x",
        "flow.predict=x(floor=0.1)",
        "flow.predict=preconditioned",
        "flow.weight=min_snr",
        "flow.time=uniform",
        "flow.time=logit_normal(shift=3.0)",
        "flow.noise_scale=2.0",
    ],
)
def test_losses_of_two_objectives_are_not_compared(change, tiny, cache):
    base = card(tiny(), cache)
    with pytest.raises(NotComparable):
        compatible(base, card(tiny("spark", change), cache))
    assert compatible(base, card(tiny("spark + muon"), cache)) == ()


def test_a_staged_time_is_another_objective(tiny):
    assert loss_of(tiny()) != loss_of(tiny("spark + uniform_time @ (0, 0.5)"))


def card(run, cache):
    """The card of a run's held-out loss."""
    feed = Feed(run, 0, cache)
    about = Held(run, feed.codec(), feed.text(), cache).about
    return ValidationLoss(n=2, loss=1.0, sd=0.0, **about).measured().card


def test_a_study_leaves_out_what_cannot_be_compared_and_says_so():
    plan = Plan(title="x", baseline="pocket", arms=("x_prediction", "muon", "shifted_time"), seeds=(0, 1), images=64)
    arms = prove(plan, CATALOG)

    def cell(arm, metric, **facts):
        card = {"metric": metric, "better": "lower", "estimator": "mean", "interval": "none", "n": 2, **facts}
        return {"metrics": {metric: {"value": 1.0 + len(arm.name), "card": card}}}

    losses = {
        arm.name: {seed: cell(arm, "validation_loss", estimator=str(loss_of(arm.run))) for seed in (0, 1)} for arm in arms
    }
    assert [effect.arm for effect in effects_on(plan, arms, losses, "validation_loss")] == ["muon"]
    drawn = {
        arm.name: {seed: cell(arm, "frechet", sampler=f"shift {arm.run.sample.shift}") for seed in (0, 1)} for arm in arms
    }
    assert len(effects_on(plan, arms, drawn, "frechet")) == 3
    said = " ".join(remarks(plan, arms))
    assert "validation loss of x_prediction, shifted_time is not compared" in said
    assert "shifted_time is evaluated with other sampler" in said


def test_export_refuses_what_no_pipeline_of_diffusers_can_draw():
    run = pocket_pixels()
    assert pipeline_of(run) == "PRXPixelPipeline" and pipeline_of(put(run, "flow.predict", Velocity())) == "PRXPipeline"
    for other in (
        put(run, "flow.predict", XPrediction(floor=0.1)),
        put(run, "flow.predict", Preconditioned()),
        parse("pocket + x_prediction", CATALOG).run,
        parse("pocket", CATALOG, ["flow.noise_scale=2.0"]).run,
    ):
        with pytest.raises(BadInput, match="no pipeline of diffusers"):
            pipeline_of(other)
