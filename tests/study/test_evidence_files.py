"""The evidence page on disk: written where it differs, the README's opening current, measured rows
of this science only."""

import runpy
from pathlib import Path

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.measured_table import FIELDS, SCOPE_FIELDS, read_measured
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import SCIENCE
from fulcrum.studies import verify as kept_verdicts
from tools.evidence import __main__ as command
from tools.evidence import files as evidence_files
from tools.evidence import page as conclusion

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
FAKE = runpy.run_path(str(ROOT / "tests/report/evidence/fake_evidence.py"))
OLD = {
    "lever": "muon",
    "recipe": "spark",
    "science": SCIENCE - 1,
    "metric": "attribute_f1",
    "change": 0.1,
    "low": 0.0,
    "high": 0.2,
    "pairs": 6,
    "verdict": "better",
    "date": "2026-01-01",
    "note": "kept",
}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "levers").mkdir()
    stale = {**OLD, "science": SCIENCE, "note": "typed by hand"}
    (tmp_path / "levers/measured.json").write_text(evidence_files.rows_text([stale, OLD]))
    (tmp_path / "README.md").write_text(
        f"# Project\n\n{conclusion.BEGIN}\n{conclusion.END}\n\nrest\n"
    )
    return tmp_path


def test_the_page_the_opening_and_the_rows_are_written_once(project):
    studies, places = (
        {"replication": FAKE["result"]()},
        (project / "docs", project / "README.md", project / "levers"),
    )
    names = {path.name for path in evidence_files.write(studies, *places)}
    assert names == {
        "README.md",
        "ranking.svg",
        "ranking_narrow.svg",
        "replication.png",
        "measured.json",
    }
    assert "(docs/README.md)" in (project / "README.md").read_text()
    assert evidence_files.write(studies, *places) == [], "the same studies give the same bytes"


def test_rows_of_this_science_are_the_studies_own_and_older_ones_stay(project):
    evidence_files.write(
        {"replication": FAKE["result"]()}, project / "docs", levers=project / "levers"
    )
    rows = read_measured(project / "levers/measured.json")
    assert rows[-1] == OLD and "typed by hand" not in {row["note"] for row in rows}
    assert {row["lever"] for row in rows} <= set(CATALOG.levers) and "edm" not in {
        row["lever"] for row in rows
    }
    assert "contrastive_flow" not in {row["lever"] for row in rows}, (
        "an arm that failed has no number"
    )
    (muon,) = (row for row in rows if row["lever"] == "muon" and row["science"] == SCIENCE)
    assert {name: muon[name] for name in FIELDS} | {"note": ""} == {
        "lever": "muon",
        "recipe": "spark",
        "science": SCIENCE,
        "metric": "attribute_accuracy",
        "change": 0.124,
        "low": 0.112,
        "high": 0.136,
        "pairs": 8,
        "verdict": "better",
        "date": "2025-01-31",
        "note": "",
    }
    assert {name: muon[name] for name in SCOPE_FIELDS} == {
        "arm": "muon",
        "base": "spark",
        "settings": [],
        "images": 60000,
        "plan": "c719a737c24afd48",
        "time": 1.29,
        "flops": 1.03,
        "alike": True,
        "keys": "baseline muon-0 muon-1 muon-2 muon-3 muon-4 muon-5 muon-6 muon-7",
    }
    assert {row["arm"] for row in rows if row["lever"] == "repa" and row["science"] == SCIENCE} == {
        "repa",
        "repa(until=0.5)",
    }
    notes = {row["note"] for row in rows if row["lever"] == "repa"}
    assert "" in notes and "until=0.5" in notes
    assert any(
        "at the metric's floor" in row["note"] for row in rows if row["lever"] == "short_captions"
    )
    assert all(tuple(row) == (FIELDS if row == OLD else (*FIELDS, *SCOPE_FIELDS)) for row in rows)


def test_more_bytes_than_a_clone_should_carry_are_refused_before_anything_is_written(
    project, monkeypatch
):
    monkeypatch.setattr(evidence_files, "MOST_BYTES", 1000)
    with pytest.raises(BadInput, match="bytes"):
        evidence_files.write({"replication": FAKE["result"]()}, project / "docs")
    assert not (project / "docs").exists()


def test_the_command_writes_what_is_kept(project, monkeypatch, capsys):
    monkeypatch.setattr(
        command, "results", lambda folder, catalogue: {"replication": FAKE["result"]()}
    )
    words = [str(project / "docs"), "--readme", str(project / "README.md")]
    for written in (4, 0):
        assert command.main(words) == 0
        first, *paths = capsys.readouterr().out.splitlines()
        assert first.startswith("1 studies"), first
        found = [line for line in paths if "nothing" not in line]
        assert len(found) == written + (written > 0), "the page, its pictures, and the README"


def test_the_projects_own_page_and_opening_are_current():
    """After a study was kept, or the page's words changed: make evidence. Bytes of a PNG are those
    of the library that wrote it: of sheets it is asked only that they are there."""
    folder = ROOT / "docs/evidence"
    studies = kept_verdicts.results(folder, CATALOG)
    made = evidence_files.contents(studies, folder, ROOT / "README.md", ROOT / "fulcrum/levers")
    stale = [
        path.name
        for path, content in made.items()
        if not path.is_file() or (isinstance(content, str) and path.read_text() != content)
    ]
    assert not stale, "run: make evidence"
