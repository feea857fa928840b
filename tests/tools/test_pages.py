"""docs/reference and docs/recipes say what the code says."""

from pathlib import Path

import pytest
import typer

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.run import RunSpec
from tools.pages import generated
from tools.pages.advice_blocks import PAGE, begin_of, blocks, with_blocks
from tools.pages.command_pages import command_page, every_command
from tools.pages.slot_page import slot_page

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made():
    return generated.pages()


def test_the_pages_are_current(made):
    there = {
        str(page.relative_to(DOCS))
        for folder in generated.FOLDERS
        for page in (DOCS / folder).glob("*.md")
    }
    assert there == set(made), "run: make docs"
    stale = [
        name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text
    ]
    assert not stale, f"run: make docs ({', '.join(stale)})"


def test_what_the_page_on_advice_shows_is_what_is_printed_today():
    page = (DOCS / PAGE).read_text(encoding="utf-8")
    printed = blocks()
    assert with_blocks(page, printed) == page, "run: make docs"
    first = next(iter(printed))
    assert with_blocks(page, printed | {first: "stale"}) != page, "it could not fail"
    with pytest.raises(ValueError, match="no place"):
        with_blocks(page.replace(begin_of(first), ""), printed)


def test_every_slot_is_told_with_its_meaning():
    table = slot_page(CATALOG.fillers).split("## data.source")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in table if line.startswith("| `")]
    told = {row[0].strip("`"): row[-1].strip("| ") for row in rows}
    plain = CATALOG.recipes["spark"]().plain()
    slots = {
        f"{name}.{inner}" if isinstance(part, dict) and "kind" not in part else name
        for name, part in plain.items()
        for inner in (part if isinstance(part, dict) and "kind" not in part else [""])
    }
    # newer than the first keys: left out of a run's plain form where it says nothing
    slots |= {"model.learned"}
    assert set(told) == slots and set(RunSpec.model_fields) == {
        slot.split(".")[0] for slot in slots
    }
    assert not [slot for slot, meaning in told.items() if len(meaning) < 4], (
        "a comment on the slot's line in spec/run.py"
    )


def test_a_range_and_a_choice_are_on_the_page():
    page = slot_page(CATALOG.fillers)
    assert "| `optim.lr` | float | (0, 1] |" in page and "'stop' or 'skip'" in page
    assert all(f"### `{filler.kind}`" in page for filler in CATALOG.fillers)


def test_a_new_command_and_option_get_on_the_page():
    app = typer.Typer()

    @app.command()
    def fly(high: int = typer.Option(3, min=1, max=9, help="How high: metres | feet.")) -> None:
        """Leave the ground."""

    @app.command(hidden=True)
    def secret() -> None:
        """Not to be seen."""

    page = command_page(app)
    assert "| [fly](#fulcrum-fly) | Leave the ground. |" in page and set(every_command(app)) == {
        "fly"
    }
    assert "| `--high INT 1 to 9` | How high: metres \\| feet. | `3` |" in page


def test_a_page_of_a_recipe_that_is_gone_is_removed(tmp_path, monkeypatch):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/gone.md").write_text("old")
    monkeypatch.setattr(generated, "pages", lambda: {"recipes/here.md": "new"})
    generated.write(tmp_path)
    assert [page.name for page in (tmp_path / "recipes").iterdir()] == ["here.md"]


def test_sizes_of_a_recipe_are_computed(made):
    assert "| parameters of the denoiser | 1,170,691,648 |" in made["recipes/prx_256.md"]
    assert "| tokens of a picture | 64 |" in made["recipes/pocket_64.md"]
