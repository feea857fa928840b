"""The map from pictures to names: found where there is one, chance where there is none, intervals
over concepts."""

import numpy as np
import pytest
import torch

from fulcrum.measure.metrics.means import LADDER, NamedRows, by_concept, fit, ranks


@pytest.fixture(scope="module")
def world():
    """Names with vectors, and features that are a noisy linear picture of them."""
    random = torch.Generator().manual_seed(0)
    vectors = {
        f"name {n}": torch.nn.functional.normalize(torch.randn(12, generator=random), dim=0)
        for n in range(120)
    }
    mix = torch.randn(12, 40, generator=random)

    def seen(first, last, copies=3, noise=0.3):
        names = [f"name {n}" for n in range(first, last) for _ in range(copies)]
        rows = torch.stack([vectors[name] for name in names]) @ mix
        return NamedRows(rows + noise * torch.randn(rows.shape, generator=random), names)

    return vectors, seen


def test_unseen_names_are_found_by_a_map_that_exists(world):
    vectors, seen = world
    namer = fit(seen(0, 60), seen(60, 90), vectors)
    held = {name: vectors[name] for name in (f"name {n}" for n in range(90, 120))}
    rank, first = ranks(namer, seen(90, 120), held)
    assert namer.penalty in LADDER and rank.mean() > 0.97 and first.mean() > 0.6


def test_without_a_map_it_is_chance(world):
    vectors, seen = world
    namer = fit(seen(0, 60), seen(60, 90), vectors)
    held = {name: vectors[name] for name in (f"name {n}" for n in range(90, 120))}
    there = seen(90, 120, copies=20)
    noise = NamedRows(
        torch.randn(there.rows.shape, generator=torch.Generator().manual_seed(1)), there.names
    )
    rank, first = ranks(namer, noise, held)
    assert abs(rank.mean() - 0.5) < 0.05 and first.mean() < 0.08
    same = NamedRows(torch.zeros(4, 40) + namer.mean, there.names[:4])
    assert ranks(namer, same, held)[0] == pytest.approx(np.full(4, 0.5)), (
        "a picture that says nothing is half a rank"
    )


def test_the_interval_counts_concepts_not_pictures():
    random = np.random.default_rng(0)
    names = [f"c{n}" for n in range(40)]
    values = random.random(40)
    low, high = by_concept(values, names)[1:]
    copied = by_concept(np.repeat(values, 5), [name for name in names for _ in range(5)])
    assert copied[0] == pytest.approx(values.mean()) and copied[1:] == pytest.approx((low, high)), (
        "copies add nothing"
    )
    with pytest.raises(ValueError, match="2 of them"):
        by_concept(values, ["one"] * 40)
