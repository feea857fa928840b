"""Pooling: what a lever's own numbers, other places, other levers and print are worth, and what
intervals promise."""

import numpy as np
import pytest

from fulcrum.advice.effect_pool import (
    ROBUST,
    ExpectedGain,
    LeverFacts,
    MeasuredLevers,
    Spread,
    clipped,
    differences,
    effect_of,
    estimate_spread,
    expected_from_others,
    family_of,
    pooled,
    scope_of_base,
    updated,
)
from fulcrum.levers.catalog import CATALOG
from tests.advise.fake_measured import row


def effect(arm="muon", change=0.1, half=0.02, **facts):
    return effect_of(row(arm, change, half, "better", **facts), "table", CATALOG)


HERE = effect().scope
ELSEWHERE = {"recipe": "pocket", "base": "pocket"}


def test_the_error_is_the_intervals_and_the_sign_is_the_metrics():
    assert effect().error == pytest.approx(0.02 / 2.3646, rel=1e-3), (
        "Student's, seven degrees of freedom"
    )
    assert effect(metric="frechet").gain == -0.1 and effect(metric="attribute_f1").gain == 0.1


@pytest.mark.parametrize(
    "facts",
    [
        {"alike": False},
        {"verdict": "not learned"},
        {"pairs": 1},
        {"lever": "gone"},
        {"metric": "beauty"},
    ],
)
def test_a_row_that_says_nothing_of_quality_is_left_out(facts):
    assert effect_of(row("muon", 0.1, 0.02, "better") | facts, "table", CATALOG) is None


@pytest.mark.parametrize(
    ("base", "settings", "images", "science", "words"),
    [
        ("spark", (), 19200, HERE.science, []),
        ("spark", (), 25000, HERE.science, []),
        ("spark", (), 40000, HERE.science, ["40,000 images"]),
        ("spark", ("budget.images=60000",), 19200, HERE.science, ["60,000 images"]),
        ("spark + ema", (), 19200, HERE.science, ["beside ema"]),
        ("spark", (), 19200, HERE.science - 1, [f"science {HERE.science - 1}, now {HERE.science}"]),
        ("spark", ("data.size=64",), 19200, HERE.science, ["with data.size=64", "64 tokens"]),
        ("a_recipe_of_mine", (), 19200, HERE.science, ["on a_recipe_of_mine", "tokens not known"]),
    ],
)
def test_every_respect_in_which_a_place_is_another_is_named(base, settings, images, science, words):
    assert differences(scope_of_base(base, settings, images, science, CATALOG), HERE) == words


def test_a_recipe_of_another_science_is_not_described_by_todays():
    scope = scope_of_base("spark", (), None, HERE.science - 1, CATALOG)
    assert (
        scope.tokens is None
        and scope.images is None
        and str(scope) == f"spark (science {HERE.science - 1})"
    )


def test_evidence_from_elsewhere_counts_for_less():
    near, far = (pooled([one], "muon", HERE, 0.1) for one in (effect(), effect(**ELSEWHERE)))
    apart = len(differences(effect(**ELSEWHERE).scope, HERE))
    assert near.mean == pytest.approx(0.1) == far.mean and apart >= 1
    assert far.variance == pytest.approx(near.variance + apart * 0.1**2)
    both = pooled([effect(), effect(change=0.0, **ELSEWHERE)], "muon", HERE, 0.1)
    assert 0.09 < both.mean < 0.1, "what was measured here decides"


def test_two_studies_at_one_place_do_not_count_as_two_places():
    """They share what is particular about it: more pairs there never tell what is here."""
    once, thrice = (pooled([effect(**ELSEWHERE)] * times, "muon", HERE, 0.1) for times in (1, 3))
    apart = len(differences(effect(**ELSEWHERE).scope, HERE))
    assert thrice.variance < once.variance and thrice.variance > apart * 0.1**2


def test_other_settings_are_another_place():
    assert pooled([effect("repa(until=0.5)")], "repa", HERE, 0.1).variance > 0.1**2
    assert pooled([effect("repa(until=0.5)")], "repa(until=0.5)", HERE, 0.1).variance < 1e-3


