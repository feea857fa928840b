"""The site's navigation, its links and its promise to load nothing from elsewhere. mkdocs calls the
on_... functions.

A page of docs/ that mkdocs.yml does not name is found here: whoever adds a guide need not know of
the site.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

UNNAMED = "Guides"  # the section that takes top-level pages which mkdocs.yml does not name
# pages that lie beside docs/
FROM_ROOT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
NAMED_PAGE = re.compile(r"(?<!\[)`((?:docs/[\w-]+/)|[\w./-]+\.md)`(?!\])")
LINK_UP = re.compile(r"\[([^\]\n]+)\]\((\.\./[^)\s]+)\)")
LIST_AFTER_TEXT = re.compile(r"^(?![-*|#>\s]|\d+\. )(.+)\n(?=(?:[-*]|\d+\.) )", re.M)
LOADS = re.compile(
    r"<(?:(?:script|img|iframe|source)\b[^>]*?\bsrc|link\b[^>]*?\bhref)=[\"']?(?:https?:)?//", re.I
)

Nav = list[Any]


def whole_navigation(named: Nav, docs: Path) -> Nav:
    """What mkdocs.yml names, with folders opened, and every other page where it belongs."""
    opened = [_opened(entry, docs) for entry in named]
    known = set(pages_of(opened))
    missing = sorted(page.name for page in docs.glob("*.md") if page.name not in known)
    for entry in opened:
        if isinstance(entry, dict) and UNNAMED in entry:
            entry[UNNAMED] = [*entry[UNNAMED], *missing]
    return opened


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [
        page
        for entry in (nav.values() if isinstance(nav, dict) else nav)
        for page in pages_of(entry)
    ]


def _opened(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _opened(below, docs) for title, below in entry.items()}
    if isinstance(entry, list):
        return [_opened(below, docs) for below in entry]
    if not entry.endswith("/"):
        return entry
    pages = sorted(page.name for page in (docs / entry).glob("*.md"))
    pages.sort(key=lambda name: name != "README.md")
    return {entry.rstrip("/").capitalize(): [entry + page for page in pages]}


def linked(text: str, page: str, docs: Path) -> str:
    """A page's text with `docs/judges.md` as a link to it, and links that leave docs/ as the names
    of files. Code stays.

    A list that follows a text at once gets the empty line that GitHub does not need and mkdocs
    does.
    """
    folder = posixpath.dirname(page)

    def to_page(found: re.Match[str]) -> str:
        name = found.group(1) + ("README.md" if found.group(1).endswith("/") else "")
        places = [target for target, source in FROM_ROOT.items() if source == name]
        tried = (name.removeprefix("docs/"), posixpath.normpath(posixpath.join(folder, name)))
        places += [place for place in tried if name != "README.md" and (docs / place).is_file()]
        if not places or places[0] == page:
            return found.group(0)
        return f"[{found.group(0)}]({posixpath.relpath(places[0], folder or '.')})"

    def named(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, found.group(2)))
        return (
            found.group(0)
            if target.startswith("docs/")
            else f"{found.group(1)} (`{target}` of the repository)"
        )

    def told(part: str) -> str:
        return LIST_AFTER_TEXT.sub(r"\1\n\n", LINK_UP.sub(named, NAMED_PAGE.sub(to_page, part)))

    parts = re.split(r"(^```.*?^```)", text, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else told(part) for part in parts)


def loads_from_elsewhere(site: Path) -> list[str]:
    """Pages with a script, style, picture or frame of another server."""
    return [
        str(page.relative_to(site))
        for page in sorted(site.rglob("*.html"))
        if LOADS.search(page.read_text("utf-8"))
    ]


def on_config(config: Any) -> Any:
    config["nav"] = whole_navigation(config["nav"], Path(config["docs_dir"]))
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, path in FROM_ROOT.items():
        files.append(
            File.generated(
                config, name, content=(Path(config["docs_dir"]).parent / path).read_text("utf-8")
            )
        )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return linked(markdown, page.file.src_uri, Path(config["docs_dir"]))


def on_post_build(config: Any) -> None:
    from mkdocs.exceptions import PluginError

    foreign = loads_from_elsewhere(Path(config["site_dir"]))
    if foreign:
        raise PluginError(
            f"expected pages that open offline; these load from elsewhere: {', '.join(foreign)}"
        )
