"""docs/levers says what the cards say."""

from pathlib import Path

from fulcrum.laws.pages import pages, read_measured, write
from fulcrum.levers.catalog import CATALOG

FOLDER = Path(__file__).parents[2] / "docs" / "levers"


def test_the_pages_are_current():
    made = pages(CATALOG, FOLDER)
    assert {path.name for path in FOLDER.glob("*.md")} == set(made), "run: make docs"
    stale = [name for name, text in made.items() if (FOLDER / name).read_text() != text]
    assert not stale, f"run: make docs ({', '.join(stale)})"


def test_every_measured_row_belongs_to_a_lever():
    assert {row["lever"] for row in read_measured(FOLDER / "measured.json")} <= set(CATALOG.levers)


def test_pages_of_levers_that_are_gone_are_removed(tmp_path):
    few = CATALOG._replace(levers={name: CATALOG.levers[name] for name in ("tread", "muon")}, bundles={})
    (tmp_path / "gone.md").write_text("old")
    write(few, tmp_path)
    assert not (tmp_path / "gone.md").exists() and (tmp_path / "tread.md").read_text().startswith("# tread")
