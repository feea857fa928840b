"""The contract between study and report refuses what it does not know."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fulcrum.judge import page
from fulcrum.judge.schema import Effect, StudyResult
from fulcrum.judge.statistics import paired_effect

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_study.py")))


@pytest.fixture
def study() -> dict[str, Any]:
    return FAKE["fake_study"]()


def test_the_fake_study_passes_through_json_unchanged(study: dict[str, Any]) -> None:
    result = StudyResult.model_validate_json(json.dumps(study))
    assert StudyResult.model_validate_json(result.model_dump_json()) == result
    assert len(result.arms) == 4 and len(result.arms[1].finals("frechet")) == 6


@pytest.mark.parametrize(
    "place",
    [
        (),
        ("plan",),
        ("made",),
        ("metrics", 0),
        ("arms", 0),
        ("arms", 1, "cost"),
        ("arms", 1, "cells", 0),
        ("effects", 0),
        ("noise", 0),
        ("grids",),
        ("progress",),
    ],
)
def test_an_unknown_field_is_an_error_wherever_it_stands(
    study: dict[str, Any], place: tuple[Any, ...]
) -> None:
    node: Any = study
    for step in place:
        node = node[step]
    node["surprise"] = 1
    with pytest.raises(ValidationError, match="surprise"):
        StudyResult.model_validate(study)


def test_records_are_frozen(study: dict[str, Any]) -> None:
    result = StudyResult.model_validate(study)
    with pytest.raises(ValidationError, match="frozen"):
        result.title = "another"  # type: ignore[misc]


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda s: s["plan"].update(primary_metric="fid"), "primary_metric.*found.*fid"),
        (lambda s: s["effects"][0].update(arm="mouon"), "found.*mouon"),
        (lambda s: s["effects"][0].update(arm="baseline"), "found.*baseline"),
        (lambda s: s["effects"][0].update(metric="frechte"), "found.*frechte"),
        (lambda s: s["detectable"].update(fid=1.0), "detectable.*found.*fid"),
        (lambda s: s["grids"]["arms"][0].update(arm="tred"), "grids.*found.*tred"),
        (lambda s: s["arms"].append(s["arms"][1]), "more than once"),
        (lambda s: s.update(arms=[]), "at least 1"),
        (lambda s: s.update(state="paused"), "running"),
        (lambda s: s["arms"][0]["cells"][0].update(state="lost"), "waiting"),
    ],
)
def test_names_must_agree(study: dict[str, Any], spoil: Any, message: str) -> None:
    spoil(study)
    with pytest.raises(ValidationError, match=message):
        StudyResult.model_validate(study)


@pytest.mark.parametrize(
    "source",
    [
        "http://example.org/x.png",
        "data:image/svg+xml;base64,PHN2Zz4=",
        'data:image/png;base64,AAAA" onerror="x',
        "x.png",
    ],
)
def test_a_picture_is_inline_png_or_an_error(study: dict[str, Any], source: str) -> None:
    study["grids"]["reference"][0] = source
    with pytest.raises(ValidationError, match="pattern"):
        StudyResult.model_validate(study)


def test_a_diverged_reading_is_a_missing_reading(study: dict[str, Any]) -> None:
    study["arms"][1]["cells"][0]["final"]["frechet"] = float("nan")
    result = StudyResult.model_validate(study)
    assert 0 not in result.arms[1].finals("frechet")
    assert StudyResult.model_validate_json(result.model_dump_json()) == result


def test_the_headline_is_the_comparison_at_equal_images(study: dict[str, Any]) -> None:
    study["effects"].insert(0, {**study["effects"][0], "unit": "flops", "mean": 9.0})
    result = StudyResult.model_validate(study)
    effect = result.effect("short_captions", "attribute_accuracy")
    assert effect is not None and effect.unit == "images" and effect.mean != 9.0


def test_a_result_written_before_findings_had_one_record_opens_and_keeps_all_it_said(
    tmp_path: Path,
) -> None:
    """The file was written by the release before: claims, changes, sweeps, fronts, probes, scales
    and trends in it."""
    old = Path(__file__).with_name("report_before_findings.json")
    result = page.read(old)
    assert {change.path for change in result.arms[1].diff} == {"optim.kind", "optim.matrix_lr"}
    assert (
        result.arms[1].claims[0].verdict == "replicated"
        and result.sweeps
        and result.probes
        and result.pareto
    )
    page.write(result, tmp_path)
    assert _holds(json.loads((tmp_path / "report.json").read_bytes()), json.loads(old.read_bytes()))


def _holds(new: Any, old: Any) -> bool:
    """Everything of the old file stands in the new one, unchanged; later releases may say more."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(
            name in new and _holds(new[name], value) for name, value in old.items()
        )
    if isinstance(old, list):
        return len(new) == len(old) and all(map(_holds, new, old))
    return bool(new == old)


def test_an_effect_of_the_statistics_is_written_without_its_pairs(study: dict[str, Any]) -> None:
    paired = paired_effect(
        {0: 1.0, 1: 2.0}, {0: 2.0, 1: 2.5}, name="muon", metric="frechet", unit="images"
    )
    result = StudyResult.model_validate({**study, "effects": [paired]})
    written = json.loads(result.model_dump_json())["effects"][0]
    assert list(written) == list(Effect.model_fields) == list(paired.model_dump())
    assert written["mean"] == paired.mean == 0.75
