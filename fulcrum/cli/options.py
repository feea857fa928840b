"""Options that commands share, and how they speak: people on stderr and stdout, scripts by one JSON
line."""

import glob
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulcrum.spec.errors import BadInput, shown_lines

if TYPE_CHECKING:
    from fulcrum.spec.phrase import Catalogue
    from fulcrum.training.run_folder import RunFolder

OUT = Path("runs")


def run_keys(context: typer.Context, incomplete: str) -> list[str]:
    """For completion in a shell: keys of the runs under --out."""
    out = Path(context.params.get("out") or OUT)
    return sorted(about.parent.name for about in out.glob(f"{glob.escape(incomplete)}*/about.json"))


def recipe_names(incomplete: str) -> list[str]:
    """For completion in a shell: the first word of a phrase."""
    from fulcrum.levers.catalog import CATALOG

    return sorted(name for name in CATALOG.recipes if name.startswith(incomplete))


RunName = Annotated[
    str,
    typer.Argument(
        help="A run: its folder, its key, or the beginning of its key.", autocompletion=run_keys
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Decides the weights' start, the order of the data and every draw; 0 or more."
    ),
]
Images = Annotated[
    int | None, typer.Option(min=1, help="Budget: images seen in training (part of the run's key).")
]
Out = Annotated[Path, typer.Option(help="Where runs are kept.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a slot of the recipe: --set optim.lr=2e-4. Repeatable.",
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        "--levers",
        "--lever",
        metavar="FILE",
        help=(
            "A Python file of your own with levers, recipes or fillers. It is executed. Repeatable."
        ),
    ),
]
Price = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="PER_HOUR",
        help="What an hour of the machine costs: the cost is then told in money too.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Json = Annotated[
    bool,
    typer.Option("--json", help="Progress to stderr; the last line of stdout is one JSON object."),
]
Mesh = Annotated[
    str | None,
    typer.Option(
        metavar="ddp|fsdp|RxS",
        help=(
            "How many processes share the weights: ddp, each has all; fsdp (default), each has a"
            " part; 2x4, two replicas of four parts."
        ),
    ),
]
Microbatch = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="ROWS",
        help=(
            "Rows of a process in one backward pass: less memory. The same run but for rounding,"
            " which training enlarges: docs/on-a-gpu.md."
        ),
    ),
]
RecomputeBlocks = Annotated[
    str | None,
    typer.Option(
        "--recompute",
        metavar="none|selective|full",
        help="Blocks whose activations are computed again instead of kept: none, every other, all.",
    ),
]
SaveEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="IMAGES",
        help=(
            "Save whenever so many images were seen; default: as often as costs under 1 % of the"
            " time."
        ),
    ),
]
OnAlarm = Annotated[
    str | None,
    typer.Option(
        "--on-alarm",
        metavar="tell|stop",
        help=(
            "What is done when a run goes wrong (loss spike, dead gradients, stalled updates, dtype"
            " drift, collapse): tell (default), stop, leave such steps out, or go back to before"
            " them. Changes no run that goes well."
        ),
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads; default: OMP_NUM_THREADS, or all cores.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        max=1e6,
        metavar="SECONDS",
        help=(
            "Of many processes: how long one waits for another that is alive; default 600. A silent"
            " one is lost after 20."
        ),
    ),
]
Compile = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        help="Compile the blocks; default: for runs long enough to repay it.",
    ),
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="cpu|cuda",
        help="Where to compute; a GPU is never chosen by itself: docs/on-a-gpu.md.",
    ),
]


def speaks() -> bool:
    """Of the processes that torchrun starts, the first of each machine speaks: what they all say is
    said once."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("LOCAL_RANK", "0") == "0"


def say(text: str) -> None:
    """To the person, never into a script's output; what came from a file cannot steer the
    terminal."""
    if speaks():
        print(shown_lines(text), file=sys.stderr, flush=True)


def heard(quiet: bool) -> Callable[[str], None]:
    """How progress is told: to the person, or not at all."""
    return (lambda text: None) if quiet else say


def emit(value: Mapping[str, Any] | list[Any], as_json: bool, text: str = "") -> None:
    """The result of a command: one JSON line, or the text."""
    if as_json:
        print(json.dumps(value))
    elif text:
        print(shown_lines(text))


def part_of(text: str) -> tuple[int, int]:
    """K and N of --part K/N."""
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and int(number) < int(of)):
        raise BadInput(f"--part is written K/N with K < N, found '{text}'")
    return int(number), int(of)


def catalogue(files: Iterable[Path] | None) -> "tuple[Catalogue, dict[str, str]]":
    from fulcrum.levers.catalog import with_files

    return with_files(files or ())


def note_unfinished(folder: "RunFolder") -> None:
    """Say so when a run is drawn or measured before its end: its pictures are not what it will
    draw."""
    if folder.result() is None:
        from fulcrum.training.trained_run import images_seen

        say(f"note: this run is not finished; it stands at {images_seen(folder):,} images")
