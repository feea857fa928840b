"""Icon sets and emoji names inside packages that the user installed: a folder, npm's tarballs, or a tar of them.

Read are the icon sets of Iconify (`@iconify-json/NAME`, or `@iconify/json` with all of them) that call themselves emoji
in colour, and the English names and keywords of `cldr-annotations-full`. Nothing is extracted, nothing is executed.
"""

from __future__ import annotations

import io
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.data.readers.untrusted_archive import TARS, Broken, members
from fulcrum.data.readers.untrusted_file import read_untrusted
from fulcrum.spec.errors import BadInput

NAMES = "annotations/en/annotations.json"  # of cldr-annotations-full
PARTS = ("icons.json", "info.json", "metadata.json", "package.json")  # of one icon set's package
WHOLE = re.compile(r"(^|/)json/([a-z0-9-]+)\.json$")  # of the package that holds every icon set
GET = (
    "npm pack @iconify-json/noto @iconify-json/twemoji @iconify-json/fluent-emoji-flat @iconify-json/emojione "
    "@iconify-json/noto-v1 @iconify-json/openmoji cldr-annotations-full"
)


class Named(NamedTuple):
    """A concept as CLDR names it."""

    name: str  # "red apple"
    keywords: tuple[str, ...]


class IconSet(NamedTuple):
    style: str  # prefix: "fluent-emoji-flat"
    title: str  # "Fluent Emoji Flat"
    licence: str
    version: str
    icons: dict[str, dict[str, Any]]  # name -> body, and left, top, width, height where they are not the set's
    box: tuple[float, float, float, float]
    groups: dict[str, str]  # name -> "Food & Drink"


class Packages(NamedTuple):
    sets: dict[str, IconSet]  # by style, sorted
    names: dict[str, Named]  # by slug

    def versions(self) -> dict[str, str]:
        return {one.style: f"{one.version}, {one.licence}" for one in self.sets.values()}


def slug(text: str) -> str:
    """The name of an icon that shows what CLDR calls `text`: "one o’clock" is one-oclock."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(sign))
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"[’'“”.!]", "", plain).replace("&", "and")).strip("-")


def open_packages(path: Path) -> Packages:
    """What lies at `path`, or an error that says how to get it."""
    if not path.exists():
        raise BadInput(f"there is nothing at {path.absolute()}", f"a folder with the packages' tarballs: {GET}")
    folders: dict[str, dict[str, bytes]] = {}
    whole: list[bytes] = []
    names: dict[str, Named] = {}
    for name, data in _files(path):
        folder, _, file = name.rpartition("/")
        if name.endswith(NAMES):
            names = _names(data, name)
        elif WHOLE.search(name):
            whole.append(data)
        else:
            folders.setdefault(folder, {})[file] = data
    sets = [
        _icon_set(_json(parts["icons.json"], place), parts, place)
        for place, parts in sorted(folders.items())
        if "icons.json" in parts
    ]
    sets += [_icon_set(icons, {}, "json") for icons in (_json(data, "json") for data in whole)]
    emoji = {one.style: one for one in sets if one is not None}
    if not emoji or not names:
        what = "no icon set of coloured emoji" if not emoji else f"no {NAMES}, the names and keywords of CLDR,"
        raise BadInput(f"{path} holds {what}", f"get the packages, then give the folder: {GET}")
    return Packages(dict(sorted(emoji.items())), names)


def _wanted(name: str) -> bool:
    file = name.rpartition("/")[2]
    return name.endswith(NAMES) or file in PARTS or (WHOLE.search(name) is not None)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every file that matters, from a folder or a tar; tars inside are looked into once."""
    if path.is_file():
        yield from _tar(path.name, path.read_bytes(), inner=True)
        return
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for file in sorted(names):
            name = (Path(place) / file).relative_to(path).as_posix()
            if not (name.lower().endswith(TARS) or _wanted(name)):
                continue
            try:
                data = read_untrusted(path / name)
            except ValueError as error:
                raise BadInput(f"{path / name}: {error}", "take it out, or get the package again") from None
            yield from _tar(name, data) if name.lower().endswith(TARS) else [(name, data)]


def _tar(label: str, data: bytes, inner: bool = False) -> Iterator[tuple[str, bytes]]:
    try:
        for member in members(io.BytesIO(data), len(data)):
            packed = inner and member.name.lower().endswith(TARS)
            if member.fault and (packed or _wanted(member.name)):
                raise Broken(f"{member.name}: {member.fault}")
            if packed:
                yield from _tar(f"{label}/{member.name}", member.read())
            elif _wanted(member.name):
                yield f"{label}/{member.name}", member.read()
    except Broken as error:
        raise BadInput(f"{label} cannot be read: {error}", "get the package again") from None


def _json(data: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise BadInput(f"{where} holds JSON that cannot be read", "get the package again") from None
    if not isinstance(content, dict):
        raise BadInput(f"{where} holds JSON that is no object", "get the package again")
    return content


def _names(data: bytes, where: str) -> dict[str, Named]:
    annotations = _json(data, where).get("annotations", {})
    names = {}
    for about in (annotations.get("annotations", {}) if isinstance(annotations, dict) else {}).values():
        spoken, keywords = about.get("tts") or [], about.get("default") or []
        if spoken and keywords and slug(spoken[0]):
            own = tuple(str(word) for word in keywords if str(word).lower() != spoken[0].lower())
            names[slug(spoken[0])] = Named(str(spoken[0]), own)
    return names


def _icon_set(icons: dict[str, Any], parts: dict[str, bytes], where: str) -> IconSet | None:
    """A set of emoji in colour; None for other icons."""
    info = icons.get("info") or (_json(parts["info.json"], where) if "info.json" in parts else {})
    if info.get("category") != "Emoji" or not info.get("palette"):
        return None
    package = _json(parts["package.json"], where) if "package.json" in parts else {}
    groups = icons.get("categories") or (
        _json(parts["metadata.json"], where).get("categories", {}) if "metadata.json" in parts else {}
    )
    own: dict[str, dict[str, Any]] = {
        name: icon
        for name, icon in icons.get("icons", {}).items()
        if isinstance(icon, dict) and isinstance(icon.get("body"), str)
    }
    for name, alias in icons.get("aliases", {}).items():
        if set(alias) == {"parent"} and alias["parent"] in own and name not in own:
            own[name] = {**own[alias["parent"]], "alias": alias["parent"]}
    side = float(icons.get("width") or icons.get("height") or 16)
    box = (float(icons.get("left") or 0), float(icons.get("top") or 0), side, float(icons.get("height") or side))
    licence = info.get("license") or {}
    return IconSet(
        str(icons["prefix"]),
        str(info.get("name", icons["prefix"])),
        str(licence.get("spdx", "not stated")),
        str(package.get("version") or info.get("version") or "not stated"),
        own,
        box,
        {name: str(group) for group, inside in groups.items() for name in inside},
    )
