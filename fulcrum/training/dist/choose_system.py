"""The system that a run gets when nobody says: threads, compilation and device from what this
machine has."""

import os
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import Device, System, cores

MOST_THREADS = 4  # for each core
WORTH_COMPILING = 30_000  # images; a cold compile takes about half a minute


def choose_system(
    threads: int | None,
    compile_blocks: bool | None,
    images: int,
    device: str,
    say: Callable[[str], None],
    processes: int = 1,
    **asked: Any,
) -> System:
    """What only changes speed; torch of this process is set to as many threads. `asked` are other
    fields of System, as a person gave them; a mesh must fit the number of processes."""
    from fulcrum.training.dist.collectives import mesh_shape

    given = asked_system(asked)
    mesh_shape(given.mesh, processes)
    place = device_named(device)
    threads = thread_count(threads)
    wanted = is_compiled(compile_blocks, images)
    import torch

    from fulcrum.training.dist.compiled_code import compiles_here

    wanted = wanted and compiles_here(say)
    torch.set_num_threads(threads)
    return given.model_copy(update={"device": place, "threads": threads, "compile": wanted})


def is_compiled(asked: bool | None, images: int) -> bool:
    """As asked; where nobody says, a run that is long enough is, if a compiler is at hand."""
    return images >= WORTH_COMPILING if asked is None else asked


def asked_system(asked: dict[str, Any], see: str = "fulcrum train --help") -> System:
    """The fields of System that a person gave, None where they did not."""
    try:
        return System(**{name: value for name, value in asked.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        option = f"--{str(first['loc'][0]).replace('_', '-')}"
        raise BadInput(
            f"{option}: {first['msg'].removeprefix('Value error, ')}", f"see: {see}"
        ) from None


def device_named(text: str) -> Device:
    """The device that was asked for, if it is one and this machine has it."""
    from fulcrum.training.dist.machine import require_device

    if text not in ("cpu", "cuda"):
        raise BadInput(f"no device is called '{text}'", "write --device cpu or --device cuda")
    require_device(text)
    return "cuda" if text == "cuda" else "cpu"


def thread_count(asked: int | None) -> int:
    """As many as were asked for, else what OMP_NUM_THREADS says, else every core this process may
    use.

    Two threads beside a busy neighbour are several times slower than one: the environment's word
    counts.
    """
    if asked is not None and asked > MOST_THREADS * (os.cpu_count() or 1):
        raise BadInput(
            f"--threads {asked} for {os.cpu_count()} cores would only wait for each other",
            "give at most the number of cores",
        )
    usual = os.environ.get("OMP_NUM_THREADS", "")
    return asked or (int(usual) if usual.isdigit() and int(usual) else cores())
