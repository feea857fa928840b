"""How many cells run side by side: as many as there are cores and memory for. No torch in here."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fulcrum.spec.flops import step_memory
from fulcrum.spec.run import RunSpec
from fulcrum.spec.run import cores as machine_cores
from fulcrum.training.dist.machine import free_memory

PROCESS = 900e6  # bytes: interpreter, torch, compiled code, judge and features
SLACK = 1.5  # over the formula of a step: allocator, previews, drawing


class Room(NamedTuple):
    """What the machine has, and what a cell needs of it."""

    lanes: int
    cores: int
    memory: float  # bytes that are free
    needed: float  # by the largest cell

    def __str__(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return (
            f"{self.lanes} side by side ({cores}; a cell needs about {self.needed / 1e9:.1f} of "
            f"{self.memory / 1e9:.1f} GB free)"
        )


def room(
    runs: Iterable[RunSpec],
    threads: int,
    processes: int = 1,
    cores: int | None = None,
    memory: float | None = None,
    gpus: int | None = None,
) -> Room:
    """min(cores / threads, memory / need), at least one: a cell that does not fit fails by itself, and says so.

    `gpus` of a plan that asks for them: a process has one of its own, and cells side by side share none.

    Many processes of a cell share the step's memory; the worker that waits for them counts as one more process.
    """
    cores = cores or machine_cores()
    memory = memory or free_memory()
    needed = (PROCESS if processes == 1 else (processes + 1) * PROCESS) + SLACK * max(step_memory(run) for run in runs)
    most = min(cores // (threads * processes), int(memory / needed), *([] if gpus is None else [gpus // processes]))
    return Room(max(1, most), cores, memory, needed)


def gpus_of(lane: int, processes: int, gpus: Sequence[str]) -> list[str]:
    """The GPUs of the lane with this number: as many as a cell has processes. More lanes than that begin again."""
    first = lane % max(len(gpus) // processes, 1) * processes
    return list(gpus[first : first + processes])
