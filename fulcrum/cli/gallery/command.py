"""fulcrum gallery: several runs draw what a person types, side by side on a local page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fulcrum.cli.options import OUT, DeviceName, Files, Json, Out, catalogue, emit, say
from fulcrum.spec.errors import BadInput
from fulcrum.spec.progress import awaited

if TYPE_CHECKING:
    from fulcrum.cli.gallery.runs import Collection
    from fulcrum.spec.run import RunSpec


PROMPTS = 6  # examples on the page


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: fulcrum gallery RUN")(gallery)


def gallery(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Runs by folder, key or beginning of a key; none: all that are there.",
        ),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAN_OR_FOLDER", help="The arms of this study instead, under one seed."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=(
                "With --study: show the cells of this training seed; default: the first that most"
                " arms have."
            ),
        ),
    ] = None,
    out: Out = OUT,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8124,
    levers: Files = None,
    device: DeviceName = "cpu",
    threads: Annotated[
        int,
        typer.Option(
            min=1,
            help=(
                "CPU threads of a drawing. More than one pays for large models on a machine at"
                " rest."
            ),
        ),
    ] = 1,
    as_json: Json = False,
) -> None:
    """Open a page on this machine: type a prompt, and see runs draw it side by side from the same
    noise.

    With sliders over guidance, steps and the points of the training whose weights were kept (train
    --keep-checkpoints). It needs no network, and answers this machine only.
    """
    import torch

    from fulcrum.cli.gallery.runs import OpenModels, arms_of, named_runs
    from fulcrum.cli.gallery.server import DrawingDesk, sample_options, serve_gallery
    from fulcrum.training.dist.choose_system import device_named, thread_count

    device_named(device)  # refused before anything is looked for
    if study is not None and runs:
        raise BadInput(
            "a gallery shows runs or the arms of a study", "leave out the runs, or --study"
        )
    if seed is not None and study is None:
        raise BadInput(
            "--seed chooses among the cells of a study",
            "add --study; the seed of the noise is on the page",
        )
    known, hashes = catalogue(levers)
    with awaited("reading the runs", say):
        collection = (
            named_runs(runs or (), out, known.fillers)
            if study is None
            else arms_of(_folder(study, out, hashes), seed, known.fillers)
        )
        prompts = _prompts(collection.exhibits[0].run)
    torch.set_num_threads(thread_count(threads))
    place = out if collection.study is None else collection.study.parent
    desk = DrawingDesk(
        collection, OpenModels(device), sample_options(place, OUT, levers or (), device)
    )

    def ready(address: str) -> None:
        say(f"{_summary(collection)}\n{address}   (Ctrl-C ends it)")
        emit(
            {"gallery": address, "runs": [exhibit.key for exhibit in collection.exhibits]}, as_json
        )

    serve_gallery(desk, prompts, port, ready)


def _summary(collection: "Collection") -> str:
    lines = [
        (
            f"{collection.title}: {len(collection.exhibits)} of them"
            if collection.study
            else collection.title
        )
    ]
    facts = [exhibit.facts() for exhibit in collection.exhibits]
    lines += [f"  {one['name']}: {one['state']}" for one in facts if one["state"]]
    return "\n".join(
        [*lines, *(f"  {one.name} is not shown: {one.reason}" for one in collection.absent)]
    )


def _prompts(run: "RunSpec") -> list[str]:
    """Held-out captions of the first run's data; none where the data is not here: they are only
    examples."""
    from fulcrum.measure.evaluation import prompts
    from fulcrum.spec.errors import FulcrumError

    try:
        return list(dict.fromkeys(prompts(run, PROMPTS).texts))
    except (FulcrumError, OSError, ValueError):
        return []


def _folder(study: Path, out: Path, hashes: dict[str, str]) -> Path:
    """Of a study that is named by its folder, or by its plan."""
    from fulcrum.studies.frozen_plan import folder_of, same_but_threads
    from fulcrum.studies.plan_file import load

    if study.is_dir():
        return study
    plan = load(study)
    folder = folder_of(plan, out, hashes)
    return folder if folder.is_dir() else same_but_threads(plan, out) or folder
