"""What an arm costs: counted FLOPs, time of interleaved steps, and where a study's time went."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fulcrum.files.atomic import write_json
from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.judge.schema import TimedCost
from fulcrum.spec.errors import BadInput, TrainingFailed, first_line
from fulcrum.spec.run import Device, System
from fulcrum.studies.arms import Arm, bases_of
from fulcrum.training.build import Built, assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.machine import wait_for
from fulcrum.training.feed import Feed
from fulcrum.training.loop import Observer, StepReport, after, train

# --------------------------------------------------------------------------------------------------
# What an arm costs: counted FLOPs, and time from interleaved steps in one process, never from cells
# side by side.


COSTS = "costs.json"
ROUNDS = 7
STEPS = 3  # per round and arm


def costs(
    arms: Sequence[Arm],
    cache: Path,
    threads: int,
    rounds: int | None = None,
    device: Device = "cpu",
) -> dict[str, TimedCost]:
    """The cost of every arm relative to the baseline of its scale, also of one that is held against
    another arm; the arms of one scale take their steps in turns, `ROUNDS` times where `rounds` is
    None."""
    rounds = ROUNDS if rounds is None else rounds
    timed: dict[str, TimedCost] = {}
    for scale in dict.fromkeys(arm.scale for arm in arms):
        timed |= _costs(
            [arm for arm in arms if arm.scale == scale],
            cache,
            rounds,
            System(threads=threads, device=device),
        )
    return timed


def _costs(arms: Sequence[Arm], cache: Path, rounds: int, system: System) -> dict[str, TimedCost]:
    """Eager steps, taken in turns so that a noisy machine hits all alike."""
    torch.set_num_threads(system.threads)

    def anew(arm: Arm) -> Built:
        return assemble(arm.run, 0, system, Feed(arm.run, 0, cache, device=system.device))

    built = {arm.name: anew(arm) for arm in arms}
    states = {name: train(one, State(), [], after(1)) for name, one in built.items()}  # warm-up
    taken: dict[str, list[float]] = {name: [] for name in built}
    for _ in range(rounds):
        for arm in arms:
            name, one = arm.name, built[arm.name]
            if states[name].images + STEPS * one.run.budget.batch > one.run.budget.images:
                states[name] = State()  # a short budget is gone through again: a step is a step
            wait_for(system.device)
            begun = time.perf_counter()
            try:
                states[name] = train(one, states[name], [], after(STEPS))
            except TrainingFailed:  # its cells say so; its first steps were seen to be sound
                built[name] = anew(arm)
                begun = time.perf_counter()
                states[name] = train(built[name], State(), [], after(STEPS))
            wait_for(system.device)
            taken[name].append(time.perf_counter() - begun)
    base = arms[0].name
    parameters = {
        name: sum(p.numel() for p in one.step.parameters()) for name, one in built.items()
    }
    times = {
        name: median(a / b for a, b in zip(one, taken[base], strict=True))
        for name, one in taken.items()
    }
    return {
        arm.name: TimedCost(
            flops_ratio=declared(arm, arms, "flops"),
            time_ratio=times[arm.name],
            memory_ratio=declared(arm, arms, "memory"),
            parameters_ratio=parameters[arm.name] / parameters[base],
            step_seconds=median(taken[arm.name]) / STEPS,
        )
        for arm in arms
    }


def read_costs(folder: Path, arms: Sequence[Arm]) -> dict[str, TimedCost] | None:
    """What an earlier go at the study timed; None where that was not all of these arms."""
    path, hint = folder / COSTS, "remove the file: the steps are timed again"
    kept = read_sealed(path, hint, fields={"arms": dict})["arms"] if path.exists() else {}
    if set(kept) != {arm.name for arm in arms}:
        return None
    try:
        return {name: TimedCost(**cost) for name, cost in kept.items()}
    except (TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
        raise BadInput(f"{path} holds no costs of steps: {first_line(error)}", hint) from None


def write_costs(folder: Path, costs: Mapping[str, TimedCost]) -> None:
    write_sealed(folder / COSTS, {"arms": {name: dict(cost) for name, cost in costs.items()}})


def declared(arm: Arm, arms: Sequence[Arm], what: str) -> float:
    """What the arm's levers, and those of a base of its own, say they cost, over the baseline of
    its scale."""
    cost = 1.0
    for one, base in pairwise([arm, *bases_of(arm, arms)]):
        cost *= prod(float(getattr(lever.cost(base.run), what)) for lever in one.added)
        cost /= prod(float(getattr(lever.cost(one.run), what)) for lever in one.removed)
    return cost


# --------------------------------------------------------------------------------------------------
# What the time of a study went to: its cells' steps and drawing; the rest is the engine's.
# bench/engine.py reads it.
#
# timings.json lies beside what was timed. It is for reading only: nothing is decided by it.


NAME = "timings.json"


class Clock:
    """Named seconds since its making, and when that was."""

    def __init__(self) -> None:
        self.begun = time.time()
        self.first_step: float | None = None
        self.parts: dict[str, float] = {}

    @contextlib.contextmanager
    def counting(self, part: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.parts[part] = self.parts.get(part, 0.0) + time.perf_counter() - begun

    def timed(self, part: str, observer: Observer) -> Observer:
        def look_at(look: StepReport) -> None:
            with self.counting(part):
                observer(look)

        return look_at

    def steps(self, before: State) -> Observer:
        """An observer: the seconds of the steps from `before` on; the first, which also encodes and
        compiles, apart."""

        def taken(now: State) -> float:
            return now.seconds + now.preparing - before.seconds - before.preparing

        def look_at(look: StepReport) -> None:
            if self.first_step is None:
                self.first_step, self.parts["first step"] = time.time(), taken(look.state)
            self.parts["steps"] = taken(look.state)

        return look_at

    def write(self, folder: Path, **more: Any) -> None:
        """Of this go only: a cell that is resumed is timed anew."""
        with contextlib.suppress(OSError):  # a full disk is said by what matters
            write_json(
                folder / NAME,
                {
                    "begun": self.begun,
                    "ended": time.time(),
                    "first_step": self.first_step,
                    "parts": {name: round(value, 3) for name, value in self.parts.items()},
                    **more,
                },
            )
