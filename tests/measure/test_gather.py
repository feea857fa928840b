"""Gatherings: any order, any split, constant memory; and the limit of the Fréchet distance for many
pictures."""

import numpy as np
import pytest
import torch

from fulcrum.measure.features import kept as features
from fulcrum.measure.features.extractor import Moments
from fulcrum.measure.features.kept import GroupedMoments, Rows
from fulcrum.measure.metrics.base import WIDE, Distance, RowDistance
from fulcrum.measure.metrics.distances import (
    DISTANCES,
    Coverage,
    Density,
    Frechet,
    FrechetLimit,
    K,
    MMDPublished,
    balls,
    count,
)
from fulcrum.measure.metrics.frechet import (
    GROUPS,
    HALVES,
    FrechetDistance,
    distances,
    frechet,
    intercept,
)

D = 12


def normal(seed: int, n: int, d: int = D, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) + shift


def gathered(metric: Distance, rows: torch.Tensor, reference: bool = False):
    gathering = metric.gather(rows.shape[1], reference)
    gathering.update(rows, np.arange(len(rows)))
    return gathering


@pytest.mark.parametrize("metric", DISTANCES, ids=lambda metric: metric.name)
@pytest.mark.parametrize("d", [D, 300, 600])
def test_order_and_split_leave_no_trace(metric: Distance, d: int) -> None:
    """Width 300 and 600 take the Gram side, 12 the moments; 600 is wide."""
    rows, reference = normal(1, 200, d, 0.2), gathered(metric, normal(2, 250, d), True)
    whole = metric.compute(gathered(metric, rows), reference)
    mixed = metric.gather(d, False)
    for part in torch.randperm(200, generator=torch.Generator().manual_seed(0)).split(7):
        mixed.update(rows[part], part.numpy())
    assert mixed.n == 200
    assert metric.compute(mixed, reference) == whole
    assert whole[1] <= whole[0] <= whole[2]


@pytest.mark.parametrize("metric", [Frechet(), FrechetLimit()], ids=lambda metric: metric.name)
@pytest.mark.parametrize("d", [D, 600])
def test_folded_moments_give_the_distance_of_the_rows(
    metric: Distance, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, around = normal(1, 1500, d, 0.2), normal(2, 1400, d)
    exact = metric.compute(gathered(metric, rows), gathered(metric, around, True))
    monkeypatch.setattr(features, "HELD", 100 * d)
    pictures, reference = metric.gather(d, False), metric.gather(d, True)
    for part in torch.randperm(1400, generator=torch.Generator().manual_seed(0)).split(70):
        pictures.update(rows[part], part.numpy())
        reference.update(around[part], part.numpy())
    pictures.update(rows[1400:], np.arange(1400, 1500))
    assert pictures.rows is None and reference.rows is None
    assert metric.compute(pictures, reference) == pytest.approx(exact, rel=1e-6)


def test_moments_take_constant_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "HELD", 2000 * D)
    moments = GroupedMoments(D, GROUPS)
    for part in range(400):
        moments.update(normal(part, 50), np.arange(50 * part, 50 * part + 50))
        assert moments.held.n <= (2000 if moments.folded is None else 256)
    assert moments.n == 20_000 and moments.rows is None
    whole = Moments(D)
    for part in moments.moments():
        whole.merge(part)
    every = torch.cat([normal(part, 50) for part in range(400)]).double()
    torch.testing.assert_close(whole.compute().cov, torch.cov(every.T), rtol=1e-9, atol=1e-12)


def test_an_image_counts_once() -> None:
    kept_rows = Rows(D)
    kept_rows.update(normal(1, 4), np.array([0, 1, 2, 3]))
    kept_rows.update(normal(2, 2), np.array([2, 9]))
    with pytest.raises(ValueError, match=r"images \[2\] came more than once"):
        _ = kept_rows.rows
    with pytest.raises(ValueError, match="NaN or infinity"):
        kept_rows.update(torch.full((1, D), torch.nan), np.array([5]))
    with pytest.raises(ValueError, match="with B ids"):
        kept_rows.update(normal(1, 3, D + 1), np.arange(3))


def test_the_halves_form_a_design() -> None:
    assert len(HALVES) == 14
    for triple in [(0, 1, 2), (0, 3, 5), (2, 4, 7)]:
        assert sum(set(triple) <= set(half) for half in HALVES) == 1
    assert all(tuple(sorted(set(range(GROUPS)) - set(half))) in HALVES for half in HALVES)


def test_subsets_by_gram_equal_subsets_by_moments() -> None:
    rows, around = normal(1, 120, 40, 0.3), Moments.of(normal(2, 400, 40)).compute()
    parts = [torch.arange(0, 120, 2), torch.arange(30)]
    by_gram = FrechetDistance(around).to_parts(rows, parts)
    assert by_gram == pytest.approx(
        [frechet(Moments.of(rows[part]).compute(), around) for part in parts], rel=1e-7
    )


