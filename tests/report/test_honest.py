"""What makes a verdict honest is on the page: failures, floors, single seeds, shrunken headlines,
what is exploratory."""

from __future__ import annotations

import csv
import io
import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from fulcrum.cli.study import _summary
from fulcrum.judge import figures as arm_marks
from fulcrum.judge import figures as curve_figure
from fulcrum.judge import figures as difference_figure
from fulcrum.judge import figures as range_figure
from fulcrum.judge import page, sentences
from fulcrum.judge import page as markdown_text
from fulcrum.judge import schema as certainty
from fulcrum.judge import schema as number
from fulcrum.judge import sections as ranking
from fulcrum.judge import sentences as claim_sentences
from fulcrum.judge import sentences as run_facts
from fulcrum.judge import tables as table
from fulcrum.judge.schema import StudyResult

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_honest.py")))
PRIMARY = FAKE["PRIMARY"]


@pytest.fixture(scope="module")
def honest() -> StudyResult:
    return StudyResult.model_validate(FAKE["honest_study"]())


@pytest.fixture(scope="module")
def text(honest: StudyResult) -> str:
    return page.render(honest).replace(page.NO_BREAK, " ")


def with_effect(arm: str, metric: str = PRIMARY, **change: Any) -> StudyResult:
    study = FAKE["honest_study"]()
    next(row for row in study["effects"] if (row["arm"], row["metric"]) == (arm, metric)).update(
        change
    )
    return StudyResult.model_validate(study)


def arm_of(result: StudyResult, name: str) -> Any:
    return next(arm for arm in result.arms if arm.name == name)


def row_of(result: StudyResult, name: str) -> ranking.Row:
    return next(
        row
        for group in ranking.ranking(result).groups
        for row in group.rows
        if row.arm.name == name
    )


def test_what_failed_is_an_outcome_beside_the_verdict_with_its_reason(
    honest: StudyResult, text: str
) -> None:
    assert row_of(honest, "tread").remarks[:2] == [
        "2 of 6 seeds failed",
        "4 pairs cannot be decided (p ≥ 0.12): 2 more seeds can",
    ]
    assert row_of(honest, "contrastive_flow").verdict == "failed"
    assert (
        "Seeds 2, 5: the loss was not finite after 18,432 images" in text
        and "8 cells failed" in text
    )
    assert (
        "the 4 that are compared survived, and survivors alone never make an arm better, nor a tie"
        in text
    )
    assert "4 of 6 pairs" in sentences.answer(honest, arm_of(honest, "tread"))
    assert "Failed: Contrastive flow (6 of 6 seeds failed)." in sentences.headlines(honest)[0]
    assert "none of 6 seeds finished" in sentences.answer(
        honest, arm_of(honest, "contrastive_flow")
    )


def test_the_command_prints_an_arm_of_which_nothing_is_left(honest: StudyResult) -> None:
    printed = {line.split()[0]: line for line in _summary(honest).splitlines()}
    assert "nothing to compare  n=0  failed" in printed["contrastive_flow"]
    assert "+0.0401 [+0.0310, +0.0492]  n=6  p=0.031  better" in printed["repa"]


def test_a_mean_curve_is_of_the_seeds_that_did_not_fail(honest: StudyResult) -> None:
    drawn = curve_figure.curves(honest, honest.primary)
    assert drawn is not None
    means = {
        node.find("title").text: node.attrib["d"].count("L")
        for node in ET.fromstring(drawn).iter("path")
    }
    assert means["TREAD, mean"] == means["REPA, mean"] == 7 and means["Contrastive flow, mean"] == 1


def test_seeds_that_are_missing_are_offered_with_the_command(
    honest: StudyResult, text: str
) -> None:
    assert row_of(honest, "min_snr").remarks == [
        "5 pairs cannot be decided (p ≥ 0.062): one more seed can"
    ]
    offer = (
        "Too few pairs for TREAD and Min-SNR weights. Give the plan 2 seeds more and run it again;"
        " what is done is kept:"
    )
    assert sentences.more_seeds(honest) == offer
    assert f"{offer} <code>fulcrum study run examples/quick.toml</code>" in text
    assert sentences.more_seeds(honest.model_copy(update={"state": "running"})) == ""


