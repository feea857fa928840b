"""fulcrum rerun: a finished run trained once more, to see whether the same weights come out."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fulcrum.cli.options import OUT, Files, Json, Out, Quiet, RunName, Timeout, catalogue, emit, say
from fulcrum.spec.errors import BadInput

UNDECIDED = 3  # exit code: other weights, and reason to expect them


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: fulcrum rerun RUN")(rerun)


def rerun(
    run: RunName,
    out: Out = OUT,
    place: Annotated[
        Path | None,
        typer.Option(
            "--in",
            metavar="FOLDER",
            help=(
                "Where it is trained again; default: rerun-KEY beside the run, removed if all is"
                " equal."
            ),
        ),
    ] = None,
    levers: Files = None,
    timeout: Timeout = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a finished run again from its description and seed, encodings too, and compare the
    weights' hashes.

    Threads, processes, compilation and device are those that the run was saved with. Exit code 0:
    the same weights to the bit. 1: other weights on the same kind of machine, which should not be.
    3: other weights, and the machine, a version or the way it was trained is another: nothing
    follows. A run that was stopped on the way goes on; nothing of the first run is touched.
    """
    from fulcrum.files.paths import remove
    from fulcrum.training.dist.choose_system import device_named
    from fulcrum.training.dist.compiled_code import compiles_here
    from fulcrum.training.dist.ranks import TIMEOUT, processes, start
    from fulcrum.training.rerun import recorded, trained_again
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import find_run

    known, files = catalogue(levers)
    folder = RunFolder(find_run(run, out))
    own = place or folder.path.parent / f"rerun-{folder.path.name}"
    if own.resolve() == folder.path.parent.resolve():
        raise BadInput(f"{own} holds the run itself", "name another folder: --in FOLDER")
    order, before, doubts = recorded(folder, known, files, own)
    order = order._replace(quiet=quiet)
    system, here = order.system, processes(os.environ)
    device_named(system.device)
    if system.processes != here:
        raise BadInput(
            f"the run was trained by {system.processes} processes, found {here}",
            "start as many: "
            + (f"torchrun --nproc-per-node {system.processes} -m " if system.processes > 1 else "")
            + f"fulcrum rerun {folder.path}",
        )
    if system.compile and not compiles_here(say):
        order = order._replace(system=system.model_copy(update={"compile": False}))
        doubts = (*doubts, "its blocks were compiled, and there is no compiler here")
    with start(system.device, timeout or TIMEOUT) as ranks:
        found = trained_again(order, say if ranks.first else lambda text: None, ranks)
        if not ranks.first:
            return
    same = found == before
    verdict = (
        "the same weights" if same else f"other weights: recorded {before[:16]}, found {found[:16]}"
    )
    lines = [f"{order.phrase} (seed {order.seed}), {folder.path.name}, trained again: {verdict}"]
    if same and place is None:
        remove(own)
    if not same:
        lines.append(f"  what was trained is in {own}")
        lines += [f"  {doubt}" for doubt in doubts]
        lines.append(
            "  nothing follows: rerun it on a machine, and with versions, like those it was trained"
            " with"
            if doubts
            else (
                "  machine, versions and threads are the same: a part of this run is not"
                " deterministic, or a result or the installed code was changed; try it once more,"
                " then fulcrum doctor"
            )
        )
    answer = {
        "run": str(folder.path),
        "key": folder.path.name,
        "same": same,
        "recorded": before,
        "found": found,
    }
    emit({**answer, "doubts": list(doubts)}, as_json, "\n".join(lines))
    if not same:
        sys.exit(UNDECIDED if doubts else 1)
