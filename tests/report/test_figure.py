"""Figures are well-formed, accessible SVG, and put the data where it belongs."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from fulcrum.judge import figures as cost_figure
from fulcrum.judge import figures as curve_figure
from fulcrum.judge import figures as difference_figure
from fulcrum.judge.figures import Axis
from fulcrum.judge.schema import StudyResult

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_study.py")))
NASTY = '<script>alert("&")</script>'


def all_figures(result: StudyResult) -> list[Markup]:
    drawn: list[Markup | None] = [curve_figure.losses(result)]
    for metric in result.metrics:
        drawn += [
            difference_figure.effects(result, metric),
            curve_figure.curves(result, metric),
            curve_figure.curves(result, metric, "flops"),
            cost_figure.pareto(result, metric),
            cost_figure.pareto(result, metric, "flops_ratio"),
        ]
        drawn += [difference_figure.pairs(result, arm, metric) for arm in result.arms[1:]]
    return [one for one in drawn if one is not None]


@pytest.fixture(scope="module")
def study() -> StudyResult:
    return StudyResult.model_validate(FAKE["fake_study"]())


def test_figures_parse_and_carry_title_and_description(study: StudyResult) -> None:
    figures = all_figures(study)
    assert len(figures) == 1 + 3 * (5 + 3)
    idents = set()
    for drawn in figures:
        root = ET.fromstring(drawn)
        title, desc = root.find("title"), root.find("desc")
        assert (
            root.attrib["role"] == "img"
            and title is not None
            and desc is not None
            and title.text
            and desc.text
        )
        assert root.attrib["aria-labelledby"] == f"{title.attrib['id']} {desc.attrib['id']}"
        idents.add(title.attrib["id"])
        assert "nan" not in drawn.lower() and "inf" not in "".join(drawn.split("<title")[0])
    assert len(idents) == len(figures)


def test_words_in_a_figure_are_escaped() -> None:
    study = FAKE["fake_study"]()
    study["arms"][1]["label"] = study["metrics"][0]["label"] = NASTY
    for drawn in all_figures(StudyResult.model_validate(study)):
        assert "<script" not in drawn
        ET.fromstring(drawn)


def test_curves_have_a_thin_line_per_seed_and_a_thick_one_per_arm(study: StudyResult) -> None:
    drawn = curve_figure.curves(study, study.primary)
    assert drawn is not None
    kinds = [node.attrib["class"].split()[0] for node in ET.fromstring(drawn).iter("path")]
    assert kinds.count("thin") == 24 and kinds.count("thick") == 4


def test_the_mean_uses_only_points_that_every_started_seed_reached() -> None:
    assert curve_figure._mean([[(1, 1.0, 2.0), (2, 2.0, 3.0)], [(1, 3.0, 4.0)]]) == [(2.0, 3.0)]


def test_a_worse_arm_lies_left_of_zero_when_higher_is_better(study: StudyResult) -> None:
    drawn = difference_figure.effects(study, study.primary)
    assert drawn is not None
    root = ET.fromstring(drawn)
    zero = float(
        next(node for node in root.iter("line") if node.attrib["class"] == "zero").attrib["x1"]
    )
    dots = {
        node.attrib["class"].split()[1]: float(node.attrib["cx"]) for node in root.iter("circle")
    }
    assert dots["arm-1"] < zero < dots["arm-2"]  # short captions, Muon


@pytest.mark.parametrize("higher, expected", [(True, [(1, 3), (3, 5)]), (False, [(1, 3), (2, 2)])])
def test_front(higher: bool, expected: list[tuple[float, float]]) -> None:
    assert cost_figure._front([(2, 2), (1, 3), (3, 5), (1, 3), (4, 5)], higher) == expected


def test_pairs_leave_out_a_seed_that_one_side_lacks() -> None:
    study = FAKE["fake_study"]()
    study["arms"][2]["cells"][3].update(state="failed", final={})
    result = StudyResult.model_validate(study)
    drawn = difference_figure.pairs(result, result.arms[2], result.primary)
    assert drawn is not None and len(list(ET.fromstring(drawn).iter("path"))) == 5


@pytest.mark.parametrize("values", [[], [0.0], [3.0, 3.0], [-1e-9, 1e-9], [1e3, 1e9], [-5.0, 1e4]])
def test_axes_stay_finite_and_have_ticks(values: list[float]) -> None:
    axis = Axis.over(values, 0, 100, may_log=True)
    assert all(0 <= axis(value) <= 100 for value in values)
    assert 2 <= len(axis.ticks()) <= 20 and all(
        -0.01 <= axis(tick) <= 100.01 for tick in axis.ticks()
    )


def test_there_is_no_figure_without_data() -> None:
    study: dict[str, Any] = FAKE["fake_study"]()
    study.update(effects=[], noise=[], detectable={})
    for arm in study["arms"]:
        arm["cells"] = []
    assert all_figures(StudyResult.model_validate(study)) == []