def test_a_baseline_at_the_floor_is_told_to_train_longer_and_never_called_a_tie() -> None:
    result = with_effect("ema", verdict="not learned")
    answer = sentences.answer(result, arm_of(result, "ema"))
    assert answer.startswith(
        "Averaged weights: the baseline has not learned this yet: train longer."
    )
    assert "as good as" not in answer
    assert (
        "has not learned this yet (attribute accuracy): train longer. Not compared until then:"
        " Averaged weights." in (sentences.headlines(result)[0])
    )
    assert '<span class="chip early">not learned</span>' in page.render(result)
    # not "73 % of the way"
    assert "it has not learned this yet" in range_figure.standing(result, result.primary)


@pytest.mark.parametrize(
    "better, floors, ceiling, expected",
    [
        (
            "higher",
            {"noise": 0.2, "grey": 0.05, "another scene": 0.31},
            0.95,
            "73 % of the way from another scene's",
        ),
        (
            "higher",
            {"noise": 0.8},
            0.95,
            "is no better than noise (0.800): it has not learned this yet",
        ),
        ("higher", {"noise": 0.2}, None, "is better than noise (0.200)"),
        (
            "lower",
            {"noise": 1.6, "grey": 1.2},
            0.2,
            "42 % of the way from a grey picture (1.20) to real pictures (0.20)",
        ),
    ],
)
def test_the_baseline_stands_between_floor_and_ceiling(
    better: str, floors: Any, ceiling: Any, expected: str
) -> None:
    study = FAKE["honest_study"]()
    study["metrics"][0].update(better=better, floors=floors, ceiling=ceiling)
    result = StudyResult.model_validate(study)
    assert expected in range_figure.standing(result, result.primary)
    drawn = range_figure.bar(result, result.primary)
    assert drawn is not None
    root = ET.fromstring(drawn)
    bounds = [
        float(node.attrib["x1"]) for node in root.iter("line") if node.attrib["class"] == "bound"
    ]
    here = next(
        float(node.attrib["x1"]) for node in root.iter("line") if node.attrib["class"] == "zero"
    )
    assert len(bounds) == len(floors) + (ceiling is not None)
    learned = "not learned" not in expected
    # worse is left, whatever the sign
    assert (here > bounds[0]) == learned and (ceiling is None or here < bounds[-1])


def test_floors_ceiling_and_the_second_judge_are_on_page_and_card(
    honest: StudyResult, text: str
) -> None:
    assert (
        "<dt>floor: noise</dt><dd>0.2</dd>" in text
        and "<dt>ceiling: real pictures</dt><dd>0.95</dd>" in text
    )
    # below the ranking, and on the metric's card
    assert text.count("the two judges correlate at 0.98") == 2
    assert "noise gets 0.2 and a grey picture gets 0.05." in text
    plain = StudyResult.model_validate(FAKE["RICH"]["rich_study"]())
    assert range_figure.bar(plain, plain.primary) is None and 'class="range"' not in page.render(
        plain
    )


def test_every_seed_is_a_dot_and_one_beyond_the_picture_an_arrow(honest: StudyResult) -> None:
    strip = ET.fromstring(row_of(honest, "repa").strip)
    dots = [node for node in strip.iter("circle") if node.attrib["class"].startswith("seed")]
    desc = strip.find("desc")
    assert (
        len(dots) == 6
        and desc is not None
        and desc.text is not None
        and desc.text.count("seed") == 6
    )
    arm, base = arm_of(honest, "repa").finals(PRIMARY), honest.baseline.finals(PRIMARY)
    order = sorted(arm, key=lambda seed: arm[seed] - base[seed])
    places = [float(node.attrib["cx"]) for node in dots]
    assert order == sorted(arm, key=lambda seed: places[seed])
    study = FAKE["honest_study"]()
    arm_cells = next(arm for arm in study["arms"] if arm["name"] == "repa")["cells"]
    arm_cells[3]["final"] = {**arm_cells[3]["final"], PRIMARY: -40.0}
    wild = ET.fromstring(row_of(StudyResult.model_validate(study), "repa").strip)
    assert [
        node.find("title").text for node in wild.iter("path") if node.find("title") is not None
    ] == ["seed 3: −40.8"]


def test_warnings_and_unlike_machines_stand_beside_the_verdict(
    honest: StudyResult, text: str
) -> None:
    assert row_of(honest, "muon").remarks == ["5 of 6 seeds agree, one is 13 margins off"]
    assert row_of(honest, "repa").remarks == ["2 of 6 pairs ran on unlike machines"]
    assert "<li>5 of 6 seeds agree, one is 13 margins off</li>" in text
    assert (
        "AMD EPYC 7763, AVX2, torch 2.13.0 (58 cells); Intel Xeon 8375C, AVX-512, torch 2.13.0 (2"
        " cells)" in text
    )


