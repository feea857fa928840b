"""The sections that need a study of their own."""

import runpy
from pathlib import Path

import pytest

from fulcrum.advice import decisions as measured_rows
from fulcrum.judge.schema import StudyResult
from tools.evidence import sections as study_sections
from tools.evidence.page import files

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
TABLE, Row, result, study = (FAKE[name] for name in ("TABLE", "Row", "result", "study"))
LINES = runpy.run_path(str(Path(__file__).with_name("page_lines.py")))
plain = LINES["plain"]


def test_sections_are_there_with_their_studies_and_named_where_they_are_missing(studies, page):
    assert (
        "## Again on a larger recipe" in page
        and "Of 3 decisions, 2 are decided in both; 1 of these goes the same way." in page
    )
    assert "Of 3 pairs of decisions, 2 stand in the same order in both." in page
    absent = page.split("## Not run yet")[1].split("##")[0]
    for folder in (
        "replication_bases",
        "resolution",
        "late",
        "stack",
        "fraction",
        "emoji",
        "skeptic_rate",
    ):
        assert f"- `{folder}`:" in absent
    assert "`replication`" not in absent and "replication_pocket" not in absent
    assert (
        "## Resolution dependence" not in page
        and "emoji" not in page.replace(absent, "").lower().split("## what a 32")[0]
    )


@pytest.mark.parametrize(
    ("folder", "title"),
    [
        ("late", "Late decisions"),
        ("stack", "What compounds: one left out"),
        ("stack_at_equal_time", "What compounds: all of it, at equal time"),
        ("emoji", "On pictures that no one here drew: emoji"),
        ("skeptic_guidance", "The skeptic asks"),
        ("something", "Which training decisions matter for following captions?"),
    ],
)
def test_each_study_has_its_section(folder, title):
    made = study_sections.sections({"replication": result(), folder: result(TABLE[:3])})
    assert [section.title for section in made] == [title]
    page = str(files({"replication": result(), folder: result(TABLE[:3])})["README.md"])
    assert f"## {title}" in page


def test_all_questions_of_the_skeptic_stand_in_one_table():
    seeds, rate = (
        study((Row("muon", 0.1, 0.02), Row("ema", 0.001, verdict="tie"))),
        study((Row("muon", -0.05, 0.01),)),
    )
    seeds["title"], rate["title"] = "other seeds", "a constant rate"
    kept = {
        "skeptic_seeds": StudyResult.model_validate(seeds),
        "skeptic_rate": StudyResult.model_validate(rate),
    }
    (section,) = study_sections.sections({"replication": result(), **kept})
    (sheet,) = section.tables
    assert sheet.columns == ("decision", "in the ranking (spark)", "other seeds", "a constant rate")
    muon, ema = sheet.rows
    assert (
        muon[0] == "Muon"
        and muon[1].startswith("+0.124 [")
        and muon[3] == "−0.050 [−0.060, −0.040], worse, 8 pairs"
    )
    assert ema[3] == "–" and ema[2].endswith("tie, 8 pairs")
    assert section.lines[1].startswith("A constant rate: The baseline has 0.")
    assert section.lines[1].endswith(
        ". Of 1 decision, 1 is decided in both; 0 of these go the same way."
    )


def test_a_study_of_another_question_at_several_scales_has_its_own_title():
    made = study((Row("x_prediction", 0.1),))
    made["title"] = "Velocity against x-prediction"
    other = StudyResult.model_validate(made)
    titles = [
        section.title
        for section in study_sections.sections({"resolution": other, "resolution_objective": other})
    ]
    assert titles == ["Resolution dependence", "Velocity against x-prediction"]


def test_gains_that_shrink_in_a_longer_training_are_told():
    longer = study(
        (Row("muon", 0.02, 0.005), Row("repa", 0.03, 0.005), Row("short_captions", -0.9))
    )
    longer["plan"]["images"] *= 2
    kept = {"replication": result(), "skeptic_budget": StudyResult.model_validate(longer)}
    page = str(files(kept)["README.md"])
    assert "With 2 times the images the baseline gets 0." in page
    assert "of 2 gains that were asked again 1 is less than half as large (Muon" in page
    assert "With 2 times the images 1 of 2 gains shrink below half; " in page, "in the conclusion"
    lasting = {"replication": result(), "skeptic_budget": result((Row("muon", 0.12, 0.005),))}
    assert "Gains shrink" not in str(files(lasting)["README.md"])