def test_a_line_is_extrapolated_exactly() -> None:
    assert intercept(
        [800, 700, 701, 400, 400],
        [5 + 10 / 800, 5 + 10 / 700, 5 + 10 / 701, 5 + 9 / 400, 5 + 11 / 400],
    ) == pytest.approx(5.0)


def test_the_limit_covers_the_truth_where_the_distance_is_biased() -> None:
    """Truth by formula: N(shift, 1) against a reference of exactly that covariance. 60 sets of 400
    in 24 dimensions."""
    d, n, shift = 24, 400, 0.15
    around = Moments.of(normal(0, 200_000, d)).compute()
    metric, inside, plain, limits = FrechetLimit(), 0, [], []
    reference = gathered(metric, normal(0, 200_000, d), True)
    truth = frechet(Moments.of(normal(1, 400_000, d, shift)).compute(), around)
    for seed in range(60):
        pictures = gathered(metric, normal(100 + seed, n, d, shift))
        value, low, high = metric.compute(pictures, reference)
        limits.append(value)
        inside += low <= truth <= high
        plain.append(Frechet().compute(pictures, reference)[0])
    bias, left = np.mean(plain) - truth, np.mean(limits) - truth
    assert bias > 0.3 * truth and abs(left) < 0.1 * bias
    assert 0.87 <= inside / 60 <= 1.0


def test_value_and_limit_share_one_computation_where_it_is_dear() -> None:
    pictures, reference = (
        gathered(Frechet(), normal(seed, 100, WIDE), seed == 2) for seed in (1, 2)
    )
    limit = FrechetLimit().compute(pictures, reference)
    kept = pictures.made["distances"]
    around = FrechetDistance(Moments.of(normal(2, 100, WIDE)).compute())
    assert Frechet().compute(pictures, reference)[0] == distances(pictures, around, False).whole
    assert pictures.made["distances"] is kept and limit[1] < limit[0] < limit[2]
    pictures.update(normal(3, 50, WIDE), np.arange(100, 150))
    assert Frechet().compute(pictures, reference)[0] != kept[1].whole


def test_density_and_coverage_by_the_definition() -> None:
    x, y = normal(1, 90, 5, 0.4).double(), normal(2, 70, 5).double()
    fellow = torch.cdist(y, y).fill_diagonal_(torch.inf).sort(dim=1).values[:, K - 1]
    inside = torch.cdist(x, y) <= fellow  # (90, 70)
    counts = count(x, balls(y), groups=6)
    assert counts.density() == pytest.approx(float(inside.sum()) / (K * 90))
    assert counts.coverage() == pytest.approx(float(inside.any(0).double().mean()))
    kept = torch.arange(90) % 6 != 2
    assert counts.density(2) == pytest.approx(float(inside[kept].sum()) / (K * int(kept.sum())))
    assert counts.coverage(2) == pytest.approx(float(inside[kept].any(0).double().mean()))
    with pytest.raises(ValueError, match="more than 5 reference rows"):
        balls(y[:5])
    # as the others do: groups without a picture have no value
    for metric in (Density(), Coverage()):
        with pytest.raises(ValueError, match="at least 64 generated rows, found 2"):
            metric.compute(gathered(metric, normal(1, 2)), gathered(metric, normal(2, 70)))


def test_what_density_and_coverage_see() -> None:
    reference = gathered(Coverage(), normal(2, 500))
    fair, few = (
        gathered(Coverage(), normal(1, 500)),
        gathered(Coverage(), normal(1, 16).repeat(32, 1)),
    )
    far = gathered(Coverage(), normal(3, 500, shift=4.0))
    assert Coverage().compute(few, reference)[2] < Coverage().compute(fair, reference)[1]
    assert Density().compute(far, reference)[2] < Density().compute(fair, reference)[1]


def test_fp32_is_enough_for_the_published_form() -> None:
    """sigma 10 puts every kernel value within 1 % of one: fp32 keeps the difference because it
    computes k - 1."""
    from fulcrum.measure.metrics.distances import kernel_sums, published, self_sum, unit_norm

    x, y = unit_norm(normal(1, 600, WIDE, 0.5)), unit_norm(normal(2, 500, WIDE, 0.52))
    exact = published(kernel_sums(x, y, self_sum(y, 10.0), 10.0))
    pictures, reference = gathered(MMDPublished(), x.float()), gathered(MMDPublished(), y.float())
    assert MMDPublished().compute(pictures, reference)[0] == pytest.approx(
        exact, rel=1e-4, abs=1e-5
    )


def test_a_metric_of_rows_gets_its_interval_by_leaving_groups_out() -> None:
    class MeanGap(RowDistance):
        name = label = "mean_gap"
        estimator = "distance of means"

        def value(self, pictures, reference):
            return float((pictures.mean(0) - reference.mean(0)).norm())

    own, around = (
        gathered(MeanGap(), normal(1, 300, shift=1.0)),
        gathered(MeanGap(), normal(2, 300)),
    )
    value, low, high = MeanGap().compute(own, around)
    assert low < value < high and value == pytest.approx(D**0.5, rel=0.1)
