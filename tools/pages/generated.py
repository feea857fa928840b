"""All pages that are written from the code, by their path below docs/; whoever changes the code
runs `make docs`."""

from pathlib import Path

from fulcrum.cli import app
from fulcrum.levers.catalog import CATALOG
from tools.pages.command_pages import command_page
from tools.pages.recipe_pages import recipe_pages
from tools.pages.slot_page import slot_page

FOLDERS = ("reference", "recipes")  # hold nothing but generated pages


def pages() -> dict[str, str]:
    """Path below docs/ -> text."""
    return {
        "reference/commands.md": command_page(app),
        "reference/slots.md": slot_page(CATALOG.fillers),
        **{f"recipes/{name}": text for name, text in recipe_pages(CATALOG).items()},
    }


def write(docs: Path) -> list[Path]:
    """Write them all; a page of something that is gone is removed."""
    made = pages()
    for old in (page for folder in FOLDERS for page in (docs / folder).glob("*.md")):
        if str(old.relative_to(docs)) not in made:
            old.unlink()
    for name, text in made.items():
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_text(text, encoding="utf-8")
    return [docs / name for name in made]
