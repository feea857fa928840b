"""fulcrum doctor: what this machine can do, what is missing, what to do about it."""

import sys
from typing import Annotated, Any

import typer

from fulcrum.cli.options import DeviceName, Json, emit
from fulcrum.files.shipped import NAMES
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.install import install_extra
from fulcrum.spec.printable import shown

OPTIONAL = {
    "diffusers": ("diffusers", "transformers"),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "datasets": ("datasets", "pyarrow"),
}  # pyproject's groups
SIX = ("tread", "repa", "muon", "ema", "bf16_compute", "end_to_end_codec")  # levers that reach every part of a step


def register(parent: typer.Typer) -> None:
    parent.command(epilog="Example: fulcrum doctor")(doctor)


def doctor(
    laws: Annotated[
        bool, typer.Option("--laws", help="Also hold levers to the laws here, on --device: minutes. Says which laws hold.")
    ] = False,
    device: DeviceName = "cpu",
    names: Annotated[
        list[str] | None, typer.Option("--lever", metavar="NAME", help="With --laws: this lever. Repeatable; default: six.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What this machine can do, what is missing, and what to do about it. Exit code 1 if an embedded part is damaged.

    --laws trains tiny models on the device that you name and says which of the laws hold there: levers are really on, runs
    resume bit for bit, compiled equals eager, recomputed equals kept. A GPU's backward passes are not all deterministic: a
    law of equal bits may be broken there by the device and not by the lever.
    """
    if laws:
        _laws(device, names or list(SIX), as_json)
        return
    facts = _facts()
    emit(facts, as_json)
    if not as_json:
        _print(_rows(facts))
    if any(state != "ok" for state in facts["assets"].values()):
        sys.exit(1)


def _laws(device: str, names: list[str], as_json: bool) -> None:
    """Hold levers to the laws on a device of this machine; exit code 1 if one is broken."""
    from fulcrum.cli.advice.lever_check import tried_levers
    from fulcrum.dist.choose_system import device_named
    from fulcrum.levers.catalog import CATALOG

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

    from fulcrum.dist.compiled_code import compiles_here
    from fulcrum.dist.precision import has_fast_bf16

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
        ("GPU", *(("yes", "--device cuda makes use of it") if facts["cuda"] else ("none", "training runs on the CPU"))),
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
            f"not installed: {', '.join(lacking)}; when one is wanted: {install_extra(lacking[0])}" if lacking else "",
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