def test_what_is_exploratory_has_no_badge_and_is_explained(honest: StudyResult, text: str) -> None:
    badges = re.findall(r'<span class="chip \w+">([^<]*)</span>', text)
    assert "exploratory" not in badges and '<span class="explore">exploratory</span>' in text
    rows = [row for row in honest.effects if not row.exploratory]
    assert {row.metric for row in rows} == {PRIMARY} and {row.unit for row in rows} == {"images"}
    assert "where nothing is true, some of so many intervals still miss zero" in text
    assert (
        row_of(honest, "muon").other.startswith("+0.014 [")
        and "At equal time: +0.014 [+0.008, +0.020] (exploratory)" in text
    )
    joint = with_effect("repa", "frechet", exploratory=False, verdict="better")
    assert certainty.question(joint).startswith(
        "The plan's question is every metric, in one joint test over arms and metrics"
    )
    plain = page.render(StudyResult.model_validate(FAKE["RICH"]["rich_study"]()))
    assert "exploratory" not in plain


def test_the_headline_says_shrunken_sizes_and_the_measured_ones_beside(
    honest: StudyResult, text: str
) -> None:
    (words,) = sentences.headlines(honest)
    assert words.startswith(
        "REPA (about +0.034, measured +0.040), Muon (about +0.023, measured +0.027)"
    )
    assert "Short captions (about −0.18, measured" in words
    assert "picked out for being large" in text
    answer = sentences.answer(honest, arm_of(honest, "repa"))
    assert "about +0.034 (measured +0.040 [+0.031, +0.049])" in answer
    # a tie was not picked out
    assert "about" not in sentences.answer(honest, arm_of(honest, "ema"))
    assert row_of(honest, "repa").change == "+0.040 [+0.031, +0.049]"
    assert "about" not in sentences.headlines(with_effect("repa", shrunk=None))[0].split(",")[0]


def test_a_small_p_beside_an_interval_with_zero_is_explained() -> None:
    result = with_effect("min_snr", n=6, p_adjusted=0.031, verdict="inconclusive")
    assert "p 0.031; the interval holds zero, and a verdict asks both." in sentences.answer(
        result, arm_of(result, "min_snr")
    )


def test_one_level_is_printed_everywhere_the_plans() -> None:
    study = FAKE["honest_study"]()
    study["plan"]["alpha"] = 0.1
    result = StudyResult.model_validate(study)
    for text in (page.render(result), markdown_text.markdown(result)):
        assert "[90 % interval]" in text.replace("\\", "") and "95 %" not in text
    assert certainty.tie_level(result) == "80 %"
    study["plan"]["alpha"] = 0.025
    assert certainty.level(StudyResult.model_validate(study)) == "97.5 %"


@pytest.mark.parametrize(
    "verdict, why, expected",
    [
        (
            "not comparable",
            "it was made for a lever with other settings",
            "Not held against it: it was made for a lever",
        ),
        ("opposite here", "", "the other direction, in a scaled-down setting"),
        ("opposite here", "on other features, at 32 px", "on other features, at 32 px"),
        ("contradicted", "", "in the same setting, not the direction that was claimed"),
    ],
)
def test_a_claim_is_told_in_its_levers_section_only(verdict: str, why: str, expected: str) -> None:
    study = FAKE["honest_study"]()
    muon = next(arm for arm in study["arms"] if arm["name"] == "muon")
    muon["claims"][0].update(verdict=verdict, why=why, seen="frechet")
    result = StudyResult.model_validate(study)
    assert expected in claim_sentences.seen_of(
        result, arm_of(result, "muon"), arm_of(result, "muon").claims[0]
    )
    text = page.render(result)
    ranked = text[text.index('<table class="board') : text.index('<details id="d-ranking"')]
    assert verdict not in ranked and "FID" not in ranked and f">{verdict}</span>" in text


