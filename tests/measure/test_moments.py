"""Moments: any split and any order give the same mean and covariance."""

import pytest
import torch

from fulcrum.measure.features.extractor import Moments


def rows(n: int = 500, d: int = 12, shift: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    return (
        torch.randn(n, d, generator=generator, dtype=torch.float64)
        @ torch.randn(d, d, generator=generator, dtype=torch.float64)
        + shift
    )


def close(a: Moments, b: Moments, tolerance: float = 1e-12) -> bool:
    x, y = a.compute(), b.compute()
    return (
        x.n == y.n
        and bool((x.mean - y.mean).norm() <= tolerance * y.mean.norm())
        and bool((x.cov - y.cov).norm() <= tolerance * y.cov.norm())
    )


def test_equals_the_textbook() -> None:
    moments = Moments.of(rows()).compute()
    assert torch.allclose(moments.mean, rows().mean(0), rtol=1e-13)
    assert torch.allclose(moments.cov, rows().T.cov(), rtol=1e-12)


@pytest.mark.parametrize("sizes", [[500], [1] * 500, [3, 200, 0, 297]])
def test_any_split(sizes: list[int]) -> None:
    pieces = Moments(12)
    for part in rows().split(sizes):
        pieces.update(part)
    assert close(pieces, Moments.of(rows()))


def test_any_order_and_grouping() -> None:
    order = torch.randperm(500, generator=torch.Generator().manual_seed(1))
    left, right = Moments(12), Moments(12)
    for part in rows()[order[:321]].split(50):
        left.update(part)
    for part in rows()[order[321:]].split(7):
        right.update(part)
    assert close(right.merge(left), Moments.of(rows()))


def test_a_large_mean_does_not_cancel() -> None:
    """Raw second moments in fp64 would lose every digit here: spread 1, mean 1e8."""
    far, near = Moments(12), Moments.of(rows())
    for part in (rows() + 1e8).split(64):
        far.update(part)
    assert torch.allclose(far.compute().cov, near.compute().cov, rtol=1e-5, atol=1e-5)


def test_without_undoes_merge() -> None:
    whole = Moments.of(rows())
    assert close(
        whole.without(Moments.of(rows()[100:150])),
        Moments.of(torch.cat([rows()[:100], rows()[150:]])),
        1e-11,
    )


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at least 2 rows, found 1"):
        Moments.of(rows()[:1]).compute()
    with pytest.raises(ValueError, match="width 12, found width 3"):
        Moments(12).update(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="NaN"):
        Moments.of(torch.full((2, 2), float("nan")))
    with pytest.raises(ValueError, match="1 to 499"):
        Moments.of(rows()).without(Moments.of(rows()))
