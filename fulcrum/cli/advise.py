"""fulcrum advise: which decision to try next, from what was measured, here and elsewhere, and what
was published."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fulcrum.cli.options import OUT, Files, Json, Out, Set, catalogue, emit
from fulcrum.files.paths import require_free
from fulcrum.spec.errors import BadInput

if TYPE_CHECKING:
    from fulcrum.spec.phrase import Catalogue


def register(parent: typer.Typer) -> None:
    parent.command("advise", epilog='Example: fulcrum advise "spark + muon"')(advise_command)


def advise_command(
    phrase: Annotated[
        str | None,
        typer.Argument(
            help='A recipe with the levers that are on already: spark, or "pocket + muon".'
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="HOURS",
            help="Of this machine: what of the next study fits. Takes a few steps.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Write the plan that would settle the three most promising.",
        ),
    ] = None,
    backtest: Annotated[
        bool,
        typer.Option(
            "--backtest",
            help="How good is such advice? Leave out what was measured, predict it, compare.",
        ),
    ] = False,
    whole: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Every lever, and why some cannot be added; else the first six of each group.",
        ),
    ] = False,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Another table of measured rows than the one that ships."
        ),
    ] = None,
    out: Out = OUT,
    settings: Set = None,
    levers: Files = None,
    as_json: Json = False,
) -> None:
    """Order the levers that a run does not have yet by expected gain for the time they take.

    Pooled from the studies that ship, your own finished ones under --out, and published claims, of
    which the sign alone counts. Each line says how it is known: measured here, measured elsewhere,
    claimed only, nobody knows (docs/advice.md).
    """
    if to is not None:
        require_free(to)  # before anything that takes time
    known, hashes = catalogue(levers)
    if measured is not None and not measured.is_file():
        raise BadInput(
            f"there is no table at {measured}", "leave --measured out for the one that ships"
        )
    if backtest:
        return _back_test(known, out, measured, as_json)
    if phrase is None:
        raise BadInput(
            "nothing was named to advise on", "fulcrum advise spark, or see: fulcrum advise --help"
        )
    from fulcrum.advice.advice import advise, next_plan, text

    advice = advise(phrase, known, out, settings or (), measured)
    facts, words = advice.plain(), text(advice, whole=whole)
    if to is not None or budget is not None:
        following = next_plan(advice, known, out, budget, hashes)
        if to is not None:
            following.write(to)
        words += f"\n\n{following.words(to)}"
        facts["next"] = {
            "arms": [one.arm for one in following.levers],
            "pairs": following.pairs,
            "hours": following.hours,
            "remarks": following.remarks,
            "plan": str(to) if to else None,
        }
    emit(facts, as_json, words)


def _back_test(known: "Catalogue", out: Path, measured: Path | None, as_json: bool) -> None:
    from fulcrum.advice.back_test import back_test, back_test_text
    from fulcrum.advice.effect_pool import known_effects
    from fulcrum.studies.plan import Plan

    scores = back_test(
        known_effects(known, out, measured), known, Plan.model_fields["primary"].default
    )
    emit({"scores": [score.plain() for score in scores]}, as_json, back_test_text(scores))
