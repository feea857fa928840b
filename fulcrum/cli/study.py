"""fulcrum study, report: plan, run, keep and verify studies."""

import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli.options import OUT, Files, Json, Out, Quiet, Threads, Timeout, catalogue, emit, say
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.progress import Tally, awaited

# --------------------------------------------------------------------------------------------------
# fulcrum study keep, verify, migrate: a study's numbers in a small folder, and the proof that they
# hold.


Folder = Annotated[Path, typer.Argument(help="Where it is kept, such as docs/evidence/NAME.")]


def register_keep(study: typer.Typer) -> None:
    study.command(
        "keep", epilog="Example: fulcrum study keep examples/quick.toml docs/evidence/quick"
    )(keep_command)
    study.command(
        "verify", epilog="Example: fulcrum study verify docs/evidence/replication --rerun 3"
    )(verify_command)
    study.command("migrate", hidden=True, epilog="Example: fulcrum study migrate docs/evidence")(
        migrate_command
    )


def keep_command(
    plan: Annotated[Path, typer.Argument(help="The plan that was run, or is running.")],
    folder: Folder,
    out: Out = OUT,
    levers: Files = None,
    as_json: Json = False,
) -> None:
    """Keep the finished cells of a study in a small folder: numbers and cards, one seed's pictures,
    no weights.

    Asked again, it adds the cells that were finished since. From such a folder another machine goes
    on: fulcrum study merge PLAN FOLDER --out runs, then fulcrum study run PLAN.
    """
    from fulcrum.studies.kept import keep

    known, hashes = catalogue(levers)
    command = " ".join(
        ["fulcrum study run", str(plan), *(f"--with {path}" for path in levers or ())]
    )
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
    rerun: Annotated[
        int, typer.Option(min=0, help="Train so many cells anew, and compare the weights' hashes.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Decides which cells are trained anew.")] = 0,
    as_json: Json = False,
) -> None:
    """Judge kept studies again from their cells: every number, verdict and code of a remark must
    come out as it was kept.

    Of a study that was run with files of one's own, which are not named here, the effects at equal
    images are judged again from the pairs of its cells, and what needs those files is not: the
    output says what.

    With --rerun, some cells are trained anew from their descriptions; on the same kind of machine
    the weights are equal to the bit.
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
            lines.append(
                f"{study}: {checked.words}; {len(checked.differences)} differ from what was kept:"
            )
            lines.append(named(checked.differences))
        else:
            lines.append(f"{study}: {checked.words}, all as kept")
        answers = (
            train_again(
                study, known, rerun, say, hashes, compile_blocks=compiles_here(say), seed=seed
            )
            if rerun
            else []
        )
        for cell, kept, trained in answers:
            same = (
                "the same weights"
                if kept == trained
                else f"other weights: kept {kept[:12]}, found {trained[:12]}"
            )
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
            "the cells were edited, the code judges in another way now, or (weights only) the"
            " machine is of another kind",
        )


def migrate_command(
    folder: Annotated[Path, typer.Argument(help="A kept study, or a folder of several.")],
    levers: Files = None,
    as_json: Json = False,
) -> None:
    """Write kept results again as this version writes them, from their cells, which stay as they
    are.

    Numbers and verdicts must follow from the cells. A study that was run with files of one's own,
    which are not named here, is left as it is.
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


# --------------------------------------------------------------------------------------------------
# fulcrum study, report.


PlanFile = Annotated[
    Path,
    typer.Argument(help="A plan, such as examples/quick.toml; quick alone is the shipped one."),
]
ExecutorKind = Annotated[
    str, typer.Option("--executor", help="local: processes here; ray: a Ray cluster.")
]

app = typer.Typer(
    no_args_is_help=True,
    help="A controlled comparison of training decisions: plan it, run it, read it.",
)


def register(parent: typer.Typer) -> None:
    register_keep(app)
    parent.add_typer(app, name="study")
    parent.command(epilog="Example: fulcrum report --watch")(report)


