"""Objectives: what a prediction means, times and weights, and the levers that change them."""

import math
from types import SimpleNamespace

import pytest
import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.recipes import pocket_pixels, prx_256, prx_pixels_1024
from fulcrum.networks.fillers import Pixels
from fulcrum.spec import slots
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import parameters
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.spec.stage import phases
from fulcrum.training.build import assemble, build, require_witness
from fulcrum.training.feed import Feed
from fulcrum.training.flow import fillers as path
from fulcrum.training.flow.fillers import (
    FILLERS,
    LogitNormal,
    MinSNR,
    Preconditioned,
    UniformTime,
    Velocity,
    XPrediction,
)
from fulcrum.training.flow.sampling import euler
from fulcrum.training.interop.diffusers import pipeline_of
from fulcrum.training.loss.terms import FlowMatchingTerm, View
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.painter import Painter
from tests.flow.parts import TIMES, built, normal_numbers, pair

PREDICTS = [cls() for cls in FILLERS if issubclass(cls, slots.PredictFiller)] + [
    Preconditioned(sigma_data=0.5)
]
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


@pytest.mark.parametrize("filler", PREDICTS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_a_perfect_prediction_has_no_loss_and_is_the_picture(filler, scale):
    predict, (x0, eps) = built(filler, scale), pair(scale)
    x_t, ideal = path.mix(x0, eps, TIMES), predict.ideal(x0, eps, TIMES)
    target = predict.to_v(ideal, x_t, TIMES)
    view = View(
        None,
        SimpleNamespace(t=TIMES),
        v=predict.to_v(ideal.clone(), x_t, TIMES),
        target=target,
        x=None,
        taps={},
    )
    assert float(FlowMatchingTerm(torch.ones_like)(view).max()) == 0
    assert torch.allclose(predict.to_x(ideal, x_t, TIMES), x0, atol=1e-5)
    floor = getattr(filler, "floor", 0.0)
    above = floor <= TIMES
    # regular at both ends: no nan, no pole
    assert torch.allclose(target[above], (eps - x0)[above], atol=1e-4)
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


class Bump(slots.WeightFiller):
    """A user's filler that computes by itself."""

    kind = "bump"
    height: float = 2.0

    def __call__(self, t):
        return 1 + self.height * t * (1 - t)


class BuiltBump(Bump):
    """A user's filler of the older form: what `build` returns computes."""

    kind = "built_bump"

    def build(self, ctx):
        return lambda t: 1 + self.height * t * (1 - t)


@pytest.mark.parametrize("own", [Bump(), BuiltBump()], ids=str)
def test_a_users_filler_computes_by_itself_or_builds_what_computes(own, tiny):
    weight = build(put(tiny(), "flow.weight", own)).terms["flow_matching"].weight
    assert torch.equal(weight(TIMES), 1 + 2 * TIMES * (1 - TIMES))


@pytest.mark.parametrize(
    ("base", "method", "count"),
    [
        (slots.TimeFiller, "__call__", 1),
        (slots.WeightFiller, "__call__", 1),
        (slots.PredictFiller, "ideal", 3),
        (slots.PredictFiller, "to_v", 3),
        (slots.PredictFiller, "to_x", 3),
        (slots.GuideFiller, "__call__", 3),
    ],
)
def test_a_method_that_a_users_filler_lacks_is_named(base, method, count):
    with pytest.raises(BadInput, match=f"Mine defines no `{method}`"):
        getattr(type("Mine", (base,), {"__module__": __name__})(), method)(*[TIMES] * count)


def test_jits_times_are_jits(tiny):
    """JiT draws z ~ N(P_mean, P_std) with -0.8 and 0.8, t = sigmoid(z), and mixes t x + (1 - t)
    noise: 1 - t is ours."""
    for recipe in ("spark", "pocket_64" if "pocket_64" in CATALOG.recipes else "pocket"):
        flow = parse(f"{recipe} + jit", CATALOG, ["flow.time.shift=3.0"]).run.flow
        u, z = normal_numbers()
        noise = 1 - 1 / (1 + torch.exp(-(-0.8 + 0.8 * z)))
        assert torch.allclose(flow.time.build(None)(u).double(), noise.flip(0), atol=1e-5)
        assert float(noise.median()) == pytest.approx(0.69, abs=0.001)
        assert flow.predict == XPrediction(floor=0.05)


def test_placed_times_are_sd3s():
    """pi(t; m, s) = exp(-(logit t - m)^2 / 2 s^2) / (s sqrt(2 pi) t (1 - t)), equation 19 of SD3,
    by its integral."""
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
    run = tiny(
        "spark + logit_normal_time(mean=1.0)",
        "flow.time=logit_normal(uniform_share=0.3, shift=2.0)",
    )
    assert (
        run.flow.time == LogitNormal(uniform_share=0.3, shift=2.0, mean=1.0, deviation=0.6)
        and run.sample.shift == 1.0
    )
    assert tiny("spark + shifted_time + logit_normal_time") == tiny(
        "spark + logit_normal_time + shifted_time"
    )


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_min_snr_knows_the_noise_scale(scale):
    """min(SNR, gamma) on the error of x0, SNR = (1 - t)^2 / (s t)^2, and that error is t times the
    error of v."""
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
    assert (
        abs(float(LogitNormal(uniform_share=0.0, shift=3.0).build(None)(u).median()) - 0.75) < 2e-3
    )


def test_shifted_time_moves_the_sampler_too_and_keeps_the_uniform_share(tiny):
    run = tiny("spark + shifted_time(k=2.0)", "flow.time=logit_normal(uniform_share=0.3)")
    assert run.flow.time == LogitNormal(uniform_share=0.3, shift=2.0) and run.sample.shift == 2.0


def test_uniform_times_keep_the_runs_shift(tiny, cache):
    """One change, not two: a shifted recipe stays shifted, and a lever that shifts composes in
    either order."""
    run = tiny("spark + uniform_time", "flow.time.shift=3.0", "sample.shift=3.0")
    assert run.flow.time == UniformTime(shift=3.0) and run.sample.shift == 3.0
    assert CATALOG.levers["uniform_time"]().witness(assemble(run, 0, System(), Feed(run, 0, cache)))
    one, other = (
        tiny("spark + uniform_time + shifted_time"),
        tiny("spark + shifted_time + uniform_time"),
    )
    assert one == other and one.flow.time == UniformTime(shift=3.0) and one.sample.shift == 3.0
    ladder = phases(tiny("spark + uniform_time + shifted_time + resolution_ladder"))
    assert [phase.run.flow.time.k for phase in ladder] == [1.5, 3.0]


@pytest.mark.parametrize(
    ("width", "waist"), [(1792, 256), (3584, 512), (768, 112), (128, 16), (96, 16), (32, 8)]
)
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
        ("pocket + jit + shifted_time", "different values of flow.time.shift: 3.0 or 1.0"),
        ("pocket + shifted_time + jit", "different values of flow.time.shift: 1.0 or 3.0"),
        ("pocket + logit_normal_time(uniform_share=1)", "none is left to be placed"),
        ("pocket + edm_weight(sigma_data=0)", "at least 0.001"),
        ("pocket + edm_noise(sigma_data=1e-300)", "at least 0.001"),
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
    assert (
        pixels.tokens == latents.tokens
        and pixels.encode.codec == Pixels()
        and pixels.model.patch == 8
    )
    assert tiny("spark + pixels + bottleneck") == tiny("spark + bottleneck + pixels")


@pytest.mark.parametrize(
    "text",
    [
        "edm_noise(mean=10, deviation=10)",
        "edm_noise(sigma_data=0.001)",
        "edm_weight(sigma_data=0.001)",
        "edm_precondition(sigma_data=0.001)",
        "logit_normal_time(mean=10, deviation=10)",
        "logit_normal_time(mean=-10, uniform_share=0.99, shift=1000)",
    ],
)
def test_a_lever_is_seen_at_the_ends_of_its_range(text, tiny, cache):
    """Where fp32 has few numbers left: whatever a range allows must be trained."""
    run = tiny(f"spark + {text}")
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    require_witness(parse(f"spark + {text}", CATALOG).levers, built)
    losses = built.step(*built.feed.at(0), built.weights(0))
    assert losses.total.isfinite()


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
    assert torch.equal(
        plain, backbone(x_t, t, text, size=torch.tensor([[8.0, 8.0]]).expand(2, 2)).pred
    )
    assert not torch.equal(
        plain, backbone(x_t, t, text, size=torch.tensor([[16.0, 8.0]]).expand(2, 2)).pred
    )


def test_export_refuses_what_no_pipeline_of_diffusers_can_draw():
    run = pocket_pixels()
    assert (
        pipeline_of(run) == "PRXPixelPipeline"
        and pipeline_of(put(run, "flow.predict", Velocity())) == "PRXPipeline"
    )
    for other in (
        put(run, "flow.predict", XPrediction(floor=0.1)),
        put(run, "flow.predict", Preconditioned()),
        parse("pocket + x_prediction", CATALOG).run,
        parse("pocket", CATALOG, ["flow.noise_scale=2.0"]).run,
    ):
        with pytest.raises(BadInput, match="no pipeline of diffusers"):
            pipeline_of(other)
