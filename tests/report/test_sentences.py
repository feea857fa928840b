"""Sentences and numbers: right sign, fitting digits, nothing hidden."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from fulcrum.judge import schema as certainty
from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge import sentences as claim_sentences
from fulcrum.judge.page import render
from fulcrum.judge.schema import StudyResult

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_study.py")))


def study_with(**change: Any) -> StudyResult:
    """The fake study where the first effect (short captions, primary metric) is replaced."""
    study = FAKE["fake_study"]()
    study["effects"][0].update(change)
    return StudyResult.model_validate(study)


@pytest.mark.parametrize(
    "mean, low, high, expected",
    [
        (-0.21, -0.25, -0.17, "−0.21 [−0.25, −0.17]"),
        (0.0, -0.001, 0.001, "0.0000 [−0.0010, +0.0010]"),
        (1234.0, 1200.0, 1268.0, "+1,234 [+1,200, +1,268]"),
        (0.5, None, None, "+0.5"),
        (None, None, None, "–"),
        (-0.0004, -0.4, 0.4, "0.0 [−0.4, +0.4]"),
        (-0.0322, -0.063, -0.0014, "−0.032 [−0.063, −0.001]"),
        (0.3, 0.0, 0.6, "+0.30 [0.00, +0.60]"),
    ],
)
def test_change(mean: float | None, low: float | None, high: float | None, expected: str) -> None:
    assert number.change(mean, low, high) == expected


@pytest.mark.parametrize(
    "value, expected",
    [
        (0.02, "0.02"),
        (20.93, "20.9"),
        (0.000914, "0.000914"),
        (0.0, "0"),
        (-3.0, "−3"),
        (100.0, "100"),
        (None, "–"),
    ],
)
def test_plain(value: float | None, expected: str) -> None:
    assert number.plain(value) == expected


@pytest.mark.parametrize(
    "value, expected",
    [(20_000, "20k"), (1.5e6, "1.5M"), (3e15, "3e15"), (-0.25, "−0.25"), (0, "0")],
)
def test_short(value: float, expected: str) -> None:
    assert number.short(value) == expected


@pytest.mark.parametrize(
    "seconds, expected",
    [(8, "8 s"), (421, "7 min 1 s"), (1200, "20 min"), (7260, "2 h 1 min"), (-3, "0 s")],
)
def test_duration(seconds: float, expected: str) -> None:
    assert number.duration(seconds) == expected


def test_the_answer_of_the_brief() -> None:
    result = study_with(mean=-0.21, low=-0.25, high=-0.17, n=6, p_adjusted=0.03, verdict="worse")
    text = sentences.answer(result, result.arms[1])
    assert (
        text
        == "Short captions are worse: attribute accuracy −0.21 [−0.25, −0.17], 6 pairs, p 0.03."
    )


def test_too_few_pairs_are_never_hidden() -> None:
    result = study_with(n=5, p_adjusted=0.0625, verdict="inconclusive")
    assert "5 pairs cannot be decided (p ≥ 0.062): one more seed can" in sentences.answer(
        result, result.arms[1]
    )
    assert not any(
        "cannot be decided" in sentence for sentence in certainty.trust(result, result.effects[0])
    ), "said twice"
    six = study_with(n=6, verdict="inconclusive")
    assert "cannot be decided" not in sentences.answer(six, six.arms[1])


@pytest.mark.parametrize("seeds, expected", [(5, "6 are the fewest that can"), (6, "")])
def test_too_few_seeds_are_told_beside_the_headline(seeds: int, expected: str) -> None:
    study = FAKE["fake_study"]()
    study["plan"]["seeds"] = list(range(seeds))
    result = StudyResult.model_validate(study)
    assert (expected in certainty.visible(result)) and (
        "whatever is found" in render(result)
    ) == bool(expected)


def test_a_target_that_is_not_reached_is_told_once_and_with_its_metric() -> None:
    study = FAKE["fake_study"]()
    row = {
        "arm": study["arms"][1]["name"],
        "metric": study["plan"]["primary_metric"],
        "target": 0.5,
        "reached": 0,
        "n": 6,
        "ratio": None,
        "low": None,
        "high": None,
    }
    study["time_to_target"] = [{**row, "unit": unit} for unit in ("images", "time", "flops")]
    result = StudyResult.model_validate(study)
    assert sentences.targets(result, result.arms[1]) == [
        "0 of 6 seeds reach attribute accuracy 0.5, where the baseline ends, counted in images,"
        " time or FLOPs."
    ]


@pytest.mark.parametrize(
    "label, expected",
    [
        ("Muon", "is"),
        ("Short captions", "are"),
        ("Contrastive loss", "is"),
        ("Muon + TREAD", "are"),
        ("Muon (fast steps)", "is"),
    ],
)
def test_verb(label: str, expected: str) -> None:
    assert sentences.verb(label) == expected


def test_every_verdict_gets_a_sentence_even_an_unknown_one() -> None:
    for verdict in ("better", "worse", "tie", "inconclusive", "censored"):
        result = study_with(verdict=verdict)
        verb = "differ from the baseline too little to matter" if verdict == "tie" else "are "
        assert sentences.answer(result, result.arms[1]).startswith(f"Short captions {verb}")
    assert "are censored" in sentences.answer(result, result.arms[1])


def claimed_study(**change: Any) -> StudyResult:
    """Muon, better on the primary metric, with one published claim about FID that our Fréchet
    distance does not show."""
    study = FAKE["fake_study"]()
    (muon,) = (arm for arm in study["arms"] if arm["name"] == "muon")
    muon["claims"] = [
        {
            "metric": "fid",
            "change": -2.65,
            "scope": "256 px",
            "source": "a paper",
            "seen": "frechet",
            "verdict": "contradicted",
            **change,
        }
    ]
    for row in study["effects"]:
        if row["arm"] == "muon":
            worse = row["metric"] == "frechet"
            row.update(
                mean=1.2,
                low=0.9,
                high=1.5,
                verdict="worse" if worse else "better",
                claim_verdict="contradicted" if worse else None,
            )
    return StudyResult.model_validate(study)


def test_a_claim_says_which_metric_it_is_about_and_what_was_seen_on_it() -> None:
    result = claimed_study()
    (muon,) = (arm for arm in result.arms if arm.name == "muon")
    sentence = claim_sentences.seen_of(result, muon, muon.claims[0])
    assert (
        sentence
        == "Our Fréchet distance stands for FID (lower is better): +1.20 [+0.90, +1.50], worse: in"
        " the same setting, not the direction that was claimed. The ranking asks another metric,"
        " attribute accuracy, on which Muon is better."
    )


def test_a_claim_about_a_metric_that_we_do_not_have_says_so() -> None:
    result = claimed_study(metric="human preference", seen="", verdict=None)
    (muon,) = (arm for arm in result.arms if arm.name == "muon")
    assert (
        claim_sentences.seen_of(result, muon, muon.claims[0])
        == "No metric of this study stands for human preference."
    )


def test_what_can_be_seen_is_each_arms_own() -> None:
    study = FAKE["fake_study"]()
    for row, size in zip(
        [row for row in study["effects"] if row["metric"] == "attribute_accuracy"],
        (0.103, 0.02, 0.05),
        strict=True,
    ):
        row["detectable"] = size
    result = StudyResult.model_validate(study)
    assert "0.020 to 0.10, depending on how much a lever scatters" in certainty.visible(result)
    assert any(
        "a true difference of 0.020 would" in sentence
        for sentence in certainty.trust(result, result.effects[3])
    )
