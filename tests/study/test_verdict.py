"""Verdicts: the whole table of cases, and whole studies with known truth."""

import time

import numpy as np
import pytest

from fulcrum.judge.card import Better
from fulcrum.judge.effects import interaction
from fulcrum.judge.statistics import PairedEffect, Verdict, judge, oddities, paired_effect


def effect(differences: list[float], name: str = "arm") -> PairedEffect:
    baseline = {seed: 5.0 + seed for seed in range(len(differences))}
    return paired_effect(
        baseline, {s: baseline[s] + d for s, d in enumerate(differences)}, name=name, metric="m"
    )


UP = effect([1.0, 1.1, 0.9, 1.0, 1.2, 0.8])
SMALL = effect([0.01, 0.02, 0.01, 0.02, 0.01, 0.02])
WIDE = effect([3.0, -2.0, 1.0, -1.0, 2.0, -2.5])


def word(one: PairedEffect, p: float, better: Better, margin: float) -> str:
    """The verdict where the corrected p is known."""
    return judge([one], better=better, smallest_effect=margin, p_values={one.arm: p})[0].verdict


def test_verdict_table() -> None:
    assert word(UP, 0.03, "higher", 0.1) == "better"
    assert word(UP, 0.03, "lower", 0.1) == "worse"
    assert word(UP, 0.0625, "lower", 0.1) == "inconclusive"  # p decides
    assert word(WIDE, 0.01, "lower", 0.1) == "inconclusive"  # the interval decides
    assert word(SMALL, 0.03, "lower", 0.1) == "tie"  # significant, and too small to matter
    assert word(SMALL, 0.03, "lower", 0.0) == "worse"
    assert word(WIDE, 1.0, "lower", 50.0) == "tie"
    assert word(effect([0.0] * 6), 1.0, "lower", 0.0) == "tie"
    with pytest.raises(ValueError, match=">= 0"):
        word(UP, 0.03, "higher", -1.0)


def test_a_tie_asks_the_interval_at_twice_alpha() -> None:
    """An equivalence test at level alpha; before, ties were asked of the wider interval at 1 -
    alpha."""
    row = judge([WIDE], better="lower", smallest_effect=0.0)[0]
    assert (
        row.tie_low is not None
        and row.tie_high is not None
        and row.low < row.tie_low < row.tie_high < row.high
    )
    # from a table
    assert (row.tie_high - row.mean) / (row.high - row.mean) == pytest.approx(2.0150484 / 2.5705818)
    between = (max(abs(row.tie_low), row.tie_high) + max(abs(row.low), row.high)) / 2
    effect = judge([WIDE], better="lower", smallest_effect=between)[0]
    assert effect.verdict == "tie" and effect.margin == between


def test_survivors_alone_speak_only_against_an_arm() -> None:
    """Two of eight seeds failed: what is left is neither better nor a tie; worse it may be."""
    survived = UP.model_copy(update={"planned": 8, "failed": 2})
    rows = [
        judge([survived], better=better, smallest_effect=margin)[0]
        for better, margin in (("higher", 0.1), ("lower", 0.1), ("higher", 50.0))
    ]
    assert [row.verdict for row in rows] == ["inconclusive", "worse", "inconclusive"]
    assert all(row.note == "2 of 8 seeds failed" for row in rows)


def test_an_arm_with_five_pairs_is_offered_one_more_seed() -> None:
    rows = judge(
        [UP, effect([1.0] * 4 + [1.1], "five"), effect([1.0, 1.2], "two")],
        better="higher",
        smallest_effect=0.1,
    )
    by_arm = {row.arm: row for row in rows}
    # the others do not silence it
    assert by_arm["arm"].verdict == "better" and by_arm["arm"].note == ""
    assert by_arm["five"].verdict == "inconclusive"
    assert by_arm["five"].note == "5 pairs cannot reach p ≤ 0.05: one more seed can"
    assert by_arm["two"].note == "2 pairs cannot reach p ≤ 0.05: 4 more seeds can"


def test_a_collapsed_seed_and_skew_are_warned_of() -> None:
    def warned(differences: list[float], margin: float = 0.1) -> tuple[str, ...]:
        return judge([effect(differences)], better="higher", smallest_effect=margin)[0].warnings

    assert warned([0.30, 0.28, 0.32, 0.31, 0.29, -1.0]) == (
        "5 of 6 seeds agree, one is 13 margins off",
    )
    assert warned([0.1, 0.0, 0.2, 0.1, 0.05, 0.1, 0.15, 0.3, 0.9, 0.45, 1.6, 0.0], 5.0) == (
        "the differences are skewed",
    )
    assert warned([0.30, 0.28, 0.32, 0.31, 0.29, 0.33]) == () == warned([0.0] * 6)
    normal = np.random.default_rng(2).standard_normal((2000, 8))
    assert np.mean([bool(oddities(row, 0.0)) for row in normal]) <= 0.08  # rarely without reason


