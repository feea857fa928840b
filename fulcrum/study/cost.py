"""What an arm costs: counted FLOPs, and time from interleaved steps in one process, never from cells side by side."""

import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from fulcrum.spec.system import System
from fulcrum.study.proof import Arm
from fulcrum.train.build import assemble
from fulcrum.train.feed import Feed
from fulcrum.train.loop import train
from fulcrum.train.state import State

ROUNDS = 7
STEPS = 3                                                    # per round and arm


class Cost(NamedTuple):
    """An arm over the baseline."""

    flops_ratio: float
    time_ratio: float
    parameters_ratio: float


def costs(arms: Sequence[Arm], cache: Path, threads: int) -> dict[str, Cost]:
    """The cost of every arm relative to the first; eager steps, taken in turns so that a noisy machine hits all alike."""
    torch.set_num_threads(threads)
    runs = {arm.name: arm.run for arm in arms}
    built = {name: assemble(run, 0, System(threads=threads), Feed(run, 0, cache)) for name, run in runs.items()}
    states = {name: train(one, State(), [], _after(1)) for name, one in built.items()}        # warm-up
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, one in built.items():
            begun = time.perf_counter()
            states[name] = train(one, states[name], [], _after(STEPS))
            taken[name].append(time.perf_counter() - begun)
    base = next(iter(runs))
    parameters = {name: sum(p.numel() for p in one.step.parameters()) for name, one in built.items()}
    flops = {arm.name: prod(lever.cost(arms[0].run).flops for lever in arm.levers) for arm in arms}
    return {name: Cost(flops[name] / flops[base],
                       median(a / b for a, b in zip(taken[name], taken[base], strict=True)),
                       parameters[name] / parameters[base]) for name in runs}


def _after(steps: int) -> Callable[[], bool]:
    """A stop that lets `steps` steps happen."""
    left = [steps]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stop
