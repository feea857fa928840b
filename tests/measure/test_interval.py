"""Intervals: they must be as wide as repeated measurement says."""

import numpy as np
import pytest
import torch

from fulcrum.measure.features.extractor import Moments
from fulcrum.measure.features.kept import Rows
from fulcrum.measure.metrics.base import (
    GROUPS,
    answered,
    bootstrap_shares,
    jackknife,
    within_shares,
)
from fulcrum.measure.metrics.distances import (
    Coverage,
    Density,
    Frechet,
    FrechetLimit,
    kernel_sums,
    median_bandwidth,
    self_sum,
    unbiased,
)
from fulcrum.measure.metrics.frechet import FrechetDistance

WIDTH = 2 * 2.0395134464  # of a 95 % Student interval with 31 degrees, in standard errors


def test_jackknife_of_a_mean_is_the_standard_error() -> None:
    values = np.random.default_rng(0).standard_normal(GROUPS)
    low, high = jackknife(values.mean(), [np.delete(values, k).mean() for k in range(GROUPS)])
    assert high - low == pytest.approx(WIDTH * values.std(ddof=1) / np.sqrt(GROUPS), rel=1e-9)
    with pytest.raises(ValueError, match="at least 2"):
        jackknife(1.0, [1.0])


def test_a_share_ends_at_its_bounds() -> None:
    assert within_shares(0.99, 0.9325, 1.0475) == (0.99, 0.9325, 1.0) and within_shares(
        0.01, -0.1, 0.2
    ) == (0.01, 0.0, 0.2)
    assert within_shares(0.5, 0.4, 0.6) == (0.5, 0.4, 0.6)
    generator, both = torch.Generator().manual_seed(0), []
    for _ in range(2):
        both.append(Rows(4))
        both[-1].update(
            torch.randn(128, 4, generator=generator, dtype=torch.float64), np.arange(128)
        )
    raw = Coverage().compute(*both)
    assert raw[2] > 1, "this case must need the cut"
    assert answered(Coverage(), "coverage", *both) == (*raw[:2], 1.0)
    assert answered(Density(), "density", *both) == Density().compute(*both)  # may well be above 1


def test_jackknife_is_as_wide_as_repeats() -> None:
    """Sixty generated sets of 256 rows: the interval's standard error equals the scatter of the
    values within 25 %."""
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(1000, 8, generator=generator, dtype=torch.float64)
    distance, sigma = FrechetDistance(Moments.of(reference).compute()), median_bandwidth(reference)
    own, group = self_sum(reference, sigma), torch.arange(256) % GROUPS
    found: dict[str, list[tuple[float, float]]] = {"frechet": [], "mmd": []}
    for _ in range(60):
        rows = 1.2 * torch.randn(256, 8, generator=generator, dtype=torch.float64) + 0.4
        value, whole = distance.to_rows(rows), Moments.of(rows)
        left = [
            distance.to(whole.without(Moments.of(rows[group == g])).compute())
            for g in range(GROUPS)
        ]
        low, high = jackknife(value, left)
        found["frechet"].append((value, (high - low) / WIDTH))
        sums = kernel_sums(rows, reference, own, sigma, GROUPS)
        low, high = jackknife(unbiased(sums), [unbiased(sums, g) for g in range(GROUPS)])
        found["mmd"].append((unbiased(sums), (high - low) / WIDTH))
    for name, pairs in found.items():
        values, errors = np.array(pairs).T
        assert errors.mean() == pytest.approx(values.std(ddof=1), rel=0.25), name


def test_bootstrap_of_shares() -> None:
    rng = np.random.default_rng(0)
    asked = np.full((500, 1), 4, dtype=np.int64)
    # the four attributes of an image go together
    right = 4 * (rng.random((500, 1)) < 0.7).astype(np.int64)
    low, high = bootstrap_shares(right, asked)
    assert high[0] - low[0] == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 500), rel=0.1)
    assert np.array_equal(bootstrap_shares(right, asked)[0], low)  # keyed


def test_all_right_is_not_certainty() -> None:
    """100 of 100: the exact bound is 0.025^(1/100) = 0.964, where a bootstrap alone says [1, 1]."""
    asked = np.ones((100, 2), dtype=np.int64)
    right = np.stack([np.ones(100), np.zeros(100)], axis=1).astype(np.int64)
    low, high = bootstrap_shares(right, asked)
    assert (low[0], high[0]) == pytest.approx((0.025 ** (1 / 100), 1.0))
    assert (low[1], high[1]) == pytest.approx((0.0, 1 - 0.025 ** (1 / 100)))


def gathered_moments(rows: torch.Tensor):
    pictures = Frechet().gather(rows.shape[1], reference=False)
    pictures.update(rows, np.arange(len(rows)))
    return pictures


def test_heavy_tails_are_named_where_the_interval_covers_too_little() -> None:
    """Student's t with three degrees has no fourth moment: no interval from the pictures themselves
    can cover."""
    rng = np.random.default_rng(0)
    around = FrechetDistance(Moments.of(torch.from_numpy(rng.standard_normal((2000, 8)))).compute())

    def sets(heavy: bool):
        for _ in range(60):
            scale = np.sqrt(rng.chisquare(3, (256, 1)) / 3) if heavy else 1.0
            yield torch.from_numpy(rng.standard_normal((256, 8)) / scale).float()

    for heavy in (False, True):
        intervals, cautions = [], []
        for rows in sets(heavy):
            whole = Moments.of(rows)
            parts = [whole.without(Moments.of(rows[k::GROUPS])) for k in range(GROUPS)]
            value = around.to(whole.compute())
            intervals.append(
                (value, *jackknife(value, [around.to(part.compute()) for part in parts]))
            )
            cautions.append(Frechet().caution(gathered_moments(rows)))
        mean = np.mean([value for value, _, _ in intervals])
        covered = np.mean([low <= mean <= high for _, low, high in intervals])
        named = np.mean([caution is not None for caution in cautions])
        assert (covered < 0.75 and named > 0.9) if heavy else (covered > 0.9 and named == 0), (
            heavy,
            covered,
            named,
        )
        assert not heavy or "heavy tails" in str(cautions)


def test_the_limit_says_when_there_are_too_few_pictures_for_its_line() -> None:
    """Equal Gaussians in 64 dimensions: the limit of 2 d pictures lies far below the true zero,
    that of 8 d near it."""
    generator = torch.Generator().manual_seed(0)
    reference = Frechet().gather(64, reference=True)
    reference.update(torch.randn(4096, 64, generator=generator), np.arange(4096))
    few, enough = (gathered_moments(torch.randn(n, 64, generator=generator)) for n in (128, 512))
    assert (
        FrechetLimit().compute(few, reference)[2] < -0.5
        and abs(FrechetLimit().compute(enough, reference)[0]) < 0.5
    )
    assert (
        "128 pictures of 64 features" in str(FrechetLimit().caution(few))
        and FrechetLimit().caution(enough) is None
    )
    assert Frechet().caution(few) is None
