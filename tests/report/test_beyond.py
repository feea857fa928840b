"""Optional parts of a study: each is shown when it is there, ranked scale by scale, and refused
when names do not agree."""

from __future__ import annotations

import csv
import io
import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fulcrum.judge import figures as arm_marks
from fulcrum.judge import figures as cost_figure
from fulcrum.judge import figures as difference_figure
from fulcrum.judge import page, sentences
from fulcrum.judge import page as markdown_text
from fulcrum.judge import sections as design_tables
from fulcrum.judge import sections as ranking
from fulcrum.judge import tables as table
from fulcrum.judge.schema import StudyResult

RICH = runpy.run_path(str(Path(__file__).with_name("fake_rich.py")))


@pytest.fixture(scope="module")
def rich() -> StudyResult:
    return StudyResult.model_validate(RICH["rich_study"]())


@pytest.fixture(scope="module")
def scaled() -> StudyResult:
    return StudyResult.model_validate(RICH["scaled_study"]())


def test_the_headline_says_who_helped_who_hurt_and_what_is_open(rich: StudyResult) -> None:
    (text,) = sentences.headlines(rich)
    assert text.startswith(
        "REPA (+0.040), Muon (+0.027) and Predict the image (+0.023) improved attribute accuracy. "
        "Short captions (−0.217) and TREAD (−0.053) made it worse."
    )
    assert (
        text.endswith("Undecided: Min-SNR weights.")
        and "less than the 0.02 that would matter" in text
    )


def test_a_dashed_line_is_explained_where_it_is_drawn(rich: StudyResult) -> None:
    study = RICH["rich_study"]()
    for metric in study["metrics"]:
        points = [{"arm": "repa", "cost": 1.17, "mean": 0.82, "front": True}]
        study["pareto"] = [
            *(one for one in study["pareto"] if one["metric"] != metric["name"]),
            *(
                {"metric": metric["name"], "cost": cost, "points": points}
                for cost in ("time_ratio", "flops_ratio")
            ),
        ]
    alone = page.render(StudyResult.model_validate(study))
    assert "The dashed line joins" in page.render(rich)
    assert "Is it worth its cost?" in alone and "The dashed line joins" not in alone


def test_no_arm_falls_out_of_the_headline_whatever_its_verdict(rich: StudyResult) -> None:
    study = RICH["rich_study"]()
    next(row for row in study["effects"] if row["arm"] == "tread")["verdict"] = "censored"
    (text,) = sentences.headlines(StudyResult.model_validate(study))
    assert "Censored: TREAD." in text
    assert all(arm.label in text for arm in rich.compared)


def test_the_ranking_ranks_with_the_same_marks_as_the_figures(rich: StudyResult) -> None:
    made = ranking.ranking(rich)
    (group,) = made.groups
    assert [row.mark for row in group.rows] == ["1", "2", "3", "4", "5", "B", "6", "7", "8", "9"]
    assert made.other == "equal time" and made.seeds and made.ruler is not None
    first = group.rows[0]
    assert (first.arm.name, first.verdict, first.time) == ("repa", "better", "1.17×")
    drawn = cost_figure.pareto(rich, rich.primary)
    assert drawn is not None
    marks = [
        node.text
        for node in ET.fromstring(drawn).iter("text")
        if node.attrib.get("class") == "mark halo"
    ]
    assert set(marks) <= set(rich.marks.values()) and "1" in marks and "B" in marks


def test_a_decided_effect_has_a_full_dot_and_an_open_one_a_ring(rich: StudyResult) -> None:
    for row in ranking.ranking(rich).groups[0].rows:
        kinds = [
            node.attrib["class"].split()[0] for node in ET.fromstring(row.strip).iter("circle")
        ]
        full = "dot" if row.verdict in ("better", "worse") else "ring"
        assert kinds == ([] if row.base else [full, *["seed"] * 6])


def test_a_wild_interval_does_not_squeeze_the_others() -> None:
    study = RICH["rich_study"]()
    next(row for row in study["effects"] if row["arm"] == "ema").update(
        low=-50.0, high=50.0, verdict="inconclusive"
    )
    result = StudyResult.model_validate(study)
    strips = {
        row.arm.name: ET.fromstring(row.strip) for row in ranking.ranking(result).groups[0].rows
    }
    # arrows, cut off
    assert len([n for n in strips["ema"].iter("path") if "open-end" in n.attrib["class"]]) == 2
    dots = {
        name: float(next(root.iter("circle")).attrib["cx"])
        for name, root in strips.items()
        if name != "baseline"
    }
    assert dots["repa"] - dots["short_captions"] > 50


