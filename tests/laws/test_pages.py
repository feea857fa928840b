"""docs/levers says what the cards say."""

import re
from pathlib import Path

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.lever_pages import pages, write
from fulcrum.levers.measured_table import in_sum, read_measured
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "levers"


def test_the_pages_are_current():
    made = pages(CATALOG)
    assert {path.name for path in FOLDER.glob("*.md")} == set(made), "run: make docs"
    stale = [name for name, text in made.items() if (FOLDER / name).read_text() != text]
    assert not stale, f"run: make docs ({', '.join(stale)})"


def test_every_measured_row_belongs_to_a_lever():
    assert {row["lever"] for row in read_measured()} <= set(CATALOG.levers)


def test_a_measured_row_tells_which_science_it_is_of():
    """Rows of the first world stood beside later ones as if they could be compared."""
    rows = read_measured()
    assert all(FIRST_SCIENCE <= row["science"] <= SCIENCE for row in rows)
    page, index = ((FOLDER / name).read_text() for name in ("muon.md", "README.md"))
    for row in (row for row in rows if row["lever"] == "muon"):
        assert (
            f"| {row['recipe']} | {row['science']} | {row['metric']} | {row['change']:+.4g} "
            in page
        )
    (line,) = (line for line in index.splitlines() if line.startswith("| [muon]"))
    assert (
        f"science {max(row['science'] for row in rows if row['lever'] == 'muon')})" in line
        and "science 1)" not in line
    )


@pytest.mark.parametrize(
    ("lever", "begins"), [("edm_precondition", "sigma_data is"), ("repa", "The published")]
)
def test_a_setting_keeps_its_spelling_at_the_beginning_of_a_sentence(lever, begins):
    assert f"**Mind:** {begins}" in (FOLDER / f"{lever}.md").read_text()


def test_the_readme_counts_the_levers():
    assert re.findall(r"(\d+) levers, each one file", (ROOT / "README.md").read_text()) == [
        str(len(CATALOG.levers))
    ]


def test_pages_of_levers_that_are_gone_are_removed(tmp_path):
    few = CATALOG._replace(
        levers={name: CATALOG.levers[name] for name in ("tread", "muon")}, bundles={}
    )
    (tmp_path / "gone.md").write_text("old")
    write(few, tmp_path)
    assert not (tmp_path / "gone.md").exists() and (tmp_path / "tread.md").read_text().startswith(
        "# tread"
    )


def test_a_lever_that_never_helped_is_told_so():
    def row(verdict, change, science=SCIENCE, recipe="spark"):
        return {
            "verdict": verdict,
            "change": change,
            "science": science,
            "recipe": recipe,
            "pairs": 8,
        }

    worse, tie, better = (
        row("worse", -0.14),
        row("tie", 0.001, recipe="pocket"),
        row("better", 0.1, recipe="pocket"),
    )
    assert in_sum([worse, tie]) == (
        "It has never helped in our own studies: worse on spark (-0.14, 8 pairs); "
        "no difference that matters on pocket (+0.001, 8 pairs)."
    )
    assert in_sum([worse, better]).startswith(
        "In our own studies: worse on spark (-0.14, 8 pairs); better on pocket"
    )
    assert in_sum([row("worse", -0.1, SCIENCE - 1)]) == in_sum([]) == ""
