"""fulcrum levers: list levers, write their pages, and check a lever of your own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulcrum.cli.options import Files, Json, catalogue, emit, say
from fulcrum.spec.errors import BadInput, RunFailed, nearest
from fulcrum.spec.progress import Tally, awaited

if TYPE_CHECKING:
    from fulcrum.spec.run import Device


# --------------------------------------------------------------------------------------------------
# fulcrum levers check: hold a lever to the laws that every lever of the catalogue keeps.


Names = Annotated[
    list[str] | None, typer.Argument(help="Levers to try; default: those of the given files.")
]


def register_check(parent: typer.Typer) -> None:
    parent.command("check", epilog="Example: fulcrum levers check tread")(check_levers)


def check_levers(names: Names = None, levers: Files = None, as_json: Json = False) -> None:
    """Try levers on tiny real models: what they declare, whether they commute, are really on,
    resume, leave, cost.

    A lever that breaks a law would make a study say something untrue. Half a minute for one.
    """
    known, _ = catalogue(levers)
    built_in, _ = catalogue(None)
    chosen = list(names or [name for name in known.levers if name not in built_in.levers])
    if not chosen:
        raise BadInput(
            "no lever was named",
            "give a file with --with my_lever.py, or names: fulcrum levers check tread muon",
        )
    for name in chosen:
        if name not in known.levers:
            raise BadInput(f"no lever is called '{name}'", nearest(name, known.levers))
    verdicts = tried_levers(known, chosen, levers or [])
    broken = [one for one in verdicts if one["broken"]]
    if broken and not as_json:
        raise RunFailed(
            f"{len(broken)} of {len(verdicts)} (lever, law) pairs are broken",
            "correct the lever: docs/write-a-lever.md",
        )
    emit(
        {"pairs": len(verdicts), "broken": len(broken), "laws": verdicts},
        as_json,
        f"all {len(verdicts)} (lever, law) pairs hold",
    )
    if broken:
        raise typer.Exit(1)


def tried_levers(
    known: Any, chosen: list[str], files: list[Path], device: "Device" = "cpu"
) -> list[dict[str, Any]]:
    """Every law over every chosen lever. That one process equals two is asked of the CPU only:
    elsewhere it wants two."""
    import tempfile
    import warnings

    import torch

    from fulcrum.levers.laws import LAWS, BrokenLaw, Court
    from fulcrum.levers.two_processes import verdicts
    from fulcrum.spec.phrase import described
    from fulcrum.spec.run import System

    torch.set_num_threads(1)
    tried: list[dict[str, Any]] = []
    tally = Tally(
        "tried", len(chosen) * len(LAWS), say, "laws; after them one process is held against two"
    )
    with tempfile.TemporaryDirectory() as folder:
        court = Court(known, Path(folder), System(device=device))
        for name in chosen:
            for law, hold in LAWS.items():
                problem = ""
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        hold(court.case(known.levers[name]()))
                except BrokenLaw as error:
                    problem = str(error)
                # the user's own code may raise anything: it is a finding
                except Exception as error:
                    problem = f"'{name}' failed: {described(error)}"
                tried.append(_verdict(name, law, (hold.__doc__ or "").split("\n")[0], problem))
                tally.tell(len(tried))
        if device != "cpu":
            return tried
        folder_of_two = Path(folder) / "world"
        folder_of_two.mkdir()
        try:
            with awaited("one process is held against two", say):
                together = verdicts(chosen, known, folder_of_two, tuple(files))
        except Exception as error:
            together = dict.fromkeys(
                chosen, f"two processes failed: {described(error)}\n{getattr(error, 'hint', '')}"
            )
        tried += [
            _verdict(name, "world", "One process equals two.", problem)
            for name, problem in together.items()
        ]
    return tried


def _verdict(lever: str, law: str, says: str, problem: str) -> dict[str, Any]:
    say(f"{lever:<24} {law:<10} {'BROKEN  ' + problem if problem else 'holds'}")
    return {"lever": lever, "law": law, "says": says, "broken": problem}


# --------------------------------------------------------------------------------------------------
# fulcrum levers: what we may change, what it costs and what was claimed.


app = typer.Typer(
    invoke_without_command=True,
    help="What we may change: all levers, or one lever's card.",
    epilog="Example: fulcrum levers --recipe spark",
)
RECIPE = "pocket"
Base = Annotated[str, typer.Option(help="The recipe that costs and differences are stated for.")]


def register(parent: typer.Typer) -> None:
    register_check(app)
    parent.add_typer(app, name="levers")


@app.callback()
def listing(
    context: typer.Context, recipe: Base = RECIPE, levers: Files = None, as_json: Json = False
) -> None:
    """All levers with their cost and what was claimed of them."""
    if context.invoked_subcommand:
        return
    from fulcrum.levers.catalog import with_sound_files

    known, _, problems = with_sound_files(levers or ())
    base = known.recipe(recipe)
    cards = []
    for kinds, card_of in ((known.levers, _card), (known.bundles, _bundle)):
        for kind in kinds.values():
            try:
                cards.append(card_of(known, kind, recipe, base))
            except BadInput as error:
                problems.append(error)
    width = max(len(card["name"]) for card in cards)
    lines = [
        f"levers, with what a training step of the recipe '{recipe}' costs with each over"
        " without it" + (" (another recipe: --recipe NAME)" if recipe == RECIPE else ""),
        "",
        *(
            f"{card['name']:<{width}}  {card['says']}\n{'':<{width}}  {_short(card, recipe)}"
            for card in cards
        ),
    ]
    emit(
        cards,
        as_json,
        "\n".join(lines) + "\n\none lever: fulcrum levers show NAME · as pages: docs/levers",
    )
    _tell(problems)


@app.command(epilog="Example: fulcrum levers show tread")
def show(name: str, recipe: Base = RECIPE, levers: Files = None, as_json: Json = False) -> None:
    """One lever: its settings, what it changes in a recipe, what it costs, what was claimed where,
    what we measured."""
    from fulcrum.levers.catalog import with_sound_files

    known, _, problems = with_sound_files(levers or ())
    base = known.recipe(recipe)
    if name in known.bundles:
        card = _bundle(known, known.bundles[name], recipe, base)
    elif name in known.levers:
        card = _card(known, known.levers[name], recipe, base)
    elif problems:  # it may stand in the file that cannot be used
        raise problems[0]
    else:
        raise BadInput(
            f"no lever is called '{name}'", nearest(name, [*known.levers, *known.bundles])
        )
    from fulcrum.levers.measured_table import in_sum, read_measured

    card["measured"] = [row for row in read_measured() if row["lever"] == name]
    parts = [f"a bundle of: {' + '.join(card['parts'])}"] if card["parts"] else []
    sum_of_all = [here] if (here := in_sum(card["measured"])) else []
    lines = [
        f"{name}: {card['says']}",
        *sum_of_all,
        *parts,
        *(["settings"] if card["settings"] else []),
    ]
    lines += [
        f"  {setting} = {facts['default']} "
        f" ({', in '.join(filter(None, (facts['type'], facts['range'])))})"
        for setting, facts in card["settings"].items()
    ]
    lines += [
        f"changes in {card['tried_on']}",
        *(
            f"  {change['path']}: {change['before']} -> {change['after']}"
            for change in card["diff"]
        ),
    ]
    lines += [f"  {text}" for text in card["in_run"]]
    lines += [
        "cost of a step there",
        "  " + ", ".join(f"{what} x {value:.3f}" for what, value in card["cost"].items()),
    ]
    claims = [
        f"  {claim['metric']} {claim['change']:+g} at {claim['scope']} ({claim['source']})"
        + (f"\n    {claim['note']}" if claim["note"] else "")
        for claim in card["claims"]
    ]
    lines += ["claims", *claims] if claims else []
    lines += ["measured here", *map(_found, card["measured"])] if card["measured"] else []
    lines += [f"warning: {card['warns']}"] if card["warns"] else []
    emit(card, as_json, "\n".join(lines))
    _tell(problems)


@app.command(epilog="Example: fulcrum levers pages docs/levers")
def pages(folder: Path, as_json: Json = False) -> None:
    """Write one page for each lever into FOLDER: what it changes and costs, what was claimed and
    measured, conflicts."""
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.levers.lever_pages import write

    made = write(CATALOG, folder)
    emit({"files": [str(path) for path in made]}, as_json, f"{len(made)} pages under {folder}")


def _tell(problems: list[BadInput]) -> None:
    """The others are listed; what cannot be used is said after them."""
    for problem in problems:
        say(f"error: {problem}")
    if problems:
        raise typer.Exit(BadInput.exit_code)


def _card(known: Any, cls: Any, recipe: str, run: Any) -> dict[str, Any]:
    lever = cls()
    where, run = _place(known, (lever,), recipe, run)
    return _facts(cls, where, run, (lever,)) | {
        "touches": list(cls.touches),
        "affects": list(cls.affects),
        "parts": [],
    }


def _bundle(known: Any, cls: Any, recipe: str, run: Any) -> dict[str, Any]:
    parts = cls().parts()
    where, run = _place(known, parts, recipe, run)
    return _facts(cls, where, run, parts) | {
        "touches": sorted({slot for part in parts for slot in part.touches}),
        "affects": sorted({what for part in parts for what in part.affects}),
        "parts": [str(part) for part in parts],
    }


def _facts(cls: Any, where: str, run: Any, levers: tuple[Any, ...]) -> dict[str, Any]:
    from fulcrum.levers.base import Cost
    from fulcrum.spec.edit import diff
    from fulcrum.spec.phrase import ask, edited_by, home
    from fulcrum.spec.words import setting_words

    settings = {name: setting_words(field)._asdict() for name, field in cls.model_fields.items()}
    edited, cost = run, {"flops": 1.0, "memory": 1.0, "parameters": 1.0}
    for lever in levers:  # of a bundle each part costs what it adds to those before it
        own = ask(lever, "cost", edited)
        if not isinstance(own, Cost):
            raise BadInput(
                f"the cost of '{lever.name}'{home(lever)} is {own!r}, not a Cost",
                "see docs/write-a-lever.md",
            )
        cost = {what: value * getattr(own, what) for what, value in cost.items()}
        edited = edited_by(lever, edited)
    return {
        "name": cls.name,
        "says": cls.card.says,
        "settings": settings,
        "cost": cost,
        "tried_on": where,
        "claims": [claim.model_dump() for claim in cls.card.claims],
        "warns": cls.card.warns,
        "diff": [change._asdict() for change in diff(run, edited)],
        "in_run": [text for lever in levers if (text := ask(lever, "in_run", edited))],
    }


def _place(known: Any, levers: tuple[Any, ...], recipe: str, run: Any) -> tuple[str, Any]:
    """The recipe, or, for what does not fit it, the first ground of the laws that it fits, and
    why."""
    from fulcrum.levers.laws import GROUNDS, fits, grounds
    from fulcrum.spec.edit import put
    from fulcrum.training.fillers import StandIn

    why = fits(levers, run)
    if why is None:
        return recipe, run
    begun = put(run, "start", StandIn())
    if fits(levers, begun) is None:
        return f"{recipe} with weights to begin from", begun
    for ground in grounds(known):
        if fits(levers, ground.run) is None:
            settings = ", ".join(GROUNDS[ground.name]) or "latents"
            why = why.removeprefix(f"'{levers[0].name}' cannot be used here: ")
            return f"a tiny run ({settings}); {recipe} as it is cannot take it: {why}", ground.run
    return recipe, run


def _found(row: dict[str, Any]) -> str:
    return (
        f"  {row['metric']} {row['change']:+.4g} [{row['low']:+.4g}, {row['high']:+.4g}] on"
        f" {row['recipe']}, {row['pairs']} pairs: {row['verdict']} ({row['date']}, science"
        f" {row['science']})" + (f"\n    {row['note']}" if row["note"] else "")
    )


def _short(card: dict[str, Any], recipe: str) -> str:
    """Its cost, and the first of its claims; where the recipe cannot take the lever, the cost is
    that of a tiny run."""
    cost = f"flops x {card['cost']['flops']:.2f}"
    cost += (
        ""
        if card["tried_on"].startswith(recipe)
        else f" (of a tiny run; why {recipe} cannot take it: fulcrum levers show {card['name']})"
    )
    if card["parts"]:
        return f"a bundle of {' + '.join(card['parts'])} · {cost}"
    if not card["claims"]:
        return f"{cost} · no number was published"
    first, *more = card["claims"]
    return f"{cost} · claimed: {first['metric']} {first['change']:+g} ({first['scope']})" + (
        f", and {len(more)} more: fulcrum levers show {card['name']}" if more else ""
    )
