"""docs/architecture.md speaks of the package that is there: every folder is named, and everything
it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGES = sorted(
    str(path.parent.relative_to(ROOT)) + "/" for path in (ROOT / "fulcrum").rglob("__init__.py")
)
PLACE = re.compile(
    r"(?<![\w./-])(?:fulcrum|docs|tests|tools|examples|bench|chaos|mutants|dev)/[\w./-]*\w/?"
)


def test_every_folder_is_named():
    assert len(PACKAGES) > 10
    assert not [folder for folder in PACKAGES if f"`{folder}`" not in PAGE and folder != "fulcrum/"]


def test_every_file_and_folder_it_names_exists():
    named = set(PLACE.findall(PAGE))
    assert len(named) > 20, "the search finds nothing"
    assert not sorted(place for place in named if not (ROOT / place).exists())
    alone = {
        name
        for name in re.findall(r"`([\w-]+\.(?:py|toml|md))`", PAGE)
        if not (ROOT / name).exists()
    }
    assert not sorted(name for name in alone if not list((ROOT / "fulcrum").rglob(name)))


def test_the_rooms_of_the_readme_are_those_of_the_package():
    rooms = README.split("## The rooms")[1].split("```")[1]
    assert set(re.findall(r"\b(\w+)/", rooms)) == {
        folder.split("/")[1] for folder in PACKAGES if folder != "fulcrum/"
    }


def test_prose_and_comments_name_files_that_exist():
    """Old module paths lead nowhere. The log tells what was, and may name what is gone."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    # written from the help, whose examples name what a reader would make
    pages.remove(ROOT / "docs/reference/commands.md")
    folders = ("fulcrum", "tools", "bench", "chaos", "mutants", "examples")
    code = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    lost = {}
    for page in (*pages, *code):
        text = page.read_text(encoding="utf-8")
        named = {
            *(PLACE.findall(text) if page in pages else ()),
            *re.findall(r"(?<![\w./-])[\w/]+/\w+\.(?:py|md|toml)\b", text),
        }
        bases = (ROOT, ROOT / "fulcrum", ROOT / "docs", page.parent)
        missing = sorted(
            place for place in named if not any((base / place).exists() for base in bases)
        )
        if missing:
            lost[str(page.relative_to(ROOT))] = missing
    assert not lost
