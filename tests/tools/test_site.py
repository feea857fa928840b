"""The site: every page is in its navigation, links work there and on GitHub, and nothing is loaded
from elsewhere."""

import re
from pathlib import Path

import pytest
import yaml

from tools.site.navigation import (
    FROM_ROOT,
    linked,
    loads_from_elsewhere,
    pages_of,
    whole_navigation,
)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")


def configured():
    """The navigation of mkdocs.yml; what stands above it wants mkdocs to be read."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text[text.index("\nnav:") :])["nav"]


def test_every_page_is_in_the_navigation_once():
    pages = pages_of(whole_navigation(configured(), DOCS))
    assert sorted(pages) == sorted(
        [*(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")), *FROM_ROOT]
    )


def test_a_page_that_is_not_named_is_taken_in_and_a_folder_is_opened(tmp_path):
    (tmp_path / "many").mkdir()
    for name in ("named.md", "new.md", "many/b.md", "many/README.md"):
        (tmp_path / name).touch()
    nav = whole_navigation([{"Guides": ["named.md"]}, {"More": ["many/"]}], tmp_path)
    assert nav == [
        {"Guides": ["named.md", "new.md"]},
        {"More": [{"Many": ["many/README.md", "many/b.md"]}]},
    ]


def test_links_of_the_docs_lead_somewhere_on_github():
    lost = {}
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        found = [
            link.partition("#")[0]
            for link in LINK.findall(text)
            if not re.match(r"https?:|#", link)
        ]
        if missing := [link for link in found if not (page.parent / link).exists()]:
            lost[str(page.relative_to(ROOT))] = missing
    assert not lost


@pytest.mark.parametrize(
    ("page", "text", "shown"),
    [
        ("a.md", "see `docs/b.md`.", "see [`docs/b.md`](b.md)."),
        ("a.md", "see `b.md`.", "see [`b.md`](b.md)."),
        ("deep/c.md", "see `docs/b.md`.", "see [`docs/b.md`](../b.md)."),
        ("a.md", "in `docs/deep/`", "in [`docs/deep/`](deep/README.md)"),
        ("a.md", "by `CHANGELOG.md`", "by [`CHANGELOG.md`](changelog.md)"),
        ("b.md", "this is `docs/b.md`", "this is `docs/b.md`"),
        ("a.md", "no `docs/gone.md`, no `README.md`", "no `docs/gone.md`, no `README.md`"),
        ("a.md", "[`docs/b.md`](b.md)", "[`docs/b.md`](b.md)"),
        ("a.md", "```\ncat `docs/b.md`\n```", "```\ncat `docs/b.md`\n```"),
        ("a.md", "[one](../examples/x.toml)", "one (`examples/x.toml` of the repository)"),
        ("deep/c.md", "[two](../b.md)", "[two](../b.md)"),
        ("a.md", "text:\n- one\n- two\n  more\n- three", "text:\n\n- one\n- two\n  more\n- three"),
    ],
)
def test_a_page_on_the_site(tmp_path, page, text, shown):
    (tmp_path / "deep").mkdir()
    for name in ("a.md", "b.md", "deep/README.md", "deep/c.md"):
        (tmp_path / name).touch()
    assert linked(text, page, tmp_path) == shown


@pytest.mark.parametrize(
    ("html", "foreign"),
    [
        ('<script src="https://elsewhere/x.js"></script>', True),
        ("<link rel=stylesheet href=//elsewhere/x.css>", True),
        ('<img alt="" src="http://elsewhere/x.png">', True),
        (
            (
                '<script src="assets/x.js"></script><link href="x.css"><a'
                ' href="https://elsewhere">a link to follow</a>'
            ),
            False,
        ),
    ],
)
def test_what_loads_from_elsewhere_is_found(tmp_path, html, foreign):
    (tmp_path / "x.html").write_text(html)
    assert bool(loads_from_elsewhere(tmp_path)) == foreign