@app.command("plan", epilog="Example: fulcrum study plan quick")
def plan_command(
    plan: PlanFile,
    out: Out = OUT,
    levers: Files = None,
    timed: Annotated[
        bool,
        typer.Option(
            "--time/--no-time",
            help=(
                "Take a few steps of every arm: they prove that it differs, and tell how long the"
                " study will last."
            ),
        ),
    ] = True,
    executor: ExecutorKind = "local",
    as_json: Json = False,
) -> None:
    """Print what a plan would run, arm by arm with the proven differences, what it costs and what
    it can see.

    What study run would refuse is refused here.
    """
    from fulcrum.studies.arm_cost import Clock
    from fulcrum.studies.cell import lay_out
    from fulcrum.studies.estimate import estimate
    from fulcrum.studies.frozen_plan import folder_of
    from fulcrum.studies.outline import outline
    from fulcrum.studies.plan_file import load
    from fulcrum.studies.proof import is_proven, prove_by_steps, require_runnable, with_primary
    from fulcrum.studies.runner import room

    _require_executor(executor)
    read, (known, hashes) = load(plan), catalogue(levers)
    layout = lay_out(read, known, hashes, out)
    read = with_primary(read, layout.arms[0].run)
    folder = folder_of(read, out, hashes)
    require_runnable(read, layout, folder, here=executor != "ray")
    if timed and not is_proven(layout, folder):
        prove_by_steps(layout, read, None, out, Clock(), say)
    arms, space = layout.arms, room([arm.run for arm in layout.arms], read.threads, read.processes)
    estimated = estimate(read, layout, out, timed)
    emit(
        {
            "plan": read.hash,
            "primary": read.primary,
            "cells": estimated.cells,
            "finished": estimated.finished,
            "before": estimated.before,
            "flops": estimated.flops,
            "images_left": estimated.images,
            "lanes": space.lanes,
            "seconds": None if estimated.seconds is None else estimated.seconds / space.lanes,
            "detectable": estimated.detectable,
            "detectable_from": estimated.noise,
            "detectable_in_scatters": estimated.scatters,
            "arms": [
                {
                    "name": arm.name,
                    "phrase": str(arm.phrase),
                    "against": arm.against,
                    "compound": arm.compound,
                    "labels": [label.text for label in arm.labels],
                    "diff": [change._asdict() for change in arm.changes],
                }
                for arm in arms
            ],
        },
        as_json,
        outline(read, layout, estimated, space),
    )


@app.command("run", epilog="Example: fulcrum study run quick")
def run_command(
    plan: PlanFile,
    out: Out = OUT,
    levers: Files = None,
    threads: Threads = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Cells side by side; default: what there are cores and memory for."
        ),
    ] = None,
    executor: ExecutorKind = "local",
    address: Annotated[
        str | None,
        typer.Option(
            "--ray-address",
            "--address",
            help="Of a Ray cluster that is "
            "there, such as auto or host:6379; default: RAY_ADDRESS, or "
            "one is started for the study.",
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track",
            metavar="NAME",
            help="Show the cells in "
            "tensorboard or wandb too, as the plan's own `track` does; "
            "changes no number. Repeatable.",
        ),
    ] = None,
    keep_checkpoints: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1000,
            metavar="COUNT",
            help="Keep each cell's weights at so many points, for fulcrum gallery.",
        ),
    ] = None,
    timeout: Timeout = None,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed",
            help="Run cells again whose training failed; else they count as what was found.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a study. Started again after a stop it goes on: finished cells are never run twice.

    A cell whose training fails by itself (a loss that is not finite) is an outcome: the others go
    on, the page counts it.

    Ends with the path of the report, one HTML file that opens offline. The page is there, and
    growing, from the beginning on: watch it with fulcrum report --watch.
    """
    from fulcrum.studies.plan_file import load
    from fulcrum.studies.study import Executor, run
    from fulcrum.training.dist.choose_system import thread_count
    from fulcrum.training.dist.compiled_code import compiles_here

    _require_executor(executor)
    if address is not None and executor != "ray":
        raise BadInput("--ray-address names a Ray cluster", "add --executor ray")
    read, (known, hashes) = load(plan), catalogue(levers)
    if threads is not None:
        read = read.model_copy(update={"threads": thread_count(threads)})
    read = read.model_copy(update={"track": tuple(dict.fromkeys((*read.track, *(track or ()))))})
    if keep_checkpoints is not None:
        read = read.model_copy(update={"keep_checkpoints": keep_checkpoints})
    if timeout is not None:
        read = read.model_copy(update={"timeout": timeout})
    command = _command(
        plan,
        levers or (),
        {
            "--out": out if out != OUT else None,
            "--threads": threads,
            "--lanes": lanes,
            "--executor": executor if executor != "local" else None,
            "--ray-address": address,
            "--timeout": timeout,
        },
    )
    result, page = run(
        read,
        known,
        out,
        command,
        (lambda text: None) if quiet else say,
        files=tuple(levers or ()),
        user_files=hashes,
        compile_blocks=read.compile and compiles_here(say),
        executor=Executor(executor, address, lanes),
        retry_failed=retry_failed,
    )
    effects = [row.model_dump() for row in result.effects]

    emit(
        {"report": str(page), "plan": result.plan.hash, "effects": effects},
        as_json,
        f"{_summary(result)}\n\nreport: {page.resolve()}",
    )


def _require_executor(kind: str) -> None:
    if kind not in ("local", "ray"):
        raise BadInput(f"no executor is called '{kind}'", "known: local, ray")


@app.command(
    "merge", epilog="Example: fulcrum study merge examples/quick.toml other/runs --out runs"
)
def merge_command(
    plan: PlanFile,
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="The --out folders of other machines.")
    ],
    out: Out = OUT,
    levers: Files = None,
    weights: Annotated[
        bool, typer.Option("--weights/--no-weights", help="Copy the trained weights too.")
    ] = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Join the cells of one plan that several machines ran, and judge what is there.

    Finished and failed cells are verified and copied into --out, where nothing is overwritten. The
    page says which pairs ran on unlike machines, and which cells are missing.
    """
    from fulcrum.studies.merge import merge
    from fulcrum.studies.plan_file import load

    read, (known, hashes) = load(plan), catalogue(levers)
    command = _command(plan, levers or (), {"--out": out if out != OUT else None})
    result, page, joined = merge(
        read,
        known,
        folders,
        out,
        command,
        (lambda text: None) if quiet else say,
        user_files=hashes,
        weights=weights,
    )
    emit(
        {
            "report": str(page),
            "plan": result.plan.hash,
            **joined._asdict(),
            "cells": result.progress.model_dump(),
            "effects": [row.model_dump() for row in result.effects],
        },
        as_json,
        f"{_summary(result)}\n\nreport: {page.resolve()}",
    )


