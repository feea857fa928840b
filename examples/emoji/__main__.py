"""Pictures that others drew, from the packages that the user has, as two data sets.

    python -m examples.emoji PACKAGES [DEST]

DEST holds all styles but one, DEST_style that one; concepts are held out alike in both. A picture that comes twice under
two names is kept once: it could stand on both sides. Killed, the same command goes on.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from examples.emoji.reader import EmojiReader
from fulcrum.data.store.completion import import_summary, run_import
from fulcrum.data.store.importing import Options
from fulcrum.spec.errors import BadInput, FulcrumError


def import_emoji(packages: Path, to: Path, options: Options, style: str = "", quiet: bool = False) -> dict[str, Any]:
    """Both data sets; returns the facts of each, and prints them for people on stderr unless told to be quiet."""
    folders = {"concepts": to, "style": to.with_name(f"{to.name}_style")}
    done = {name for name, folder in folders.items() if folder.is_dir()}  # an import appears when it is whole
    if len(done) == len(folders):
        raise BadInput(
            " and ".join(map(str, folders.values())) + " hold imported data sets already",
            "nothing is overwritten: choose another folder",
        )
    facts: dict[str, Any] = {"folder": str(to)}
    for name, folder in folders.items():
        reader = EmojiReader(packages, options.size, name == "style", style)
        if name not in done:
            run_import(reader, folder, options, _unheard if quiet else _say, reader.about())
        facts[name], lines = import_summary(folder)
        if not quiet:
            _say("\n  ".join([f"{folder}: {', '.join(reader.about()['packages'])}", *lines]))
    return facts


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _unheard(text: str) -> None:
    """Quiet."""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.emoji", description=__doc__.split("\n")[0])
    parser.add_argument("packages", type=Path, help="the folder, or the tar, with npm's tarballs: see README.md")
    parser.add_argument("to", type=Path, nargs="?", metavar="DEST", help="new folder; emoji_SIZE unless told")
    parser.add_argument("--size", type=int, default=64, help="pixels on a side")
    parser.add_argument("--format", dest="encoding", default="png", help="how pictures are stored: png, jpeg, raw")
    parser.add_argument("--quality", type=int, default=95, help="of jpeg")
    parser.add_argument("--shard", type=int, default=4096, help="pictures of a shard")
    parser.add_argument("--style", default="", help="the style that is held out whole")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    given = parser.parse_args(words)
    options = Options(given.size, encoding=given.encoding, quality=given.quality, shard=given.shard, once=True)
    to = given.to or Path(f"emoji_{given.size}")
    try:
        facts = import_emoji(given.packages, to, options.checked(), given.style, given.quiet)
    except FulcrumError as error:
        print(json.dumps({"error": error.message, "hint": error.hint}) if given.json else f"error: {error}")
        return error.exit_code
    advice = f"train on it: fulcrum train emoji --with examples/emoji/recipe.py --set data.source.path={to}"
    print(json.dumps(facts) if given.json else advice)
    return 0


if __name__ == "__main__":
    sys.exit(main())
