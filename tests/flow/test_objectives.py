"""Objectives: what a prediction means, times and weights, and the levers that change them."""

import math
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from fulcrum.cost.denoiser import parameters
from fulcrum.data.fillers import World
from fulcrum.encode.fillers import Pixels
from fulcrum.flow import path
from fulcrum.flow.fillers import (
    FILLERS,
    EDMLoss,
    EDMNoise,
    LogitNormal,
    MinSNR,
    Preconditioned,
    UniformTime,
    Velocity,
    XPrediction,
)
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
from fulcrum.spec.combine import apply
from fulcrum.spec.edit import diff, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse
from fulcrum.spec.stage import phases
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
    "logit_normal_time",
    "shifted_time",
    "min_snr",
    "edm_precondition",
    "edm_noise",
    "edm_weight",
    "contrastive_flow",
    "pixels",
    "bottleneck",
    "resolution_condition",
)


def built(filler, noise_scale=1.0, deviation=1.0):
    """A filler's part in a run whose codec gives data of this deviation."""
    codec = SimpleNamespace(deviation=lambda source: deviation)
    run = {"flow": SimpleNamespace(noise_scale=noise_scale), "encode": SimpleNamespace(codec=codec), "data": None}
    run["data"] = SimpleNamespace(source=None)
    return filler.build(SimpleNamespace(run=SimpleNamespace(**run)))


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


@pytest.mark.parametrize("setting", ["data.source.domain=real", "data.source.domain=synthetic"])
@pytest.mark.parametrize("codec", ["spark", "spark + wide_codec", "spark + aligned_codec", "spark + pixels"])
def test_the_spread_of_the_data_is_that_of_what_is_trained_on(codec, setting, tiny, cache):
    """Not a constant: pixels have less than half of what latents have, and a bright world more than a dark one."""
    run = tiny(codec, setting)
    measured = float(Feed(run, 0, cache).at(0, 64)[0].x0.std())
    assert run.encode.codec.deviation(run.data.source) == pytest.approx(measured, rel=0.1)
    part = build(put(run, "flow.predict", Preconditioned())).predict
    assert part.s == run.encode.codec.deviation(run.data.source) and (part.s < 0.6) == ("pixels" in codec)
    assert build(put(run, "flow.predict", Preconditioned(sigma_data=0.7))).predict.s == 0.7, "a setting wins"


def test_a_deviation_that_nobody_measured_is_asked_for(tiny):
    class Own(World):
        has_scenes: ClassVar[bool] = False  # as a store of the user's

    run = put(tiny("spark + pixels"), "data.source", Own(count=8))
    for name in ("edm_precondition", "edm_noise", "edm_weight"):
        lever = CATALOG.levers[name]
        with pytest.raises(BadInput, match=r"the first 8 pictures have 0\.\d\d\): write it as sigma_data"):
            apply(run, (lever(),))
        assert apply(run, (lever(sigma_data=0.4),))
    with pytest.raises(BadInput, match="nobody has measured"):
        build(put(run, "flow.predict", Preconditioned()))


def normal_numbers(count=20_001):
    """Evenly spaced uniform numbers and the standard normal ones with the same ranks."""
    u = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return u.float(), math.sqrt(2) * torch.erfinv(2 * u - 1)


def test_jits_times_are_jits(tiny):
    """JiT draws z ~ N(P_mean, P_std) with -0.8 and 0.8, t = sigmoid(z), and mixes t x + (1 - t) noise: 1 - t is ours."""
    for recipe in ("spark", "pocket_64" if "pocket_64" in CATALOG.recipes else "pocket"):
        flow = parse(f"{recipe} + jit", CATALOG, ["flow.time.shift=3.0"]).run.flow
        u, z = normal_numbers()
        noise = 1 - 1 / (1 + torch.exp(-(-0.8 + 0.8 * z)))
        assert torch.allclose(flow.time.build(None)(u).double(), noise.flip(0), atol=1e-5)
        assert float(noise.median()) == pytest.approx(0.69, abs=0.001)
        assert flow.predict == XPrediction(floor=0.05)


