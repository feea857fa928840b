"""Verdicts: the whole table of cases, and whole studies with known truth."""

import numpy as np
import pytest

from fulcrum.study.judge.effect import PairedEffect, paired_effect
from fulcrum.study.judge.verdict import Claimed, ClaimVerdict, Verdict, claim_verdict, claimed_direction, judge, verdict


def effect(differences: list[float], name: str = "arm") -> PairedEffect:
    baseline = {seed: 5.0 + seed for seed in range(len(differences))}
    return paired_effect(baseline, {s: baseline[s] + d for s, d in enumerate(differences)}, name=name, metric="m")


UP = effect([1.0, 1.1, 0.9, 1.0, 1.2, 0.8])
SMALL = effect([0.01, 0.02, 0.01, 0.02, 0.01, 0.02])
WIDE = effect([3.0, -2.0, 1.0, -1.0, 2.0, -2.5])


def test_verdict_table() -> None:
    assert verdict(UP, 0.03, better="higher", smallest_effect=0.1) == "better"
    assert verdict(UP, 0.03, better="lower", smallest_effect=0.1) == "worse"
    assert verdict(UP, 0.0625, better="lower", smallest_effect=0.1) == "inconclusive"  # p decides
    assert verdict(WIDE, 0.01, better="lower", smallest_effect=0.1) == "inconclusive"  # the interval decides
    assert verdict(SMALL, 0.03, better="lower", smallest_effect=0.1) == "tie"  # significant, and too small to matter
    assert verdict(SMALL, 0.03, better="lower", smallest_effect=0.0) == "worse"
    assert verdict(WIDE, 1.0, better="lower", smallest_effect=50.0) == "tie"
    assert verdict(effect([0.0] * 6), 1.0, better="lower", smallest_effect=0.0) == "tie"
    with pytest.raises(ValueError, match=">= 0"):
        verdict(UP, 0.03, better="higher", smallest_effect=-1.0)


def test_claimed_direction() -> None:
    assert claimed_direction(-3.32, "lower") == "better" and claimed_direction(3.41, "lower") == "worse"
    assert claimed_direction(-0.1, "higher") == "worse" and claimed_direction(0.0, "lower") == "none"


@pytest.mark.parametrize(("found", "claimed", "expected"), [
    ("better", Claimed("better", "scaled"), "replicated"),
    ("worse", Claimed("worse", "same"), "replicated"),
    ("worse", Claimed("better", "scaled"), "contradicted"),
    ("better", Claimed("none", "same"), "contradicted"),
    ("tie", Claimed("better", "same"), "contradicted"),
    ("tie", Claimed("better", "scaled"), "out of scope"),
    ("tie", Claimed("none", "scaled"), "replicated"),
    ("inconclusive", Claimed("better", "scaled"), "underpowered"),
    ("inconclusive", Claimed("none", "same"), "underpowered"),
    ("better", Claimed("better", "other"), "out of scope"),
    ("inconclusive", Claimed("worse", "other"), "out of scope"),
])  # fmt: skip
def test_claim_table(found: Verdict, claimed: Claimed, expected: ClaimVerdict) -> None:
    assert claim_verdict(found, claimed) == expected


def test_judge_gives_the_promised_row() -> None:
    rng = np.random.default_rng(0)
    short = effect((-2.0 + 0.1 * rng.standard_normal(6)).tolist(), "short_captions")
    muon = effect((1.0 + 0.1 * rng.standard_normal(6)).tolist(), "muon")
    noisy = effect([0.4, -0.9, 0.2, -0.3, 0.8, -0.5], "bf16")
    claims = {"short_captions": Claimed("worse", "scaled"), "bf16": Claimed("worse", "scaled")}
    findings = judge([noisy, short, muon], better="higher", smallest_effect=0.05, claims=claims)
    assert [finding.arm for finding in findings] == ["muon", "bf16", "short_captions"]
    rows = {row["arm"]: row for row in (finding.model_dump() for finding in findings)}
    assert set(rows["muon"]) == {"arm", "metric", "unit", "n", "mean", "low", "high", "correlation", "p_adjusted",
                                 "verdict", "claim_verdict", "note", "detectable"}  # fmt: skip
    assert (rows["short_captions"]["verdict"], rows["short_captions"]["claim_verdict"]) == ("worse", "replicated")
    assert (rows["muon"]["verdict"], rows["muon"]["claim_verdict"]) == ("better", None)
    assert (rows["bf16"]["verdict"], rows["bf16"]["claim_verdict"]) == ("inconclusive", "underpowered")
    with pytest.raises(ValueError, match="not in the family"):
        judge([muon], better="higher", smallest_effect=0.05, claims={"moun": Claimed("better", "same")})


def test_four_pairs_are_inconclusive_however_clear() -> None:
    assert judge([effect([5.0, 5.1, 4.9, 5.0])], better="lower", smallest_effect=0.1)[0].verdict == "inconclusive"


def test_simulated_studies_with_known_truth() -> None:
    """No effect: hardly ever a wrong verdict. Too little power: inconclusive. A large effect: found."""
    rng = np.random.default_rng(3)

    def share(truth: float, wanted: Verdict, smallest: float = 0.0) -> float:
        got = [judge([effect((truth + rng.standard_normal(6)).tolist())], better="higher", smallest_effect=smallest)
               for _ in range(400)]  # fmt: skip
        return sum(findings[0].verdict == wanted for findings in got) / len(got)

    assert share(0.0, "inconclusive") >= 0.93
    assert share(0.5, "inconclusive") >= 0.75
    assert share(4.0, "better") >= 0.95 and share(-4.0, "worse") >= 0.95
    assert share(0.0, "tie", smallest=4.0) >= 0.95