def test_a_fraction_shows_effects_and_pairs():
    made = study((Row("muon", 0.1), Row("repa", 0.04, label="REPA")))
    both = {**made["arms"][1], "name": "muon + repa", "label": "Muon + REPA", "claims": []}
    made |= {
        "combinations": [both],
        "grids": None,
        "fraction": {
            "levers": ["muon", "repa"],
            "on": [[False, False], [True, True]],
            "rule": "",
            "aliased": "Nothing.",
        },
        "interactions": [
            {
                "a": "muon",
                "b": "repa",
                "metric": "attribute_accuracy",
                "n": 8,
                "mean": -0.02,
                "low": -0.03,
                "high": -0.01,
                "p_adjusted": 0.01,
                "verdict": "worse together",
            }
        ],
    }
    made["interactions"] += [
        made["interactions"][0] | {"metric": made["metrics"][1]["name"], "verdict": "exploratory"}
    ]
    page = str(files({"fraction": StudyResult.model_validate(made)})["README.md"])
    shown = page.split("## What compounds: pairs")[1].split("\n## ")[0]
    assert "Muon × REPA" in shown and "worse together" in shown and "Nothing." in shown
    assert (
        "Muon and REPA are worse together: −0.020" in shown.replace("\u00a0", " ")
        and "exploratory" not in shown
    )
    assert "## The ranking" not in page, (
        "an effect that is a mean over other settings is not the table's"
    )


def test_a_stack_at_equal_time_says_what_time_changes():
    made = study(TABLE[:1])
    slower = made["effects"][0] | {
        "unit": "time",
        "mean": 0.05,
        "low": 0.04,
        "high": 0.06,
        "verdict": "exploratory",
    }
    made["effects"].append(slower | {"exploratory": True})
    made["time_to_target"] = [
        {
            "arm": "muon",
            "metric": "attribute_accuracy",
            "unit": "time",
            "target": 0.76,
            "ratio": 0.8,
            "low": 0.7,
            "high": 0.9,
            "reached": 8,
            "n": 8,
        }
    ]
    (section,) = study_sections.sections({"stack_at_equal_time": StudyResult.model_validate(made)})
    assert "Muon, at equal time: +0.050 [+0.040, +0.060] (exploratory)." in section.lines
    made["effects"] += [
        made["effects"][-1] | {"unit": unit, "note": "read early"} for unit in ("time", "flops")
    ]
    (again,) = study_sections.sections({"stack_at_equal_time": StudyResult.model_validate(made)})
    assert " ".join(again.lines).count("ead early") == 1, "why to doubt is said once"
    assert section.tables[1].rows[0][3] == "0.80× [0.70×, 0.90×]"


def kept_without_cells():
    """As the emoji study is shown where its recipe is not at hand: another metric, lower is better,
    no cells."""
    rows = (
        Row("muon", -0.03, 0.005, "better"),
        Row("x_prediction", 0.05, 0.005, "worse"),
        Row("tread", 0.004, 0.002, "tie"),
        Row("short_captions", 0.02, 0.005, "worse"),
    )
    made = study(rows, baseline="emoji_latents", primary_metric="vgg.lpips", smallest_effect=0.01)
    made["metrics"][0] = made["metrics"][0] | {
        "name": "vgg.lpips",
        "label": "LPIPS by VGG",
        "better": "lower",
        "floors": {},
    }
    made["metrics"][0]["ceiling"] = None
    made["effects"] = [
        row | {"metric": "vgg.lpips"} for row in made["effects"] if row["metric"] != "frechet"
    ]
    made |= {"grids": None, "noise": []}
    for arm in made["arms"]:
        arm |= {"cells": [], "claims": []}
    return StudyResult.model_validate(made)


def test_pictures_that_no_one_here_drew_are_held_against_the_ranking_by_direction_and_order():
    studies = {"replication": result(), "emoji": kept_without_cells()}
    page = plain(str(files(studies)["README.md"]))
    shown = page.split("## On pictures that no one here drew: emoji")[1].split("\n## ")[0]
    assert "Does the ordering hold?" in shown and "on `emoji_latents`" in shown
    assert "Of 4 decisions, 2 are decided in both; 2 of these go the same way." in shown
    assert "Of 6 pairs of decisions, 4 stand in the same order in both." in shown
    assert (
        "The metric is another one, so only directions and order may be compared, no sizes" in shown
    )
    assert "here lPIPS" not in shown and "here LPIPS by VGG (lower is better)" in shown
    first = next(line for line in shown.splitlines() if line.startswith("| Muon"))
    assert first.startswith("| Muon | −0.030") and "| the same |" in first
    assert shown.index("| Muon |") < shown.index("| Tread |") < shown.index("| X prediction |"), (
        "best first, though lower is better"
    )
    opening = page.split("## The ranking")[0]
    assert (
        "On emoji_latents 2 of 2 decided ones go the same way, and 1 more (TREAD) change too little"
        in opening
    )
    assert "Again on emoji_latents (LPIPS by VGG, lower is better): Muon" in page
    assert "`emoji`" not in page.split("## Not run yet")[1].split("##")[0]
    rows = {row["lever"]: row for row in measured_rows.rows({"emoji": kept_without_cells()}, 3)}
    assert rows["muon"]["recipe"] == "emoji_latents" and rows["muon"]["verdict"] == "better"
