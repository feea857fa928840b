"""The path, predictions, times, draws and the sampler."""

import math

import numpy as np
import torch

from fulcrum.spec.slots import Subset, Uniform
from fulcrum.training.flow import fillers as path
from fulcrum.training.flow import noise as keyed_noise
from fulcrum.training.flow.fillers import CFG, EARLIEST, LogitNormal, Velocity, XPrediction
from fulcrum.training.flow.noise import Draws
from fulcrum.training.flow.sampling import ListeningDenoiser, euler, grid, midpoint


def draws(**changes):
    given = {
        "seed": 0,
        "time": LogitNormal(),
        "shape": (2, 4, 4),
        "drop_text": 0.1,
        **changes,
    }
    return Draws(**given)


def test_draws_do_not_depend_on_batching():
    made = draws(needs={"keep": Subset(16, 8), "own": Uniform(3)})
    whole = made.at(100, 12)
    parts = [made.at(100, 5), made.at(105, 7)]
    for name in ("t", "eps", "drop_text", "keep"):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(part, name) for part in parts]))
    assert torch.equal(whole.extra["own"], torch.cat([part.extra["own"] for part in parts]))


def test_a_need_of_one_part_changes_no_other_draw():
    plain, more = draws().at(0, 64), draws(needs={"keep": Subset(16, 8)}).at(0, 64)
    assert torch.equal(plain.t, more.t) and torch.equal(plain.eps, more.eps) and plain.keep is None
    assert more.keep.shape == (64, 8) and bool((more.keep.diff(dim=1) > 0).all())


def test_seeds_and_purposes_are_independent():
    one, other = draws().at(0, 512), draws(seed=1).at(0, 512)
    assert not torch.equal(one.t, other.t)
    a, b = (
        keyed_noise.uniform(0, "a", np.arange(4096))[:, 0],
        keyed_noise.uniform(0, "b", np.arange(4096))[:, 0],
    )
    assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.06
    assert float(a.min()) > 0 and float(a.max()) < 1 and abs(float(a.mean()) - 0.5) < 0.02


def test_noise_is_standard_and_scaled():
    eps = draws().at(0, 2000).eps
    assert abs(float(eps.mean())) < 0.02 and abs(float(eps.std()) - 1) < 0.02
    assert torch.allclose(draws(noise_scale=2.0).at(0, 8).eps, 2 * draws().at(0, 8).eps)


def test_times_are_the_published_mixture():
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5).div(200_000).float()
    t = LogitNormal()(u)
    assert float(t.min()) >= EARLIEST and float(t.max()) <= 1
    # 90 % sigmoid(N(0,1)): P(t < 0.2689) = P(z < -1) = 0.1587; 10 % uniform on [0.001, 1]
    expected = 0.9 * 0.158655 + 0.1 * (0.268941 - EARLIEST) / (1 - EARLIEST)
    assert abs(float((t < 0.268941).float().mean()) - expected) < 1e-3
    shifted = LogitNormal(uniform_share=0.0, shift=3.0)(u)
    assert abs(float(shifted.median()) - 0.75) < 1e-3  # S_3(0.5) = 0.75


def test_a_perfect_prediction_has_the_targets_velocity_and_picture():
    x0, eps = torch.randn(6, 2, 4, 4), torch.randn(6, 2, 4, 4)
    t = torch.tensor([0.01, 0.05, 0.3, 0.5, 0.9, 1.0])
    x_t = path.mix(x0, eps, t)
    velocity, clean = Velocity(), XPrediction()
    assert torch.allclose(velocity.to_x(velocity.ideal(x0, eps, t), x_t, t), x0, atol=1e-5)
    assert torch.allclose(clean.to_x(clean.ideal(x0, eps, t), x_t, t), x0)
    assert torch.allclose(clean.to_v(x0, x_t, t)[1:], (eps - x0)[1:], atol=1e-4)
    # below the floor: clamped
    assert float(clean.to_v(x0, x_t, t)[0].abs().max()) < float((eps - x0)[0].abs().max())


def test_the_sampler_follows_a_straight_path_exactly():
    x0, noise = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    for k in (1.0, 3.0):
        assert torch.allclose(euler(lambda x, t: noise - x0, noise, 7, k), x0, atol=1e-5)
        times = grid(7, k)
        assert times[0] == 1 and times[-1] == 0 and bool((times.diff() < 0).all())


def test_guidance_extrapolates_from_the_empty_prompt():
    class Constant(ListeningDenoiser):
        def __call__(self, x_t, t, prompt, path="full"):
            return torch.full_like(x_t, 3.0 if prompt else 1.0)

    denoise, x = Constant(), torch.zeros(1, 1, 2, 2)
    assert float(CFG(scale=2.0)(denoise, x, torch.ones(1)).mean()) == 5.0
    assert float(CFG(scale=1.0)(denoise, x, torch.ones(1)).mean()) == 3.0


def test_the_midpoint_is_of_second_order():
    """dx/dt = x from t = 1 to 0: half the step leaves a quarter of the error, of Euler's half."""

    def error(solve, steps):
        return abs(
            float(solve(lambda x, t: x, torch.ones(1, 1, dtype=torch.float64), steps, 1.0))
            - math.exp(-1)
        )

    assert 3.7 < error(midpoint, 20) / error(midpoint, 40) < 4.3
    assert 1.9 < error(euler, 20) / error(euler, 40) < 2.1
    assert error(midpoint, 10) < error(euler, 20), "for as many passes"


def test_the_midpoint_never_asks_for_the_end():
    asked = []
    midpoint(lambda x, t: asked.append(float(t[0])) or x, torch.ones(1, 1), 4, 3.0)
    assert len(asked) == 8 and min(asked) > 0 and max(asked) == 1
