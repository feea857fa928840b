"""What kept studies found, as rows of the table that ships with the package."""

import runpy
from pathlib import Path

from fulcrum.advice import decisions as measured_rows
from fulcrum.judge.schema import StudyResult

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
Row, result, study = (FAKE[name] for name in ("Row", "result", "study"))


def test_of_a_study_with_looks_what_is_decided_is_measured_though_others_go_on():
    made = study() | {"state": "stopped"}
    assert not measured_rows.rows({"replication": StudyResult.model_validate(made)}, 3)
    made["plan"] = made["plan"] | {"looks": [8, 12, 16], "spending": [0.031, 0.041, 0.05]}
    levers = {
        row["lever"]: row["verdict"]
        for row in measured_rows.rows({"replication": StudyResult.model_validate(made)}, 3)
    }
    assert levers["muon"] == "better" and "bf16_storage" not in levers


def test_how_much_comes_back_stands_with_both_levers():
    arms = (Row("short_captions", -0.68), Row("recaptioned", -0.295))
    rows = {row["lever"]: row for row in measured_rows.rows({"recaption": result(arms)}, 3)}
    assert {"short_captions", "recaptioned"} <= rows.keys()
    assert all(
        "57% comes back with recaptioned" in rows[lever]["note"]
        for lever in ("short_captions", "recaptioned")
    )
    alone = measured_rows.rows({"replication": result((Row("short_captions", -0.68),))}, 3)
    assert not any("comes back" in row["note"] for row in alone)


def test_an_arm_that_stands_in_for_another_is_no_measurement_of_being_added():
    made = study((Row("repa", 0.06), Row("muon", -0.05)))
    arms = {arm["name"]: arm for arm in made["arms"]}
    arms["muon"]["against"], arms["muon"]["phrase"] = "repa", "spark + muon"
    levers = {
        row["lever"] for row in measured_rows.rows({"late": StudyResult.model_validate(made)}, 3)
    }
    assert "repa" in levers and "muon" not in levers
