"""EDM's preconditioning, noise law and weight, held against the paper's own table."""

from typing import ClassVar

import pytest
import torch

from fulcrum.data.fillers import World
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.edit import diff, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import apply, parse
from fulcrum.training.build import build
from fulcrum.training.feed import Feed
from fulcrum.training.flow import fillers as path
from fulcrum.training.flow.fillers import (
    EDMLoss,
    EDMNoise,
    Preconditioned,
)
from tests.flow.parts import TIMES, built, normal_numbers, pair


@pytest.mark.parametrize(("s", "n"), [(1.0, 1.0), (0.5, 1.0), (0.5, 2.0)])
def test_preconditioning_is_edms(s, n):
    """Against table 1 of the paper in its own variable, sigma = n t / (1 - t), for x = x0 + sigma
    noise."""
    t = TIMES[(TIMES > 0) & (TIMES < 1)].double()
    x0, eps = (value[: len(t)].double() for value in pair(n))
    x_t, raw = path.mix(x0, eps, t), torch.randn_like(x0)
    sigma, x = path.over(n * t / (1 - t), x0), x_t / path.over(1 - t, x0)
    assert torch.allclose(x, x0 + sigma * (eps / n))  # EDM's own path
    c_skip, c_out = s**2 / (sigma**2 + s**2), sigma * s / (sigma**2 + s**2).sqrt()
    c_in = 1 / (s**2 + sigma**2).sqrt()
    ours = built(Preconditioned(), n, s)
    assert torch.allclose(ours.inputs(x_t, t), c_in * x)
    assert torch.allclose(ours.to_x(raw, x_t, t), c_skip * x + c_out * raw)
    assert torch.allclose(ours.ideal(x0, eps, t), (x0 - c_skip * x) / c_out)
    assert torch.allclose(ours.to_v(raw, x_t, t), (x_t - ours.to_x(raw, x_t, t)) / path.over(t, x0))


def test_preconditioned_inputs_and_targets_have_unit_variance_at_every_time():
    predict, generator = built(Preconditioned(), 2.0, 0.5), torch.Generator().manual_seed(1)
    x0, eps = (
        0.5 * torch.randn(7, 20_000, generator=generator),
        2.0 * torch.randn(7, 20_000, generator=generator),
    )
    for value in (predict.inputs(path.mix(x0, eps, TIMES), TIMES), predict.ideal(x0, eps, TIMES)):
        assert float((value.std(1) - 1).abs().max()) < 0.03


@pytest.mark.parametrize("setting", ["data.source.domain=real", "data.source.domain=synthetic"])
@pytest.mark.parametrize(
    "codec", ["spark", "spark + wide_codec", "spark + aligned_codec", "spark + pixels"]
)
def test_the_spread_of_the_data_is_that_of_what_is_trained_on(codec, setting, tiny, cache):
    """Not a constant: pixels have less than half of what latents have, and a bright world more than
    a dark one."""
    run = tiny(codec, setting)
    measured = float(Feed(run, 0, cache).at(0, 64)[0].x0.std())
    assert run.encode.codec.deviation(run.data.source) == pytest.approx(measured, rel=0.1)
    measured = run.encode.codec.deviation(run.data.source)
    assert used_deviation(run, Preconditioned()) == pytest.approx(measured)
    assert (measured < 0.6) == ("pixels" in codec)
    assert used_deviation(run, Preconditioned(sigma_data=0.7)) == pytest.approx(0.7)


def used_deviation(run, filler):
    """What a built run divides data by, where there is no noise: x_t / s at t = 0."""
    predict = build(put(run, "flow.predict", filler)).predict
    return 1 / float(predict.inputs(torch.ones(1), torch.zeros(1)))


def test_a_deviation_that_nobody_measured_is_asked_for(tiny):
    class Own(World):
        has_scenes: ClassVar[bool] = False  # as a store of the user's

    run = put(tiny("spark + pixels"), "data.source", Own(count=8))
    for name in ("edm_precondition", "edm_noise", "edm_weight"):
        lever = CATALOG.levers[name]
        with pytest.raises(
            BadInput, match=r"the first 8 pictures have 0\.\d\d\): write it as sigma_data"
        ):
            apply(run, (lever(),))
        assert apply(run, (lever(sigma_data=0.4),))
    with pytest.raises(BadInput, match="nobody has measured"):
        build(put(run, "flow.predict", Preconditioned()))


@pytest.mark.parametrize(("s", "n"), [(1.0, 1.0), (0.5, 1.0), (0.4, 2.0)])
def test_edms_noise_law_and_weight_are_edms(s, n):
    """ln sigma ~ N(-1.2, 1.2) for data of deviation 0.5; the loss
    (sigma^2 + s^2) / (sigma s)^2 ||D - x0||^2, table 1."""
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
    predict, weight = built(Preconditioned(), 2.0, 0.5), built(EDMLoss(), 2.0, 0.5)
    x_t, raw = torch.randn(len(TIMES), 8), torch.randn(len(TIMES), 8)
    apart = (predict.to_v(raw + 0.1, x_t, TIMES) - predict.to_v(raw, x_t, TIMES)).square().mean(1)
    assert torch.allclose(apart * weight(TIMES), torch.full_like(TIMES, 0.01), rtol=1e-4)


def test_edm_is_three_single_changes(tiny):
    phrase = parse("spark + edm", CATALOG)
    assert [lever.name for lever in phrase.levers] == [
        "edm_precondition",
        "edm_noise",
        "edm_weight",
    ]
    for lever in phrase.levers:
        assert len(lever.touches) == 1 and len(diff(phrase.base, lever.edit(phrase.base))) == 1