def test_judge_gives_the_promised_row() -> None:
    rng = np.random.default_rng(0)
    short = effect((-2.0 + 0.1 * rng.standard_normal(6)).tolist(), "short_captions")
    muon = effect((1.0 + 0.1 * rng.standard_normal(6)).tolist(), "muon")
    noisy = effect([0.4, -0.9, 0.2, -0.3, 0.8, -0.5], "bf16")
    findings = judge([noisy, short, muon], better="higher", smallest_effect=0.05)
    assert [finding.arm for finding in findings] == ["muon", "bf16", "short_captions"]
    rows = {row["arm"]: row for row in (finding.model_dump() for finding in findings)}
    assert set(rows["muon"]) == {
        "arm",
        "metric",
        "unit",
        "n",
        "mean",
        "low",
        "high",
        "correlation",
        "p_adjusted",
        "verdict",
        "claim_verdict",
        "note",
        "detectable",
        "shrunk",
        "tie_low",
        "tie_high",
        "margin",
        "planned",
        "failed",
        "unlike",
        "exploratory",
        "warnings",
        "codes",
    }
    verdicts = {arm: row["verdict"] for arm, row in rows.items()}
    assert verdicts == {"short_captions": "worse", "muon": "better", "bf16": "inconclusive"}


def test_four_pairs_are_inconclusive_however_clear() -> None:
    assert (
        judge([effect([5.0, 5.1, 4.9, 5.0])], better="lower", smallest_effect=0.1)[0].verdict
        == "inconclusive"
    )


def test_simulated_studies_with_known_truth() -> None:
    """No effect: hardly ever a wrong verdict. Too little power: inconclusive. A large effect:
    found."""
    rng = np.random.default_rng(3)

    def share(truth: float, wanted: Verdict, smallest: float = 0.0) -> float:
        got = [
            judge(
                [effect((truth + rng.standard_normal(6)).tolist())],
                better="higher",
                smallest_effect=smallest,
            )
            for _ in range(400)
        ]
        return sum(findings[0].verdict == wanted for findings in got) / len(got)

    assert share(0.0, "inconclusive") >= 0.93
    assert share(0.5, "inconclusive") >= 0.75
    assert share(4.0, "better") >= 0.95 and share(-4.0, "worse") >= 0.95
    assert share(0.0, "tie", smallest=4.0) >= 0.95


def test_a_large_study_is_judged_in_two_seconds() -> None:
    """25 arms, 12 pairs, 12 metrics; a tenth of a second on a free core."""
    rng = np.random.default_rng(6)
    families = [
        [effect(rng.standard_normal(12).tolist(), f"arm{k}") for k in range(25)] for _ in range(12)
    ]
    begun = time.perf_counter()
    rows = [judge(family, better="higher", smallest_effect=0.5) for family in families]
    assert time.perf_counter() - begun < 2.0 and all(len(family) == 25 for family in rows)


@pytest.mark.parametrize(("failed", "verdict"), [(0, "better together"), (1, "inconclusive")])
def test_survivors_decide_no_interaction(failed, verdict):
    """A fraction's pairs were read off without this rule."""
    base = {seed: 0.0 for seed in range(8)}
    both = {seed: 1.0 + 0.01 * seed for seed in range(8)}
    effect = paired_effect(
        base, both, name="a + b", metric="attribute_f1", planned=8 + failed, failed=failed
    )
    (row,) = judge([effect], better="higher", smallest_effect=0.02)
    row = row.model_copy(update={"verdict": "better"})  # as the survivors alone would say
    assert interaction(row, ("a", "b"), primary=True).verdict == verdict
    assert interaction(row, ("a", "b"), primary=False).verdict == "exploratory"


def test_a_headline_never_leaves_the_interval():
    """With 31 arms and eight pairs SPRINT was told as "about -0.05" beside [-0.32, -0.13]."""
    rng = np.random.default_rng(0)
    loud = [-0.42, -0.12, -0.30, -0.15, -0.33, -0.10, -0.25, -0.17]
    arms = {"loud": loud} | {f"quiet{k}": list(0.01 * rng.standard_normal(8)) for k in range(30)}
    effects = [
        paired_effect(
            dict.fromkeys(range(8), 0.0), dict(enumerate(column)), name=name, metric="m", planned=8
        )
        for name, column in arms.items()
    ]
    (row,) = (
        one for one in judge(effects, better="higher", smallest_effect=0.02) if one.arm == "loud"
    )
    assert row.verdict == "worse" and row.low <= row.shrunk <= row.high < 0.0