def _command(plan: Path, levers: Iterable[Path], options: Mapping[str, Any]) -> str:
    """What a person types to run, or to go on with, this study."""
    given = [
        word for name, value in options.items() if value is not None for word in (name, str(value))
    ]
    return shlex.join(
        [
            "fulcrum",
            "study",
            "run",
            str(plan),
            *given,
            *(word for path in levers for word in ("--with", str(path))),
        ]
    )


def _measured(row: Any) -> str:
    """Mean and interval; an arm that failed has none, one with a single pair no interval."""
    if row.mean is None:
        return "nothing to compare"
    return f"{row.mean:+.4f}" + (
        f" [{row.low:+.4f}, {row.high:+.4f}]" if row.low is not None else ""
    )


def _summary(result: Any) -> str:
    """The primary metric's findings, one line per arm."""
    rows = [
        row
        for row in result.effects
        if row.metric == result.plan.primary_metric and row.unit == "images"
    ]
    width = max((len(row.arm) for row in rows), default=0)
    return "\n".join(
        f"  {row.arm:<{width}}  {row.metric} {_measured(row)}  n={row.n}  "
        + (f"p={row.p_adjusted:.3f}  " if row.p_adjusted is not None else "")
        + row.verdict
        + (f" ({row.note})" if row.note else "")
        for row in rows
    )


def report(
    study: Annotated[
        Path | None, typer.Argument(help="A study's folder; default: the newest.")
    ] = None,
    out: Out = OUT,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Serve it on this machine only, and refresh while the study runs."
        ),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8123,
    as_json: Json = False,
) -> None:
    """Where the newest report is; with --watch, serve it on loopback."""
    page = _newest(study, out, "report.html")
    if page is None and watch and _newest(study, out, "plan.json"):
        say("the study has no page yet: waiting for it   (Ctrl-C ends it)")
        while page is None:
            time.sleep(0.5)
            page = _newest(study, out, "report.html")
    if page is None:
        raise BadInput(
            f"there is no report {'in ' + str(study) if study else 'under ' + str(out)}",
            "make one with: fulcrum study run quick; it has a page a few seconds after its start",
        )
    from fulcrum.judge.page import notice

    stopped = notice(page.parent)
    if stopped:
        say(stopped)
    if watch:
        from fulcrum.judge.serve import serve

        serve(page.parent, port, lambda address: say(f"{address}report.html   (Ctrl-C ends it)"))
    emit({"report": str(page)}, as_json, str(page.resolve()))


def _newest(study: Path | None, out: Path, name: str) -> Path | None:
    """A file of the study, or of the newest one that has it."""
    paths = [study / name] if study else out.glob(f"study-*/{name}")
    return max(
        (path for path in paths if path.is_file()),
        key=lambda path: path.stat().st_mtime,
        default=None,
    )
