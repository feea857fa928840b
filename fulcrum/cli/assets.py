"""fulcrum assets, data: the embedded parts, the world."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli import data as datasets
from fulcrum.cli.options import Json, emit
from fulcrum.files.shipped import NAMES

assets = typer.Typer(no_args_is_help=True, help="The frozen networks that travel with the package.")
data = typer.Typer(no_args_is_help=True, help="Your own pictures made ready to train on; the embedded world.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(assets, name="assets")
    parent.add_typer(data, name="data")
    datasets.register(data)


@assets.command("list", epilog="Example: fulcrum assets list")
def list_assets(as_json: Json = False) -> None:
    """Every embedded network with its size and measured quality."""
    from fulcrum.files.shipped import card

    cards = {name: card(name) for name in NAMES}
    lines = [
        f"{name:<13} {facts['bytes'] / 1e6:5.2f} MB  "
        + ", ".join(f"{what} {value}" for what, value in facts["quality"].items())
        for name, facts in cards.items()
    ]
    emit(cards, as_json, "\n".join(lines))


@data.command("card", epilog="Example: fulcrum data card my_data")
def data_card(
    path: Annotated[Path | None, typer.Argument(help="An imported data set; none: the embedded world.")] = None,
    as_json: Json = False,
) -> None:
    """Counts, hashes and proportions: of an imported data set, or of every split of the embedded world."""
    import json

    from fulcrum.data.card import data_card as card

    facts = card(_sources(32)) if path is None else datasets.card_of(path)
    emit(facts, as_json, json.dumps(facts, indent=1))


@data.command("show", epilog="Example: fulcrum data show sheet.png --of my_data")
def show_data(
    to: Annotated[Path, typer.Argument(help="PNG file to write.")] = Path("world.png"),
    of: Annotated[Path | None, typer.Option(help="An imported data set; none: the embedded world.")] = None,
    as_json: Json = False,
) -> None:
    """A sheet of captioned pictures from an imported data set, or from the world."""
    from fulcrum.data.card import contact_sheet
    from fulcrum.data.store.contact_sheet import store_sheet

    contact_sheet(to, _sources(128)) if of is None else store_sheet(to, of)
    emit({"file": str(to)}, as_json, str(to))


def _sources(size: int) -> list[Any]:
    from fulcrum.data.source import WorldSource

    return [
        WorldSource(split=split, domain="real", size=size, count=4096)
        for split in ("train", "validation", "reference", "curated")
    ]
