"""Other people's implementations on the same features: torchmetrics, and scipy's square root as
pytorch-fid uses it."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
import torch

from fulcrum.measure.features.extractor import Gaussian, Moments
from fulcrum.measure.features.kept import Rows
from fulcrum.measure.metrics.distances import (
    KID,
    Frechet,
    PolynomialKernel,
    kernel_sums,
    self_sum,
    unbiased,
)
from fulcrum.measure.metrics.frechet import frechet, frechet_of_rows

kid = pytest.importorskip("torchmetrics.image.kid")
fid = pytest.importorskip("torchmetrics.image.fid")


def rows(seed: int, n: int, d: int, scale: float = 1.0) -> torch.Tensor:
    """Non-negative and correlated, as pooled activations are."""
    generator = torch.Generator().manual_seed(seed)
    mix = (
        torch.randn(d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / d**0.5
    )
    return (torch.randn(n, d, generator=generator, dtype=torch.float64) @ mix * scale).relu()


def by_torchmetrics(a: Gaussian, b: Gaussian) -> float:
    return float(fid._compute_fid(a.mean, a.cov, b.mean, b.cov))


def by_sqrtm(a: Gaussian, b: Gaussian, offset: float = 0.0) -> float:
    """pytorch-fid: with 1e-6 on the diagonals where the product is singular."""
    eye = offset * np.eye(len(a.mean))
    product = scipy.linalg.sqrtm((a.cov.numpy() + eye) @ (b.cov.numpy() + eye))
    gap = float((a.mean - b.mean).square().sum())
    return gap + float(a.cov.trace() + b.cov.trace()) - 2 * float(np.trace(product).real)


@pytest.mark.parametrize(("n", "d"), [(300, 32), (1500, 600)])
def test_frechet_agrees_where_the_covariance_is_regular(n: int, d: int) -> None:
    """600 is wide enough for LAPACK's symmetric reduction, 32 is not."""
    a, b = Moments.of(rows(1, n, d)).compute(), Moments.of(rows(2, n, d, 1.1)).compute()
    assert frechet(a, b) == pytest.approx(by_torchmetrics(a, b), rel=1e-6)
    if d < 100:
        assert frechet(a, b) == pytest.approx(by_sqrtm(a, b), rel=1e-6)


def test_frechet_with_fewer_rows_than_features() -> None:
    """Where covariances are singular the judges are the ones that drift, and the Gram side knows
    the truth.

    The product has d - n eigenvalues that should be zero and are +-1e-17 by rounding. A square root
    lifts each to about 4e-9 (or makes it imaginary, and then its real part is dropped): some
    hundred of them add up to 1e-6. The Gram matrix has no such eigenvalues. Its own truth: rotate
    the rows into the n + m - 2 directions that they span, where both covariances are small and
    nothing is left over.
    """
    a, b = rows(1, 40, 200), rows(2, 50, 200, 1.1)
    first, second = Moments.of(a).compute(), Moments.of(b).compute()
    ours = frechet_of_rows(a, b)
    assert ours == pytest.approx(frechet_of_rows(b, a), rel=1e-10)
    assert ours == pytest.approx(frechet(first, second), rel=1e-6)
    assert ours == pytest.approx(by_torchmetrics(first, second), rel=1e-4)
    assert ours == pytest.approx(by_sqrtm(first, second), rel=1e-4)
    together = torch.cat([a, b])
    _, values, turn = torch.linalg.svd(together - together.mean(0), full_matrices=False)
    turn = turn[: int((values > 1e-9).sum())].T  # (200, 89)
    assert ours == pytest.approx(frechet_of_rows(a @ turn, b @ turn), rel=1e-8)
    offset = by_sqrtm(first, second, 1e-6)
    # pytorch-fid's offset widens the overlap of the two, so that its distance is a little smaller
    assert offset < ours


def test_kid_equals_torchmetrics_on_all_rows() -> None:
    x, y = rows(1, 300, 24).float(), rows(2, 300, 24, 1.2).float()
    ours = unbiased(kernel_sums(x, y, self_sum(y, PolynomialKernel()), PolynomialKernel()))
    assert ours == pytest.approx(float(kid.poly_mmd(x.double(), y.double())), rel=1e-9)
    fast = unbiased(
        kernel_sums(
            x, y, self_sum(y, PolynomialKernel(), fast=True), PolynomialKernel(), 4, fast=True
        )
    )
    assert fast == pytest.approx(ours, rel=1e-4)


def test_kid_equals_torchmetrics_in_the_mean_of_subsets() -> None:
    """The original averages random subsets: the same expectation, more noise. Ours lies within that
    noise."""
    x, y = rows(1, 400, 24).float(), rows(2, 400, 24, 1.3).float()
    generator = torch.Generator().manual_seed(5)
    subsets = [
        float(
            kid.poly_mmd(
                x[torch.randperm(400, generator=generator)[:100]].double(),
                y[torch.randperm(400, generator=generator)[:100]].double(),
            )
        )
        for _ in range(100)
    ]
    pictures, reference = Rows(24), Rows(24)
    pictures.update(x, np.arange(400))
    reference.update(y, np.arange(400))
    value, low, high = KID().compute(pictures, reference)
    assert low < value < high
    assert (
        abs(np.mean(subsets) - value)
        < 3 * np.std(subsets) / np.sqrt(len(subsets)) + (high - low) / 2
    )
    # the standard error of all pairs is far below one subset's
    assert np.std(subsets) > 2 * (high - low) / 4


def test_the_metric_is_what_torchmetrics_says() -> None:
    metric = Frechet()
    pictures, reference = metric.gather(16, False), metric.gather(16, True)
    x, y = rows(1, 200, 16).float(), rows(2, 300, 16, 1.2).float()
    pictures.update(x, np.arange(200))
    reference.update(y, np.arange(300))
    value, low, high = metric.compute(pictures, reference)
    judge = by_torchmetrics(Moments.of(x).compute(), Moments.of(y).compute())
    assert value == pytest.approx(judge, rel=1e-6) and low < value < high


@pytest.mark.parametrize("mean", [0, 100, 3000])
@pytest.mark.parametrize("fast", [False, True], ids=["fp64", "fp32"])
def test_kid_of_features_far_from_zero(mean: int, fast: bool) -> None:
    """Rows of whole numbers, so that Python's integers know the answer exactly: (x y + d)^3 over
    all pairs, then / d^3."""
    d, rng = 512, np.random.default_rng(0)
    x, y = (
        rng.integers(-8, 9, (64, d)) + mean,
        rng.integers(-9, 10, (80, d)) + mean + rng.integers(0, 2, d),
    )

    def total(a: np.ndarray, b: np.ndarray, same: bool) -> int:
        cubes = ((a @ b.T).astype(object) + d) ** 3
        return int(cubes.sum() - (np.diagonal(cubes).sum() if same else 0))

    n, m = len(x), len(y)
    exact = (
        float(
            Fraction(total(x, x, True), n * (n - 1))
            + Fraction(total(y, y, True), m * (m - 1))
            - Fraction(2 * total(x, y, False), n * m)
        )
        / d**3
    )
    a, b = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    found = unbiased(
        kernel_sums(a, b, self_sum(b, PolynomialKernel(), fast), PolynomialKernel(), 4, fast)
    )
    assert found == pytest.approx(exact, rel=1e-5 if fast else 1e-9)