def test_the_page_says_what_was_run(honest: StudyResult, text: str) -> None:
    assert (
        run_facts.changed(honest)
        == "optim.lr=0.002, budget.images=60000, sample.steps=24 and 2 more settings"
    )
    assert (
        "encode.text.length=24" in text
        and "the embedded world at 32 px, 60,000 scenes with long captions" in text
    )
    section = text[text.index('id="reproduce-h"') :]
    assert (
        section.index("settings of every arm")
        < section.index("text encoder")
        < section.index("<dt>plan</dt>")
    )
    plain = StudyResult.model_validate(FAKE["RICH"]["rich_study"]())
    assert run_facts.changed(plain) == "" and dict(run_facts.facts(plain))[
        "settings of every arm"
    ].startswith("none")


def test_looks_and_where_an_arm_was_decided() -> None:
    study = FAKE["honest_study"]()
    study["plan"].update(looks=[6, 8, 10], spending=[0.031, 0.041, 0.05], seeds=list(range(10)))
    ends = {
        "ema": "decided at 6 of 10 pairs",
        "tread": "1 of 6 seeds failed; undecided at 6 of 10 pairs: it goes on to 8",
    }
    for row in (
        one for one in study["effects"] if one["metric"] == study["plan"]["primary_metric"]
    ):
        row["note"] = ends.get(row["arm"], "")
    result = StudyResult.model_validate(study)
    assert (
        certainty.looks(result)
        == "decides at 6, 8 and 10 pairs, having spent at most 0.031, 0.041, 0.05 of the error by"
        " then"
    )
    assert "decided at 6 of 10 pairs" in row_of(result, "ema").remarks
    assert "undecided at 6 of 10 pairs: it goes on to 8" in row_of(result, "tread").remarks
    decided = next(row for row in result.effects if row.arm == "ema")
    # as the judge noted it, and once
    assert certainty.trust(result, decided).count("Decided at 6 of 10 pairs.") == 1
    assert "6 to 10 paired seeds, 60,000 images each" in page.render(result)


def test_a_trend_that_changes_its_sign_is_crossing() -> None:
    study = FAKE["RICH"]["scaled_study"]()
    study["trends"][0]["verdict"] = "crossing"
    text = page.render(StudyResult.model_validate(study))
    assert '<span class="chip open">crossing</span>' in text and "changes its sign" in text


def test_an_arm_on_another_arm_is_compared_with_that_one() -> None:
    study = FAKE["honest_study"]()
    muon = next(arm for arm in study["arms"] if arm["name"] == "muon")
    muon.update(against="repa", label="Muon on REPA")
    result = StudyResult.model_validate(study)
    arm, repa = arm_of(result, "muon"), arm_of(result, "repa")
    assert (
        "compared with REPA" in row_of(result, "muon").remarks
        and row_of(result, "repa").verdict == "better"
    )
    assert sentences.answer(result, arm).startswith("Muon on REPA is better than REPA: ")
    assert "of REPA's images" in sentences.targets(result, arm)[0]
    first = repa.finals(PRIMARY)[0]
    strip = ET.fromstring(row_of(result, "muon").strip).find("desc")
    assert (
        strip is not None
        and f"seed 0 {number.change(arm.finals(PRIMARY)[0] - first, None, None)}" in str(strip.text)
    )
    pairs = difference_figure.pairs(result, arm, result.primary)
    assert pairs is not None and ">REPA</text>" in pairs and arm_marks.colour(result, repa) in pairs
    check = page.render(result)
    assert check.count('<article aria-labelledby="lever-h-') == 9


def test_csv_and_markdown_tell_the_same(honest: StudyResult) -> None:
    rows = list(csv.DictReader(io.StringIO(table.csv_text(honest))))
    by = {(row["arm"], row["metric"], row["unit"]): row for row in rows}
    tread, muon = by["tread", PRIMARY, "images"], by["muon", PRIMARY, "images"]
    assert (tread["planned"], tread["failed"], tread["n"]) == ("6", "2", "4") and tread[
        "seed_2"
    ] == ""
    assert muon["warnings"] == "5 of 6 seeds agree, one is 13 margins off" and float(
        muon["shrunk"]
    ) < float(muon["mean"])
    assert (
        by["muon", "frechet", "images"]["exploratory"] == "True" and muon["exploratory"] == "False"
    )
    words = markdown_text.markdown(honest).replace("\\", "")
    for sentence in (
        "2 of 6 seeds failed",
        "## Failed",
        "the loss was not finite",
        "73 % of the way",
        "REPA (about +0.034, measured +0.040)",
        "settings of every arm: optim.lr=0.002",
        "Give the plan 2 seeds more",
        "some of so many intervals still miss zero",
    ):
        assert sentence in words, sentence
