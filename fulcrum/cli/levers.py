"""fulcrum levers: what we may change, what it costs and what was claimed."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli.options import Files, Json, catalogue, emit
from fulcrum.spec.errors import BadInput, nearest

app = typer.Typer(invoke_without_command=True, help="What we may change: all levers, or one lever's card.")
Base = Annotated[str, typer.Option(help="The recipe that costs and differences are stated for.")]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="levers")


@app.callback()
def listing(context: typer.Context, recipe: Base = "pocket", levers: Files = None, as_json: Json = False) -> None:
    """All levers with their cost and what was claimed of them."""
    if context.invoked_subcommand:
        return
    known, _ = catalogue(levers)
    cards = [_card(lever, _recipe(known, recipe)) for lever in known.levers.values()]
    width = max(len(card["name"]) for card in cards)
    lines = [f"{card['name']:<{width}}  {card['says']}\n{'':<{width}}  {_short(card)}" for card in cards]
    emit(cards, as_json, "\n".join(lines) + "\n\none lever: fulcrum levers show NAME")


@app.command()
def show(name: str, recipe: Base = "pocket", levers: Files = None, as_json: Json = False) -> None:
    """One lever: its settings, what it changes in a recipe, what it costs, what was claimed where."""
    from fulcrum.spec.edit import diff
    known, _ = catalogue(levers)
    if name not in known.levers:
        raise BadInput(f"no lever is called '{name}'", nearest(name, known.levers))
    run = _recipe(known, recipe)
    card = _card(known.levers[name], run)
    changes = diff(run, known.levers[name]().edit(run))
    lines = [f"{name}: {card['says']}", "settings"]
    lines += [f"  {setting} = {facts['default']}  ({facts['type']})" for setting, facts in card["settings"].items()]
    lines += [f"changes in {recipe}", *(f"  {change.path}: {change.before} -> {change.after}" for change in changes)]
    lines += ["cost of a step", "  " + ", ".join(f"{what} x {value:.3f}" for what, value in card["cost"].items())]
    lines += ["claims", *(f"  {claim['metric']} {claim['change']:+g} at {claim['scope']} ({claim['source']})"
                          + (f"\n    {claim['note']}" if claim["note"] else "") for claim in card["claims"])]
    lines += [f"warning: {card['warns']}"] if card["warns"] else []
    emit({**card, "diff": [change._asdict() for change in changes]}, as_json, "\n".join(lines))


@app.command()
def pages(folder: Path, as_json: Json = False) -> None:
    """Write one page for each lever into FOLDER: what it changes and costs, what was claimed and measured, conflicts."""
    from fulcrum.audit.pages import write
    from fulcrum.levers.catalog import CATALOG
    made = write(CATALOG, folder)
    emit({"files": [str(path) for path in made]}, as_json, f"{len(made)} pages under {folder}")


def _recipe(known: Any, name: str) -> Any:
    if name not in known.recipes:
        raise BadInput(f"no recipe is called '{name}'", nearest(name, known.recipes))
    return known.recipes[name]()


def _card(cls: Any, run: Any) -> dict[str, Any]:
    lever = cls()
    settings = {name: {"type": str(field.annotation).replace("typing.", "").removeprefix("<class '").removesuffix("'>"),
                       "default": field.default} for name, field in cls.model_fields.items()}
    return {"name": cls.name, "says": cls.card.says, "settings": settings, "touches": list(cls.touches),
            "affects": list(cls.affects), "cost": lever.cost(run).model_dump(),
            "claims": [claim.model_dump() for claim in cls.card.claims], "warns": cls.card.warns}


def _short(card: dict[str, Any]) -> str:
    claims = "; ".join(f"{claim['metric']} {claim['change']:+g} ({claim['scope']})" for claim in card["claims"][:1])
    return f"flops x {card['cost']['flops']:.2f}" + (f" · claimed: {claims}" if claims else " · no number was published")
