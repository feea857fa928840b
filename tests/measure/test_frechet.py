"""Fréchet distance: against scipy's matrix square root, against closed forms, and where covariances
are singular."""

import numpy as np
import pytest
import scipy.linalg
import torch

from fulcrum.measure.features.extractor import Gaussian, Moments
from fulcrum.measure.metrics.frechet import FrechetDistance, _congruent, frechet, root


def rows(seed: int, n: int, d: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(d, d, generator=generator, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) @ mix + torch.randn(
        d, generator=generator
    )


def by_sqrtm(a: Gaussian, b: Gaussian) -> float:
    """What pytorch-fid computes, imaginary part dropped."""
    product = scipy.linalg.sqrtm((a.cov @ b.cov).numpy())
    gap = float((a.mean - b.mean).square().sum())
    return gap + float(a.cov.trace() + b.cov.trace()) - 2 * float(np.trace(product).real)


@pytest.mark.parametrize(("n", "d"), [(400, 16), (1000, 64), (90, 64)])
def test_equals_sqrtm_where_regular(n: int, d: int) -> None:
    a, b = Moments.of(rows(1, n, d)).compute(), Moments.of(rows(2, n + 50, d)).compute()
    assert (
        frechet(a, b)
        == pytest.approx(by_sqrtm(a, b), rel=1e-6)
        == pytest.approx(frechet(b, a), rel=1e-9)
    )


def test_closed_form_for_diagonal_covariances() -> None:
    """Independent coordinates: the sum of (difference of means)^2 + (difference of standard
    deviations)^2."""
    a = Gaussian(
        9, torch.tensor([1.0, 2.0]).double(), torch.diag(torch.tensor([4.0, 9.0])).double()
    )
    b = Gaussian(
        9, torch.tensor([0.0, 4.0]).double(), torch.diag(torch.tensor([1.0, 0.0])).double()
    )
    assert frechet(a, b) == pytest.approx(1 + 4 + 1 + 9)


def test_a_copy_is_at_distance_zero() -> None:
    x = rows(3, 300, 32)
    gaussian = Moments.of(x).compute()
    assert abs(frechet(gaussian, gaussian)) <= 1e-9 * float(gaussian.cov.trace())
    assert abs(FrechetDistance(gaussian).to_rows(x.flip(0))) <= 1e-9 * float(gaussian.cov.trace())


@pytest.mark.parametrize("n", [10, 40, 64])
def test_the_gram_side_equals_the_covariance_side(n: int) -> None:
    """With fewer rows than features both covariances of the product are singular; the traces still
    agree.

    The tolerance is looser on the covariance side's account: d - n zero eigenvalues come out as
    rounding, and a square root turns 1e-16 into 1e-8.
    """
    few, distance = rows(1, n, 64), FrechetDistance(Moments.of(rows(2, 500, 64)).compute())
    assert distance.to_rows(few) == pytest.approx(distance.to(Moments.of(few).compute()), rel=1e-6)


def test_a_singular_reference() -> None:
    flat = rows(2, 500, 16)
    flat[:, 3] = flat[:, 5]  # two equal features: Cholesky cannot
    b = Moments.of(flat).compute()
    factor, lower = root(b.cov)
    assert not lower and torch.allclose(factor @ factor.T, b.cov, atol=1e-9)
    a = Moments.of(rows(1, 400, 16)).compute()
    assert frechet(a, b) == pytest.approx(by_sqrtm(a, b), rel=1e-5)


@pytest.mark.parametrize("d", [512, 576, 600])
def test_blocks_equal_the_plain_product(d: int) -> None:
    """Wide features go by blocks (192 rows: three of them, or three and a rest); only the lower
    triangle counts."""
    a, b = Moments.of(rows(1, 700, d)).compute(), Moments.of(rows(2, 700, d)).compute()
    factor = root(b.cov)
    plain = factor.factor.T @ a.cov @ factor.factor
    assert factor.lower and bool((factor.factor.triu(1) == 0).all())
    before = a.cov.clone()
    product = _congruent(a.cov, factor)
    assert float((product - plain).tril().abs().max()) <= 1e-13 * float(plain.abs().max())
    # a reference is asked many times: nothing is worked on in place
    assert torch.equal(a.cov, before)


def test_refusals() -> None:
    good = Moments.of(rows(1, 50, 4)).compute()
    with pytest.raises(ValueError, match="positive semidefinite"):
        frechet(good, Gaussian(50, good.mean, -good.cov))
    with pytest.raises(ValueError, match="width 4, found width 3"):
        FrechetDistance(good).to_rows(torch.zeros(50, 3))
    with pytest.raises(ValueError, match="at least 2 rows"):
        FrechetDistance(good).to_rows(torch.zeros(1, 4))