def test_placed_times_are_sd3s():
    """pi(t; m, s) = exp(-(logit t - m)^2 / 2 s^2) / (s sqrt(2 pi) t (1 - t)), equation 19 of SD3, by its integral."""
    u, _ = normal_numbers(200_001)
    t = LogitNormal(uniform_share=0.0, mean=0.5, deviation=0.6).build(None)(u).double()
    edges = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    for low, high in zip(edges, edges[1:], strict=False):
        middle = torch.linspace(float(low), float(high), 201, dtype=torch.float64)
        density = torch.exp(-((torch.log(middle / (1 - middle)) - 0.5) ** 2) / (2 * 0.6**2))
        density = density / (0.6 * math.sqrt(2 * math.pi) * middle * (1 - middle))
        assert float(((t >= low) & (t < high)).double().mean()) == pytest.approx(
            float(torch.trapezoid(density, middle)), abs=2e-4
        )


def test_placed_times_leave_the_rest_of_the_law_alone(tiny):
    run = tiny("spark + logit_normal_time(mean=1.0)", "flow.time=logit_normal(uniform_share=0.3, shift=2.0)")
    assert run.flow.time == LogitNormal(uniform_share=0.3, shift=2.0, mean=1.0, deviation=0.6) and run.sample.shift == 1.0
    assert tiny("spark + shifted_time + logit_normal_time") == tiny("spark + logit_normal_time + shifted_time")


@pytest.mark.parametrize(("s", "n"), [(1.0, 1.0), (0.5, 1.0), (0.4, 2.0)])
def test_edms_noise_law_and_weight_are_edms(s, n):
    """ln sigma ~ N(-1.2, 1.2) for data of deviation 0.5; the loss (sigma^2 + s^2) / (sigma s)^2 ||D - x0||^2, table 1."""
    u, z = normal_numbers()
    sigma = torch.exp(-1.2 + 1.2 * z) * s / 0.5  # the same share of the picture is destroyed
    t = built(EDMNoise(), n, s)(u).double()
    assert torch.allclose(torch.log(n * t / (1 - t)), torch.log(sigma), atol=2e-3)
    assert torch.equal(built(EDMNoise(sigma_data=s), n, 9.0)(u).double(), t), "a setting wins"
    t = TIMES[(TIMES > 0) & (TIMES < 1)].double()
    sigma, wrong = n * t / (1 - t), torch.full_like(t, 0.3)  # an error of x0 is t times one of v
    expected = (sigma**2 + s**2) / (sigma * s) ** 2 * wrong**2
    assert torch.allclose(built(EDMLoss(), n, s)(t) * (wrong / t) ** 2, expected)
    assert torch.equal(built(EDMLoss(sigma_data=s), n, 9.0)(t), built(EDMLoss(), n, s)(t))


def test_under_edms_weight_the_networks_own_error_counts_alike_at_every_time():
    predict, weight = PreconditionedPrediction(0.5, 2.0), built(EDMLoss(), 2.0, 0.5)
    x_t, raw = torch.randn(len(TIMES), 8), torch.randn(len(TIMES), 8)
    apart = (predict.to_v(raw + 0.1, x_t, TIMES) - predict.to_v(raw, x_t, TIMES)).square().mean(1)
    assert torch.allclose(apart * weight(TIMES), torch.full_like(TIMES, 0.01), rtol=1e-4)


def test_edm_is_three_single_changes(tiny):
    phrase = parse("spark + edm", CATALOG)
    assert [lever.name for lever in phrase.levers] == ["edm_precondition", "edm_noise", "edm_weight"]
    for lever in phrase.levers:
        assert len(lever.touches) == 1 and len(diff(phrase.base, lever.edit(phrase.base))) == 1


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_min_snr_knows_the_noise_scale(scale):
    """min(SNR, gamma) on the error of x0, SNR = (1 - t)^2 / (s t)^2, and that error is t times the error of v."""
    t = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    snr = ((1 - t) / (scale * t)).square()
    assert torch.allclose(built(MinSNR(gamma=3.0), scale)(t), snr.clamp(max=3.0) * t.square())


