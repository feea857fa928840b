"""Pairs of cells: the values that an arm and its baseline have under the same seeds, and whether they may be compared."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from fulcrum.judge.card import MetricCard, compatible
from fulcrum.judge.schema import LARGEST
from fulcrum.measure.evaluation import loss_of
from fulcrum.spec.edit import inside
from fulcrum.study.plan.arms import Arm, baseline_of

JUDGED_BY = ("flow", "encode.codec", "sample.prompts", "data.stages")  # what a held-out loss can depend on
EQUAL = "images"  # what was held equal

Measurements = Mapping[str, Mapping[int, Any]]  # arm -> seed -> what was measured of the finished cell
Failures = Mapping[str, Mapping[int, str]]  # arm -> seed -> why the cell came to nothing


class PairedArm(Protocol):
    """An arm, as far as its pairs ask: its name, and that of the arm it is held against."""

    @property
    def name(self) -> str: ...
    @property
    def against(self) -> str: ...


def value_of(cell: Mapping[str, Any], metric: str) -> float:
    return float(cell["metrics"][metric]["value"])


def values_of(measured: Measurements, arm: str, metric: str) -> dict[int, float]:
    """Seed -> value of a metric; where it is no number, or was not measured, that seed is missing for this metric alone."""
    readings = {seed: cell["metrics"].get(metric, {}).get("value") for seed, cell in measured.get(arm, {}).items()}
    return {seed: float(value) for seed, value in readings.items() if value is not None and _is_measurement(value)}


def _is_measurement(value: float) -> bool:
    """What the page shows as a number as well: beyond that squares have no room in a float."""
    return math.isfinite(value) and abs(value) <= LARGEST


def not_stopped(arms: Sequence[Arm], stopped: Collection[str]) -> list[Arm]:
    """The arms that have a final value to compare, and something to compare it with: what was stopped early is censored."""
    return [arm for arm in arms if arm.name not in stopped and arm.against not in stopped]


def compared(arms: Sequence[Arm], metric: str) -> list[Arm]:
    """The arms whose values of a metric may stand beside their baseline's."""
    return [
        arm
        for arm in arms
        if not arm.is_baseline and not (metric == "validation_loss" and other_loss(arm, baseline_of(arm, arms)))
    ]


def may_differ(arm: Arm) -> tuple[str, ...]:
    """Fields of a metric card that this arm's levers openly change."""
    fields = {"sample.prompts": "prompts", "sample.guide": "guidance", "sample.steps": "steps", "sample.shift": "sampler"}
    return tuple(
        sorted({field for change in arm.changes for path, field in fields.items() if change.path.startswith(path)})
    )


def other_loss(arm: Arm, base: Arm) -> bool:
    """Does the arm openly change what a held-out loss is a loss of? Then there is nothing to compare."""
    touched = any(inside(change.path, JUDGED_BY) for change in arm.changes)
    return touched and loss_of(arm.run) != loss_of(base.run)


def require_same_card(one: Mapping[str, Any], other: Mapping[str, Any], metric: str, allowed: tuple[str, ...]) -> None:
    """Refuse numbers that were not measured alike, but for what the arm's levers openly change."""
    mine, yours = one["metrics"][metric]["card"], other["metrics"][metric]["card"]
    if mine != yours:
        compatible(MetricCard(**mine), MetricCard(**yours), allowed)