def test_a_study_of_scales_ranks_each_by_itself(scaled: StudyResult) -> None:
    groups = ranking.ranking(scaled).groups
    assert [(group.scale, len(group.rows)) for group in groups] == [
        ("small", 4),
        ("middle", 4),
        ("large", 4),
    ]
    assert [row.mark for row in groups[2].rows] == ["1", "B", "2", "3"]
    assert (
        len({arm_marks.colour(scaled, arm) for arm in scaled.compared if arm.root == "muon"}) == 1
    )
    assert len(sentences.headlines(scaled)) == 3 and sentences.headlines(scaled)[0].startswith(
        "At scale small: Muon (+0.027)"
    )
    assert len(design_tables.trends(scaled)) == 3 and "fades" in page.render(scaled)
    pairs = difference_figure.pairs(scaled, scaled.compared[-1], scaled.primary)
    assert pairs is not None


def test_every_optional_part_is_on_the_page_and_in_markdown(
    rich: StudyResult, scaled: StudyResult
) -> None:
    text = page.render(rich).replace(page.NO_BREAK, " ")
    for sentence in (
        "Muon × REPA",
        "worse together",
        "Time to target",
        "0.71× [0.64×, 0.79×]",
        "the best lies at the edge",
        "Can these metrics be trusted?",
        "sees it (!)",
        "0 of 6 seeds reach attribute accuracy",
        "contradicted",
    ):
        assert sentence in text, sentence
    words = markdown_text.markdown(rich, design_tables.tables(rich))
    for title in ("Interactions", "Time to target", "Learning rates", "What each metric sees"):
        assert f"\n## {title}\n" in words
    assert "\n## Trends\n" in markdown_text.markdown(scaled, design_tables.tables(scaled))
    rows = list(csv.DictReader(io.StringIO(table.csv_text(rich))))
    assert {row["unit"] for row in rows if row["arm"] == "muon"} == {"images", "time"}


def test_a_plain_study_has_none_of_them() -> None:
    text = page.render(StudyResult.model_validate(RICH["SMALL"]["fake_study"]()))
    assert (
        not re.search('id="(scales|interactions|sweeps)"', text) and "Can these metrics" not in text
    )


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda s: s["interactions"][0].update(b="mouon"), "interactions.*found.*mouon"),
        (
            lambda s: s["time_to_target"][0].update(arm="baseline"),
            "time_to_target.*found.*baseline",
        ),
        (lambda s: s["sweeps"][0].update(arm="nobody"), "sweeps.*found.*nobody"),
        (lambda s: s["pareto"][0]["points"][0].update(arm="nobody"), "pareto.*found.*nobody"),
        (lambda s: s["interactions"][0].update(metric="fid"), "interactions.*found.*fid"),
        (lambda s: s["arms"][1].update(scale="huge"), "scale.*found.*huge"),
        (lambda s: s["arms"][1].update(against="nobody"), "against.*found.*nobody"),
        (lambda s: s["probes"]["cells"][0].update(found="maybe"), "worse"),
    ],
)
def test_names_of_optional_parts_must_agree(spoil: Any, message: str) -> None:
    study = RICH["rich_study"]()
    spoil(study)
    with pytest.raises(ValidationError, match=message):
        StudyResult.model_validate(study)


def test_marks_in_a_crowd_keep_apart_and_in_order() -> None:
    points = [(100.0, 50.0), (101.0, 52.0), (103.0, 51.0), (100.0, 200.0), (300.0, 50.0)]
    places = cost_figure._apart(points)
    crowd = [places[k][1] for k in (0, 2, 1)]
    assert (
        crowd == sorted(crowd) and min(b - a for a, b in zip(crowd, crowd[1:], strict=False)) >= 13
    )
    assert places[3][1] == 200.0 and places[4] == (309.0, 50.0)


def test_the_probe_table_is_what_the_measurement_room_dumps() -> None:
    from fulcrum.judge.schema import Probes
    from fulcrum.measure.probe import ProbeTable

    assert set(ProbeTable.model_fields) == set(Probes.model_fields)
