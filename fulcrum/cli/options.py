"""Options that commands share, and how they speak: people on stderr and stdout, scripts by one JSON line."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulcrum.spec.errors import BadInput
from fulcrum.spec.printable import shown_lines

if TYPE_CHECKING:
    from fulcrum.spec.phrase import Catalogue, Phrase
    from fulcrum.spec.system import Device, System
    from fulcrum.train.run_folder import RunFolder

Seed = Annotated[
    int, typer.Option(min=0, max=9 * 10**18, help="Decides the weights' start, the order of the data and every draw.")
]
Images = Annotated[int | None, typer.Option(min=1, help="Budget: images seen in training (part of the run's key).")]
Out = Annotated[Path, typer.Option(help="Where runs are kept.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a slot of the recipe: --set optim.lr=2e-4. Repeatable."),
]
Files = Annotated[list[Path] | None, typer.Option("--levers", metavar="FILE", help="A Python file with your own levers.")]
Price = Annotated[
    float | None,
    typer.Option(
        min=0.0, metavar="PER_HOUR", help="What an hour of the machine costs: the cost is then told in money too."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Json = Annotated[bool, typer.Option("--json", help="Progress to stderr; the last line of stdout is one JSON object.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; default: OMP_NUM_THREADS, or all cores.")]
Compile = Annotated[
    bool | None,
    typer.Option("--compile/--no-compile", help="Compile the blocks; default: for runs long enough to repay it."),
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device", metavar="cpu|cuda", help="Where to compute; a GPU is never chosen by itself: docs/on-a-gpu.md."
    ),
]

OUT = Path("runs")
MOST_THREADS = 4  # for each core
KEY = re.compile("[0-9a-f]{16}")  # what the folder of a run is called
WORTH_COMPILING = 30_000  # images; a cold compile takes about half a minute


def speaks() -> bool:
    """Of the processes that torchrun starts, the first of each machine speaks: what they all say is said once."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("LOCAL_RANK", "0") == "0"


def say(text: str) -> None:
    """To the person, never into a script's output; what came from a file cannot steer the terminal."""
    if speaks():
        print(shown_lines(text), file=sys.stderr, flush=True)


def emit(value: Mapping[str, Any] | list[Any], as_json: bool, text: str = "") -> None:
    """The result of a command: one JSON line, or the text."""
    if as_json:
        print(json.dumps(value))
    elif text:
        print(shown_lines(text))


def catalogue(files: Iterable[Path] | None) -> "tuple[Catalogue, dict[str, str]]":
    from fulcrum.levers.catalog import with_files

    return with_files(files or ())


def read_phrase(
    text: str, files: list[Path] | None, settings: list[str] | None, images: int | None
) -> "tuple[Phrase, dict[str, str]]":
    """The phrase, with the settings and the budget that were given, and the hashes of the user's files."""
    from fulcrum.levers.catalog import files_of
    from fulcrum.spec.phrase import parse

    known, hashes = catalogue(files)
    wanted = [*(settings or []), *([f"budget.images={images}"] if images is not None else [])]
    phrase = parse(text, known, wanted)
    return phrase, files_of(phrase, hashes)


def find_run(name: str, out: Path) -> Path:
    """The folder of a run by path, key or the beginning of its key."""
    if "/" in name or (name.strip(".") and Path(name).is_dir()):
        path = Path(name).resolve()
        if not (path / "about.json").is_file() or not KEY.fullmatch(path.name):
            raise BadInput(f"{path} is not the folder of a run", "list the runs with: fulcrum runs list")
        return path
    found = [
        path.parent
        for path in sorted(out.glob("*/about.json"))
        if name and path.parent.name.startswith(name) and KEY.fullmatch(path.parent.name)
    ]
    if len(found) != 1:
        what = "no run" if not found else f"{len(found)} runs"
        raise BadInput(
            f"{what} under {out} whose key begins with '{name}'", "list the runs with: fulcrum runs list --out " + str(out)
        )
    return found[0]


def note_unfinished(folder: "RunFolder") -> None:
    """Say so when a run is drawn or measured before its end: its pictures are not what it will draw."""
    if folder.result() is None:
        from fulcrum.train import checkpoint

        saved = checkpoint.listing(folder.checkpoints)
        say(f"note: this run is not finished; it stands at {int(saved[-1].name) if saved else 0:,} images")


def device_named(text: str) -> "Device":
    """The device that was asked for, if it is one and this machine has it."""
    from fulcrum.dist.device import require_device

    if text not in ("cpu", "cuda"):
        raise BadInput(f"no device is called '{text}'", "write --device cpu or --device cuda")
    require_device(text)
    return "cuda" if text == "cuda" else "cpu"


def system(threads: int | None, compile_blocks: bool | None, images: int, device: str = "cpu") -> "System":
    """What only changes speed; chosen from what the machine has when nobody says."""
    from fulcrum.spec.system import System

    found = device_named(device)
    threads = thread_count(threads)
    wanted = images >= WORTH_COMPILING if compile_blocks is None else compile_blocks
    if wanted and not can_compile():
        say("no C++ compiler was found: running without compilation, which is slower; install g++ to change that")
        wanted = False
    import torch

    torch.set_num_threads(threads)
    return System(device=found, threads=threads, compile=wanted)


def thread_count(asked: int | None) -> int:
    """As many as were asked for, else what OMP_NUM_THREADS says, else every core this process may use.

    Two threads beside a busy neighbour are several times slower than one: the environment's word counts.
    """
    if asked is not None and asked > MOST_THREADS * (os.cpu_count() or 1):
        raise BadInput(
            f"--threads {asked} for {os.cpu_count()} cores would only wait for each other",
            "give at most the number of cores",
        )
    from fulcrum.spec.system import cores

    told = os.environ.get("OMP_NUM_THREADS", "")
    return asked or (int(told) if told.isdigit() and int(told) else cores())


def can_compile() -> bool:
    import shutil

    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))
