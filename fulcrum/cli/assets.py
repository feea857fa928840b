"""fulcrum assets: the frozen networks that travel with the package."""

import typer

from fulcrum.cli.options import Json, emit
from fulcrum.files.shipped import NAMES

app = typer.Typer(no_args_is_help=True, help="The frozen networks that travel with the package.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="assets")


@app.command("list", epilog="Example: fulcrum assets list")
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
