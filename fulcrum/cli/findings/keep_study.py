"""fulcrum study keep, verify, migrate: a study's numbers in a small folder, and the proof that they hold."""

from pathlib import Path
from typing import Annotated

import typer

from fulcrum.cli.options import OUT, Files, Json, Out, catalogue, emit, say
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.progress import Tally, awaited

Folder = Annotated[Path, typer.Argument(help="Where it is kept, such as docs/evidence/NAME.")]


def register_keep(study: typer.Typer) -> None:
    study.command("keep", epilog="Example: fulcrum study keep examples/quick.toml docs/evidence/quick")(keep_command)
    study.command("verify", epilog="Example: fulcrum study verify docs/evidence/replication --rerun 3")(verify_command)
    study.command("migrate", hidden=True, epilog="Example: fulcrum study migrate docs/evidence")(migrate_command)


def keep_command(
    plan: Annotated[Path, typer.Argument(help="The plan that was run, or is running.")],
    folder: Folder,
    out: Out = OUT,
    levers: Files = None,
    as_json: Json = False,
) -> None:
    """Keep the finished cells of a study in a small folder: numbers and cards, one seed's pictures, no weights.

    Asked again, it adds the cells that were finished since. From such a folder another machine goes on: fulcrum study
    merge PLAN FOLDER --out runs, then fulcrum study run PLAN.
    """
    from fulcrum.studies.kept import keep

    known, hashes = catalogue(levers)
    command = " ".join(["fulcrum study run", str(plan), *(f"--with {path}" for path in levers or ())])
    result, new = keep(plan, known, out, folder, command, hashes)
    done, total = result.progress.done + result.progress.failed, result.progress.total
    emit(
        {"folder": str(folder), "new": new, "done": done, "total": total, "state": result.state},
        as_json,
        f"{folder} keeps {done} of {total} cells, {new} of them new",
    )


def verify_command(
    folder: Annotated[Path, typer.Argument(help="A kept study, or a folder of several.")],
    levers: Files = None,
    rerun: Annotated[int, typer.Option(min=0, help="Train so many cells anew, and compare the weights' hashes.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Decides which cells are trained anew.")] = 0,
    as_json: Json = False,
) -> None:
    """Judge kept studies again from their cells: every number, verdict and code of a remark must come out as it was kept.

    Of a study that was run with files of one's own, which are not named here, the effects at equal images are judged again
    from the pairs of its cells, and what needs those files is not: the output says what.

    With --rerun, some cells are trained anew from their descriptions; on the same kind of machine the weights are equal to
    the bit.
    """
    from fulcrum.studies.kept import kept_studies
    from fulcrum.studies.kept import rerun as train_again
    from fulcrum.studies.verify import named, require_asked, verify
    from fulcrum.training.dist.compiled_code import compiles_here

    known, hashes = catalogue(levers)
    facts, lines, wrong = list[dict[str, object]](), list[str](), 0
    studies = kept_studies(folder)
    require_asked(studies, hashes)
    tally = Tally("judged again", len(studies), say, "studies")
    for done, study in enumerate(studies, 1):
        with awaited(f"judging {study} again", say):
            checked = verify(study, known, hashes)
        tally.tell(done)
        if checked.differences:
            lines.append(f"{study}: {checked.words}; {len(checked.differences)} differ from what was kept:")
            lines.append(named(checked.differences))
        else:
            lines.append(f"{study}: {checked.words}, all as kept")
        answers = (
            train_again(study, known, rerun, say, hashes, compile_blocks=compiles_here(say), seed=seed) if rerun else []
        )
        for cell, kept, trained in answers:
            same = "the same weights" if kept == trained else f"other weights: kept {kept[:12]}, found {trained[:12]}"
            lines.append(f"  {cell.arm}, seed {cell.seed} ({cell.key}), trained anew: {same}")
        other = sum(kept != trained for _, kept, trained in answers)
        wrong += len(checked.differences) + other
        facts.append(
            {
                "study": str(study),
                "cells": checked.cells,
                "effects": checked.effects,
                "held_against_themselves": checked.others,
                "whole": checked.whole,
                "differences": checked.differences,
                "rerun": len(answers),
                "other_weights": other,
            }
        )
    emit(facts, as_json, "\n".join(lines))
    if wrong:
        raise RunFailed(
            f"{wrong} things came out otherwise than they were kept",
            "the cells were edited, the code judges in another way now, or (weights only) the machine is of another kind",
        )


def migrate_command(
    folder: Annotated[Path, typer.Argument(help="A kept study, or a folder of several.")],
    levers: Files = None,
    as_json: Json = False,
) -> None:
    """Write kept results again as this version writes them, from their cells, which stay as they are.

    Numbers and verdicts must follow from the cells. A study that was run with files of one's own, which are not named
    here, is left as it is.
    """
    from fulcrum.studies.kept import kept_studies
    from fulcrum.studies.verify import migrate, own_files, require_asked

    known, hashes = catalogue(levers)
    studies, facts = kept_studies(folder), list[dict[str, str]]()
    require_asked(studies, hashes)
    for study in studies:
        if not own_files(study).keys() <= hashes.keys():
            what = "left as it is: it needs its --with FILE"
        else:
            what = "written again" if migrate(study, known, hashes) else "current"
        facts.append({"study": str(study), "result": what})
    emit(facts, as_json, "\n".join(f"{fact['study']}: {fact['result']}" for fact in facts))
