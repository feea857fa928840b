"""fulcrum assets: the frozen networks that travel with the package."""

from pathlib import Path
from typing import Annotated

import typer

from fulcrum.cli.options import Json, emit
from fulcrum.files.shipped import NAMES
from fulcrum.spec.errors import BadInput, nearest

CODECS = ("codec", "codec_wide", "codec_aligned")
LEAVING = (*CODECS, "text")  # those with a stock class

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


@app.command("export", epilog="Example: fulcrum assets export codec my_codec")
def export_asset(
    name: Annotated[str, typer.Argument(help=", ".join(LEAVING))],
    folder: Annotated[Path, typer.Argument(help="Where to write it.")],
    as_json: Json = False,
) -> None:
    """Write an embedded codec as diffusers' AutoencoderKL, or the text encoder as transformers'
    ModernBertModel."""
    if name not in LEAVING:
        raise BadInput(f"no stock class computes what '{name}' computes", nearest(name, LEAVING))
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(
            f"{folder} exists and is not empty", "choose a new folder: nothing is overwritten"
        )
    if name in CODECS:
        from fulcrum.networks.codec import load_codec
        from fulcrum.training.interop.export import export_codec

        export_codec(load_codec(name), folder)
        network, use = "AutoencoderKL", f"encode.codec=pretrained_codec(path='{folder}')"
    else:
        from fulcrum.networks.text import load_text
        from fulcrum.training.interop.export import export_text

        export_text(load_text(name), folder)
        network, use = "ModernBertModel", f"encode.text=pretrained_text(path='{folder}')"
    lines = f"{network}.from_pretrained('{folder}') loads it; here: --set \"{use}\""
    emit({"folder": str(folder), "network": network}, as_json, lines)
