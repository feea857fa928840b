"""fulcrum data import emoji: pictures that others drew, from the packages that the user has, as two data sets."""

from pathlib import Path
from typing import Any

from fulcrum.cli.options import emit, say
from fulcrum.spec.errors import BadInput


def import_emoji(
    packages: Path,
    to: Path | None,
    size: int,
    encoding: str,
    quality: int,
    shard: int,
    style: str,
    others: list[str],
    quiet: bool,
    as_json: bool,
) -> None:
    """DEST holds all styles but one, DEST_style that one; concepts are held out alike in both. A picture that comes twice
    under two names is kept once: it could stand on both sides."""
    from fulcrum.data.emoji import EmojiReader
    from fulcrum.data.store.completion import run_import
    from fulcrum.data.store.importing import Options
    from fulcrum.data.store.ledger import told
    from fulcrum.data.store.picture_store import ABOUT, read_about

    if others:
        raise BadInput(f"{others[0]} means nothing for emoji: their captions and groups are made by the import")
    if to is None and Path("emoji").is_dir() and not packages.exists():
        raise BadInput(
            "'emoji' is both the word for emoji packages and a folder here",
            f"for your folder write ./emoji: fulcrum data import ./emoji {packages}",
        )
    to = to or Path(f"emoji_{size}")
    beside = to.with_name(f"{to.name}_style")
    options = Options(size=size, encoding=encoding, quality=quality, shard=shard, once=True).checked()
    if (to / ABOUT).is_file() and (beside / ABOUT).is_file():
        raise BadInput(
            f"{to} and {beside} hold imported data sets already", "nothing is overwritten: choose another folder"
        )
    facts: dict[str, Any] = {}
    lines: list[str] = []
    for place, apart in ((to, False), (beside, True)):
        if (place / ABOUT).is_file():
            about = read_about(place)  # the first of two was done before a kill
        else:
            reader = EmojiReader(packages, size, apart, style)
            about = run_import(reader, place, options, _unheard if quiet else say, reader.about())
        ledger = _ledger(place)
        facts["style" if apart else "concepts"] = {
            "folder": str(place),
            **{name: about[name] for name in ("count", "splits", "captions", "content")},
            "ledger": ledger,
        }
        lines += [
            f"{place}: "
            + (f"the held-out style {about['held_out_style']}" if apart else f"styles {', '.join(about['packages'])}"),
            *(f"  {line}" for line in told(ledger)),
            "  split " + ", ".join(f"{name} {count:,}" for name, count in about["splits"].items()),
            f"  content {about['content'][:16]}",
        ]
    lines.append(f"train on it: fulcrum train emoji --set data.source.path={to}")
    emit({"folder": str(to), **facts}, as_json, "\n".join(lines))


def _ledger(place: Path) -> Any:
    import json

    return json.loads((place / "ledger.json").read_text())


def _unheard(text: str) -> None:
    """Quiet."""
