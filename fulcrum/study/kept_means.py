"""A kept study without the files of one's own that it was run with: its mean differences, from its cells alone.

Such a file holds the recipe, and without it nobody can tell which runs the plan asks for. What can be told is that no cell
was changed since, and that every mean on the page is that of its cells.
"""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from fulcrum.report.schema import StudyResult
from fulcrum.study.run.kept_cells import KeptCells

Values = Mapping[tuple[str, int], float]  # (arm, seed) -> what a metric found


def mean_differences(result: StudyResult, kept: KeptCells) -> Iterator[tuple[str, float, float | None]]:
    """(arm and metric, the mean as kept, the mean of the cells) of every comparison at equal images, None where the cells
    have another number of pairs; none of a fraction, whose effects are no differences of two arms."""
    arms = {arm.name: arm for arm in result.compared} if result.fraction is None else {}
    for effect in result.effects:
        if effect.unit == "images" and effect.mean is not None and effect.arm in arms:
            values, base = _values(kept, effect.metric), result.base_of(arms[effect.arm]).name
            seeds = sorted(seed for arm, seed in values if arm == effect.arm and (base, seed) in values)
            whole = seeds and len(seeds) == effect.n
            mean = statistics.fmean(values[effect.arm, seed] - values[base, seed] for seed in seeds) if whole else None
            yield f"{effect.arm}, {effect.metric}", effect.mean, mean


def _values(kept: KeptCells, metric: str) -> Values:
    return {
        (line["arm"], line["seed"]): metrics[metric][0]
        for line in kept.lines.values()
        if line["kind"] == "arm" and metric in (metrics := _metrics(line))
    }


def _metrics(line: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = line.get("outcome", {}).get("metrics", {})
    return found