def test_a_large_effect_is_not_taken_away_by_the_others():
    own, prior = ExpectedGain(-0.7, 0.02**2), ExpectedGain(0.0, 0.02**2)
    assert updated(prior, own).mean == pytest.approx(-0.68), "half-way would be -0.35"
    assert updated(prior, None) is prior


def test_one_wild_effect_says_no_more_about_the_others_than_a_large_one():
    gains = np.array([0.02, -0.03, 0.01, -0.02, -0.7])
    assert (
        clipped(gains)[-1] == pytest.approx(-ROBUST * 1.4826 * 0.02)
        and (clipped(gains)[:4] == gains[:4]).all()
    )


def test_published_signs_and_families_are_learned_from_what_was_measured():
    names = tuple("abcdef")
    signs, families = np.array([1.0, 1, 1, -1, -1, -1]), ("x", "x", "x", "y", "y", "y")
    spread = Spread(0.05, 0.4, 0.05, 6, 0)
    agree = MeasuredLevers(names, 0.05 * signs, np.full(6, 1e-5), signs, families)
    against = agree._replace(gains=-0.05 * signs)
    claimed = LeverFacts(1.0, "z")
    expected = [
        expected_from_others("new", claimed, some, spread).mean for some in (agree, against)
    ]
    assert expected[0] > 0.03 and expected[1] < 0.0, (
        "where print was wrong six times, it is not believed the seventh"
    )
    kin = expected_from_others("new", LeverFacts(0.0, "x"), agree, spread).mean
    assert kin > 0.0 and expected_from_others(
        "new", LeverFacts(0.0, "z"), agree, spread
    ).mean == pytest.approx(0.0)


def test_the_lever_itself_is_left_out():
    family = MeasuredLevers(
        ("a", "b"), np.array([0.5, 0.0]), np.full(2, 1e-6), np.zeros(2), ("x", "x")
    )
    spread = Spread(0.05, 0.5, 0.05, 2, 0)
    assert expected_from_others("a", LeverFacts(0.0, "x"), family, spread).mean == pytest.approx(
        0.0, abs=1e-9
    )


def test_places_that_differ_widen_what_is_expected_elsewhere():
    facts = {name: LeverFacts(0.0, name) for name in ("muon", "repa", "ema")}
    here = [
        effect(name, change) for name, change in (("muon", 0.05), ("repa", -0.05), ("ema", 0.02))
    ]
    same, other = (
        [*here, *(effect(one.arm, one.gain + shift, **ELSEWHERE) for one in here)]
        for shift in (0.0, 0.14)
    )
    calm, wild = (
        estimate_spread(
            {name: [one for one in some if one.lever == name] for name in facts}, facts, HERE
        )
        for some in (same, other)
    )
    assert wild.omega > 1.5 * calm.omega and calm.places == wild.places == 3


def test_intervals_hold_what_they_promise():
    """Levers drawn from the model itself: nine in ten or more of the left-out ones lie inside their
    95 % interval."""
    rng, levers = np.random.default_rng(7), list(CATALOG.levers)[:24]
    inside = total = 0
    for _ in range(6):
        signs = dict(zip(levers, rng.choice([-1.0, 0.0, 1.0], len(levers)), strict=True))
        facts = {name: LeverFacts(signs[name], str(place % 6)) for place, name in enumerate(levers)}
        shared = rng.normal(0.0, 0.03, 6)
        truth = {
            name: 0.025 * signs[name] + shared[place % 6] + rng.normal(0.0, 0.04)
            for place, name in enumerate(levers)
        }
        effects = {
            name: [effect(name, gain + rng.normal(0.0, 0.008), 0.019)]
            for name, gain in truth.items()
        }
        spread = estimate_spread(effects, facts, HERE)
        family = family_of(effects, facts, HERE, spread.omega)
        for name in levers:
            low, high = expected_from_others(name, facts[name], family, spread).interval
            inside, total = inside + (low <= truth[name] <= high), total + 1
    assert 0.9 <= inside / total <= 0.995, f"{inside} of {total}"