def test_min_snr_by_hand():
    weight = built(MinSNR())(torch.tensor([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]))
    # SNR = (1 - t)^2 / t^2 is above 5 until t = 1 / (1 + sqrt 5) = 0.309
    assert torch.allclose(weight, torch.tensor([0.0, 0.05, 0.45, 0.25, 0.01, 0.0]), atol=1e-6)


def test_uniform_and_shifted_times():
    u = (torch.arange(1000) + 0.5) / 1000
    assert float((UniformTime().build(None)(u) - u).abs().max()) <= 1e-3
    assert float((UniformTime(shift=3.0).build(None)(u) - 3 * u / (1 + 2 * u)).abs().max()) <= 3e-3
    assert abs(float(LogitNormal(uniform_share=0.0, shift=3.0).build(None)(u).median()) - 0.75) < 2e-3


def test_shifted_time_moves_the_sampler_too_and_keeps_the_uniform_share(tiny):
    run = tiny("spark + shifted_time(k=2.0)", "flow.time=logit_normal(uniform_share=0.3)")
    assert run.flow.time == LogitNormal(uniform_share=0.3, shift=2.0) and run.sample.shift == 2.0


def test_uniform_times_keep_the_runs_shift(tiny, cache):
    """One change, not two: a shifted recipe stays shifted, and a lever that shifts composes in either order."""
    run = tiny("spark + uniform_time", "flow.time.shift=3.0", "sample.shift=3.0")
    assert run.flow.time == UniformTime(shift=3.0) and run.sample.shift == 3.0
    assert CATALOG.levers["uniform_time"]().witness(assemble(run, 0, System(), Feed(run, 0, cache)))
    one, other = tiny("spark + uniform_time + shifted_time"), tiny("spark + shifted_time + uniform_time")
    assert one == other and one.flow.time == UniformTime(shift=3.0) and one.sample.shift == 3.0
    ladder = phases(tiny("spark + uniform_time + shifted_time + resolution_ladder"))
    assert [phase.run.flow.time.k for phase in ladder] == [1.5, 3.0]


@pytest.mark.parametrize(("width", "waist"), [(1792, 256), (3584, 512), (768, 112), (128, 16), (96, 16), (32, 8)])
def test_the_waist_is_a_seventh_of_the_model(width, waist):
    run = parse("pocket_pixels", CATALOG, [f"model.width={width}", "model.heads=4"]).run
    assert CATALOG.levers["bottleneck"]().edit(run).model.bottleneck == waist


def test_the_published_waist_is_the_levers():
    run = prx_pixels_1024()
    assert CATALOG.levers["bottleneck"]().edit(put(run, "model.bottleneck", None)) == run


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pocket_pixels_large + shifted_time(k=2.0)", "change nothing"),
        ("pocket + edm_noise + shifted_time", "has no shift"),
        ("pocket + shifted_time + edm_noise", "has no shift|leave one of them out"),
        ("pocket + uniform_time + edm_noise", "both write"),
        ("pocket + uniform_time + logit_normal_time", "leave one of them out"),
        ("pocket + logit_normal_time + uniform_time", "leave one of them out"),
        ("pocket + logit_normal_time(mean=0, deviation=1)", "changes nothing"),
        ("pocket + logit_normal_time(deviation=0)", "greater than 0 and at most 10"),
        ("pocket + logit_normal_time(mean=-11)", "at least -10 and at most 10"),
        ("pocket + logit_normal_time(location=1)", "no setting 'location'"),
        ("pocket + edm_noise(deviation=11)", "at most 10"),
        ("pocket + edm_weight(sigma_data=0)", "greater than 0"),
        ("pocket + edm_precondition(sigma_data=101)", "at most 100"),
        ("pocket + edm_weight + min_snr", "both write"),
        ("pocket_pixels + pixels", "change nothing"),
        ("pocket + bottleneck(width=1024)", "squeezes nothing"),
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
        "flow.weight=edm_weight",
        "flow.time=uniform",
        "flow.time=edm_noise",
        "flow.time=logit_normal(mean=0.5)",
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
