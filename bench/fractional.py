"""How often fractional designs err and what they see, by simulation of the rules that judge them.

    python bench/fractional.py

Cells have noise of standard deviation one about their seed. `textbook` is the pooled residual of
all cells, which the engine does not use: it is there to be compared. Effects are in deviations of a
cell.
"""

import numpy as np
from scipy.special import stdtr

from fulcrum.judge.effects import few_seeds
from fulcrum.judge.fraction import FractionTable, fraction_table
from fulcrum.judge.statistics import adjusted, half_widths, pairs_needed

STUDIES = 4000
ALPHA = 0.05
NOISES = (
    "normal",
    "heavy tails",
    "skewed",
    "unequal cells",
    "effects by seed",
    "one lever by seed",
)


def cells(noise: str, table: FractionTable, seeds: int, rng: np.random.Generator) -> np.ndarray:
    """Cells without any effect.  (studies, S, R)"""
    combinations, levers = table.on.shape
    # as much as a contrast scatters
    shape, by_seed = (STUDIES, seeds, combinations), 2.0 / combinations**0.5
    values = {
        "heavy tails": lambda: rng.standard_t(3, shape) / 3**0.5,
        "skewed": lambda: rng.exponential(1.0, shape) - 1.0,
        "unequal cells": lambda: (
            rng.standard_normal(shape)
            * np.sqrt(2.0 / rng.gamma(3.0, 1.0, (STUDIES, 1, combinations)))
        ),
    }.get(noise, lambda: rng.standard_normal(shape))()
    if noise == "effects by seed":  # of every lever
        values = (
            values + by_seed / 2.0 * rng.standard_normal((STUDIES, seeds, levers)) @ table.signs.T
        )
    if noise == "one lever by seed":  # twice as much
        values = values + by_seed * rng.standard_normal((STUDIES, seeds, 1)) * table.signs[:, 0]
    return values + rng.standard_normal((STUDIES, seeds, 1))


def verdicts(values: np.ndarray, table: FractionTable) -> np.ndarray:
    """Which levers get one, by the engine's rule.  (studies, S, R) -> (studies, K)"""
    contrasts = values @ table.signs * 2.0 / len(table.on)
    if values.shape[1] < pairs_needed(ALPHA):
        return np.asarray(few_seeds(contrasts, contrasts)[0] <= ALPHA)
    clear = np.abs(contrasts.mean(axis=1)) > half_widths(contrasts, ALPHA)
    return np.asarray((adjusted(contrasts, alpha=ALPHA) <= ALPHA) & clear)


def textbook(values: np.ndarray, table: FractionTable) -> np.ndarray:
    """The same by the residual of cells about the means of their seed and combination, Sidak's
    correction."""
    seeds, combinations = values.shape[1:]
    left = values - values.mean(axis=1, keepdims=True) - values.mean(axis=2, keepdims=True)
    left = left + values.mean(axis=(1, 2), keepdims=True)
    degrees = (seeds - 1) * (combinations - 1)
    error = np.sqrt(np.square(left).sum(axis=(1, 2)) / degrees * 4.0 / (combinations * seeds))[
        :, None
    ]
    p_values = 2.0 * stdtr(
        degrees, -np.abs((values @ table.signs * 2.0 / combinations).mean(axis=1)) / error
    )
    return np.asarray(p_values <= 1.0 - (1.0 - ALPHA) ** (1.0 / len(table.levers)))


def main() -> None:
    rng = np.random.default_rng(24)
    print(
        f"{'levers':>6} {'combinations':>12} {'seeds':>5}  family error: " + ", ".join(NOISES),
        "| textbook |",
        "power at 1.0, 1.5",
    )
    for levers in (4, 8, 10):
        table = fraction_table([f"lever{place}" for place in range(levers)])
        for seeds in (2, 3, 4, 5, 6, 8):
            null = {noise: cells(noise, table, seeds, rng) for noise in NOISES}
            errors = [verdicts(null[noise], table).any(axis=1).mean() for noise in NOISES]
            plain = [textbook(null[noise], table).any(axis=1).mean() for noise in NOISES]
            seen = [
                verdicts(null["normal"] + size * table.on[:, 0], table)[:, 0].mean()
                for size in (1.0, 1.5)
            ]
            rows = (" ".join(f"{value:.3f}" for value in part) for part in (errors, plain, seen))
            print(f"{levers:>6} {len(table.on):>12} {seeds:>5}  " + " | ".join(rows), flush=True)


if __name__ == "__main__":
    main()
