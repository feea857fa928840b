"""fulcrum data import, check, card: the user's own pictures, made ready to train on."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli.options import Json, Quiet, emit, say
from fulcrum.spec.errors import BadInput, FulcrumError

SHOWN = 20  # faults that are printed; --json has all


class NotSound(FulcrumError):
    """A data set that is not what was written."""


def register(data: typer.Typer) -> None:
    """Add the commands to `fulcrum data`."""
    data.command("import", epilog="Example: fulcrum data import photos my_data --size 64 --bad quarantine")(import_data)
    data.command("check", epilog="Example: fulcrum data check my_data")(check_data)


def import_data(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of pictures with .txt or .json captions beside them, "
            "or a table (metadata.jsonl, .csv, .parquet); WebDataset tar shards "
            "(folder, file, pattern, URL); a saved Hugging Face dataset. Or the "
            "word emoji, then the folder with emoji packages."
        ),
    ],
    to: Annotated[
        Path,
        typer.Argument(
            metavar="DEST", help="New folder for the imported data set. After `emoji`: the folder or tar of the packages."
        ),
    ],
    emoji_to: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DEST]", help="After `emoji PACKAGES`: the new folder; emoji_64 if left out.", show_default=False
        ),
    ] = None,
    size: Annotated[int, typer.Option(help="Pixels on a side.")] = 64,
    buckets: Annotated[
        bool,
        typer.Option(
            "--buckets",
            help="Keep aspect ratios: the nearest of several shapes "
            "instead of a square; every batch of training has one. What is held "
            "out is square.",
        ),
    ] = False,
    bucket_step: Annotated[
        int, typer.Option(help="Sides of those shapes are multiples of it; 0: an eighth of the size.", show_default=False)
    ] = 0,
    encoding: Annotated[str, typer.Option("--format", help="How pictures are stored: png, jpeg, raw.")] = "png",
    quality: Annotated[int, typer.Option(min=50, max=100, help="Of jpeg.")] = 95,
    bad: Annotated[
        str, typer.Option(help="A bad sample: stop at the first, or quarantine (leave out, count, name).")
    ] = "stop",
    enlarge: Annotated[bool, typer.Option("--enlarge", help="Enlarge smaller pictures; else they are dropped.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Drop repeated pictures, else only counted.")] = False,
    hold_out: Annotated[
        float, typer.Option(help="Share of the pictures held out for validation, and as many again as reference.")
    ] = 0.05,
    caption: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FIELD", help="A caption and the field that holds it: short=title. Repeatable."),
    ] = None,
    table: Annotated[str, typer.Option(help="Table of captions beside a folder of pictures.")] = "",
    file: Annotated[str, typer.Option(help="The field that names (or holds) the picture.")] = "",
    group: Annotated[str, typer.Option(help="Samples alike in this field are held out together.")] = "",
    style: Annotated[str, typer.Option(help="Of emoji: the style that is held out whole.")] = "",
    shard: Annotated[int, typer.Option(min=1, max=1_000_000, help="Pictures of a shard.")] = 4096,
    shelf: Annotated[
        Path | None,
        typer.Option(
            help="Folder for copies of remote shards; else FULCRUM_SHELF, or the user's cache.", show_default=False
        ),
    ] = None,
    shelf_gb: Annotated[
        float | None,
        typer.Option(
            help="Most that those copies may take; the longest unused leave first. Else FULCRUM_SHELF_GB, or 16.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Read pictures and captions, check, crop and resize them, and write a data set to train on, with its ledger and card.

    Killed or stopped at a bad sample, the same command goes on. Then: fulcrum train pocket --set
    "data.source=folder(path='DEST')" --set data.size=64
    """
    if source == "emoji":
        from fulcrum.cli.emoji import import_emoji

        given = {"--buckets": buckets, "--caption": caption, "--table": table, "--file": file, "--group": group}
        others = [name for name, one in given.items() if one]
        return import_emoji(to, emoji_to, size, encoding, quality, shard, style, others, quiet, as_json)
    if emoji_to is not None or style:
        raise BadInput("a third folder and --style belong to emoji", "write: fulcrum data import emoji PACKAGES DEST")
    from fulcrum.data.readers.reader import Fields, open_given
    from fulcrum.data.store.completion import run_import
    from fulcrum.data.store.importing import Options
    from fulcrum.data.store.ledger import told

    fields = Fields(tuple(map(_pair, caption or [])), group, file)
    options = Options(size, buckets, encoding, quality, bad, enlarge, once, hold_out, shard, bucket_step).checked()
    tell = _unheard if quiet else say
    about = run_import(open_given(source, fields, table, _shelf(shelf, shelf_gb, tell)), to, options, tell)
    ledger = json.loads((to / "ledger.json").read_text())
    lines = [
        *told(ledger),
        "split " + ", ".join(f"{name} {count:,}" for name, count in about["splits"].items()),
        f"captions {', '.join(about['captions'])}; content {about['content'][:16]}",
        f"train on it: fulcrum train pocket --set \"data.source=folder(path='{to}')\" --set data.size={size}",
    ]
    facts = {name: about[name] for name in ("count", "splits", "captions", "content")}
    emit({"folder": str(to), **facts, "ledger": ledger}, as_json, "\n".join(lines))


def check_data(
    path: Annotated[Path, typer.Argument(help="An imported data set.")], quiet: Quiet = False, as_json: Json = False
) -> None:
    """Compare every checksum, decode every picture, read every caption, add up the ledger. Exit code 1 if one is wrong."""
    from fulcrum.data.store.check import check

    found = check(path, None if quiet else say)
    faults = found["faults"]
    if as_json:
        emit(found, True)
    else:
        for fault in faults[:SHOWN]:
            say(fault)
    if faults and as_json:
        raise typer.Exit(1)
    if faults:
        some = f", of which {SHOWN} are shown" if len(faults) > SHOWN else ""
        raise NotSound(
            f"{path} is damaged: {len(faults):,} faults{some}",
            "copy it again from where it was sound, or import the pictures again",
        )
    emit(found, as_json, f"sound: {found['samples']:,} samples, content {found['content'][:16]}")


def card_of(path: Path) -> dict[str, Any]:
    """The card of an imported data set."""
    from fulcrum.data.store.picture_store import CARD, read_about

    read_about(path)
    try:
        found: dict[str, Any] = json.loads((path / CARD).read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"the card of {path} cannot be read: {error}", "import the pictures again") from None
    return found


def _shelf(folder: Path | None, limit: float | None, tell: Any) -> Any:
    from fulcrum.files.remote_cache import RemoteCache, user_cache

    own = user_cache(tell)
    return RemoteCache(folder or own.folder, own.limit / 1e9 if limit is None else limit, tell)


def _pair(text: str) -> tuple[str, str]:
    name, equals, field = text.partition("=")
    if not (name and equals and field):
        raise BadInput(f"a caption is written NAME=FIELD, found '{text}'", "such as --caption short=title")
    return name, field


def _unheard(text: str) -> None:
    """Quiet."""
