"""MMD: against the double loop, unbiased, and what each form can and cannot see (fault A14)."""

import math

import pytest
import torch

from fulcrum.measure.metrics.distances import (
    PUBLISHED_SIGMA,
    kernel_sums,
    median_bandwidth,
    published,
    self_sum,
    unbiased,
    unit_norm,
)


def normal(seed: int, n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def value(x: torch.Tensor, y: torch.Tensor, sigma: float, groups: int = 1) -> float:
    return unbiased(kernel_sums(x, y, self_sum(y, sigma), sigma, groups))


def published_value(x: torch.Tensor, y: torch.Tensor) -> float:
    x, y = unit_norm(x), unit_norm(y)
    return published(kernel_sums(x, y, self_sum(y, PUBLISHED_SIGMA), PUBLISHED_SIGMA))


def textbook(x: torch.Tensor, y: torch.Tensor, sigma: float) -> tuple[float, float]:
    """(unbiased, biased) by the definition, full matrices of differences."""

    def k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.exp(-(a[:, None] - b[None]).square().sum(-1) / (2 * sigma**2))

    n, m, xx, yy, xy = len(x), len(y), k(x, x), k(y, y), k(x, y).mean()
    fair = (xx.sum() - n) / (n * (n - 1)) + (yy.sum() - m) / (m * (m - 1)) - 2 * xy
    return float(fair), float(xx.mean() + yy.mean() - 2 * xy)


@pytest.mark.parametrize("groups", [1, 2, 7])
@pytest.mark.parametrize(("n", "m"), [(40, 33), (301, 270)])
def test_equals_the_textbook(n: int, m: int, groups: int) -> None:
    x, y = normal(1, n, 8) + 0.3, 1.5 * normal(2, m, 8)
    sums = kernel_sums(x, y, self_sum(y, 2.0), 2.0, groups)
    fair, biased = textbook(x, y, 2.0)
    assert unbiased(sums) == pytest.approx(fair, abs=1e-12)
    assert published(sums) == pytest.approx(1000 * biased, abs=1e-9)


def test_leaving_a_group_out_equals_recomputing() -> None:
    x, y = normal(1, 50, 5), normal(2, 41, 5)
    sums = kernel_sums(x, y, self_sum(y, 1.5), 1.5, groups=4)
    for group in range(4):
        kept = x[torch.arange(50) % 4 != group]
        fair, biased = textbook(kept, y, 1.5)
        assert unbiased(sums, leave=group) == pytest.approx(fair, abs=1e-12)
        assert published(sums, leave=group) == pytest.approx(1000 * biased, abs=1e-9)


def test_a_large_common_mean_changes_nothing() -> None:
    x, y = normal(1, 60, 5), normal(2, 60, 5)
    assert value(x + 1e5, y + 1e5, 2.0) == pytest.approx(value(x, y, 2.0), abs=1e-8)


def test_order_changes_nothing() -> None:
    x, y = normal(1, 300, 6), normal(2, 200, 6)
    assert value(x.flip(0), y, 2.0) == pytest.approx(value(x, y, 2.0), abs=1e-13)


def test_unbiased() -> None:
    """Two samples of one distribution give zero on average, below zero half of the time; the
    published form never."""
    y_all = normal(99, 400 * 30, 4).split(30)
    pairs = [(y_all[k], y_all[k + 1]) for k in range(0, 400, 2)]
    fair = torch.tensor([value(x, y, 2.0) for x, y in pairs])
    assert abs(float(fair.mean())) <= 3 * float(fair.std()) / math.sqrt(len(fair))
    assert 0.3 < float((fair < 0).double().mean()) < 0.8
    assert all(published_value(x, y) > 0 for x, y in pairs[:20])


def test_bandwidth_is_the_median_distance() -> None:
    points = torch.tensor([[0.0], [1.0], [10.0]])  # distances 1, 9, 10
    assert median_bandwidth(points) == pytest.approx(9.0)
    many = normal(0, 3000, 4)
    assert median_bandwidth(many) == pytest.approx(float(torch.pdist(many).median()), rel=0.02)
    with pytest.raises(ValueError, match="identical"):
        median_bandwidth(torch.zeros(10, 3))


def test_collapse_is_seen_by_the_median_bandwidth_and_not_by_the_published_form() -> None:
    """A14: a model of only two pictures, with the reference's mean, scores almost perfectly when
    sigma is 10."""
    reference = normal(5, 600, 16) + 3.0
    mean = unit_norm(reference).mean(0)
    away = torch.zeros(16, dtype=torch.float64)
    away[0], away[1] = mean[1], -mean[0]  # orthogonal to the mean
    away *= math.sqrt(1 - float(mean @ mean)) / float(away.norm())
    # unit rows, the same mean, no diversity
    collapsed = torch.stack([mean + away, mean - away]).repeat(300, 1)
    sigma = median_bandwidth(unit_norm(reference))
    healthy = unit_norm(normal(6, 600, 16) + 3.0)
    seen, calm = (
        value(collapsed, unit_norm(reference), sigma),
        abs(value(healthy, unit_norm(reference), sigma)),
    )
    blind, usual = published_value(collapsed, reference), published_value(healthy, reference)
    assert seen > 50 * calm and seen > 0.05
    # of a form that reads 0.09 to 0.98 in the published table
    assert blind < 2 * usual + 0.01 and blind < 0.05


def test_the_published_form_is_a_distance_of_means() -> None:
    """A14: 10 |difference of means|^2 to about 1 %."""
    x, y = unit_norm(normal(1, 500, 16) + 1.0), unit_norm(normal(2, 500, 16) - 0.2)
    assert published_value(x, y) == pytest.approx(
        10 * float((x.mean(0) - y.mean(0)).square().sum()), rel=0.02
    )


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at least 8 generated rows, found 5"):
        kernel_sums(normal(1, 5, 3), normal(2, 9, 3), 1.0, 1.0, groups=4)
    with pytest.raises(ValueError, match="width 3, found width 4"):
        kernel_sums(normal(1, 9, 4), normal(2, 9, 3), 1.0, 1.0)
    with pytest.raises(ValueError, match="exactly zero"):
        unit_norm(torch.zeros(2, 3))
