"""Sequential seeds on simulated studies with known truth: family error, power and cells, beside a
fixed number of pairs.

    python bench/looks.py            2,000 studies of every case: the table of
                                     docs/decisions/0023-sequential-seeds.md

Each study goes through the engine's own rules (`fulcrum/judge/looks.py`), with fewer sign vectors
than a real one takes: a sign-flip test holds its level with any number of them.
"""

import math
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fulcrum.judge.looks import EffectsAt, PlannedLook, decide, looks_of, nested_signs
from fulcrum.judge.statistics import Floats, PairedEffect, adjusted, paired_effect

LOOKS = (8, 12, 16)
ALPHA = 0.05
SIGNS = 2**11
NOISES = ("normal", "t3", "unequal")


class Tally(NamedTuple):
    """What became of the studies of a case; shares of studies, but for the cells."""

    wrong: float  # some arm without an effect has the verdict better or worse
    power: float  # arms with an effect that have the right verdict; NaN where there is none
    fixed_wrong: float  # the same studies with all pairs at once
    fixed_power: float
    cells: float  # of the fixed design's


def studies(
    number: int, arms: int, noise: str, effect: float = 0.0, moved: int = 0, key: int = 0
) -> Floats:
    """Differences (studies, pairs, arms) of unit spread; the first `moved` arms have an effect, in
    units of their own.

    Cells have independent noise, so that arms correlate by a half through their baseline. unequal:
    the variances of the arms are inverse-gamma of shape 3, their mean one.
    """
    rng = np.random.default_rng([key, arms, NOISES.index(noise)])
    shape = (number, LOOKS[-1], arms + 1)
    drawn = (
        rng.standard_t(3, shape) / math.sqrt(3.0) if noise == "t3" else rng.standard_normal(shape)
    )
    differences = (drawn[..., 1:] - drawn[..., :1]) / math.sqrt(2.0)
    differences[..., :moved] += effect
    if noise == "unequal":
        differences *= np.sqrt(2.0 / rng.gamma(3.0, 1.0, (number, 1, arms)))
    return np.asarray(differences)


def effects_from(differences: Floats, names: Sequence[str]) -> EffectsAt:
    """The effects of one simulated study (pairs, arms) at a look."""

    def at(look: PlannedLook, arms: Sequence[str]) -> dict[str, PairedEffect | None]:
        nothing = dict.fromkeys(range(look.pairs), 0.0)
        return {
            arm: paired_effect(
                nothing,
                dict(enumerate(differences[: look.pairs, names.index(arm)].tolist())),
                name=arm,
                metric="simulated",
                planned=look.pairs,
                level=1.0 - look.level,
            )
            for arm in arms
        }

    return at


def tally(differences: Floats, moved: int, margin: float = 0.0) -> Tally:
    """The first `moved` arms have a positive effect, the others none."""
    arms, looks = differences.shape[-1], looks_of(LOOKS, ALPHA)
    names, wrong, right, pairs = [f"arm {k}" for k in range(arms)], 0, 0, 0
    for study in differences:
        answers = decide(
            effects_from(study, names),
            names,
            looks,
            range(LOOKS[-1]),
            better="higher",
            margins_at=lambda look: dict.fromkeys(names, margin),
            most_signs=SIGNS,
        )
        words = [effect.verdict if (effect := answers[name].effect) else "" for name in names]
        wrong += any(word in ("better", "worse") for word in words[moved:])
        right += sum(word == "better" for word in words[:moved])
        taken = [answers[name].look.pairs for name in names]
        pairs += sum(taken) + max(taken)  # the baseline goes on as long as any arm does
    seen = adjusted(differences, signs=nested_signs(LOOKS, SIGNS)[-1]) <= ALPHA
    many = len(differences)
    return Tally(
        wrong / many,
        right / (many * moved) if moved else math.nan,
        float(seen[:, moved:].any(axis=1).mean()) if moved < arms else 0.0,
        float(seen[:, :moved].mean()) if moved else math.nan,
        pairs / (many * (arms + 1) * LOOKS[-1]),
    )


def by_hand(differences: Floats, looks: Sequence[int] = (6, 8, 10)) -> float:
    """Family error of who adds seeds to the undecided and tests at the full alpha each time: what
    looks are for."""
    wrong = np.zeros(len(differences), dtype=np.bool_)
    for pairs in looks:
        wrong |= (adjusted(differences[:, :pairs]) <= ALPHA).any(axis=1)
    return float(wrong.mean())


def table(number: int) -> str:
    heads = (
        "arms",
        "noise",
        "family error",
        "fixed 16",
        "6, 8, 10 by hand",
        "power",
        "fixed 16",
        "cells: none moves",
        "one",
    )
    rows = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for arms in (1, 3, 10, 25):
        for noise in NOISES:
            begun = time.perf_counter()
            null = studies(number, arms, noise, key=1)
            none, one = tally(null, 0), tally(studies(number, arms, noise, 1.0, 1, key=2), 1)
            rows.append(
                f"| {arms} | {noise} | {none.wrong:.3f} | {none.fixed_wrong:.3f} |"
                f" {by_hand(null):.3f} | {one.power:.2f} | {one.fixed_power:.2f} | {none.cells:.0%}"
                f" | {one.cells:.0%} |"
            )
            print(rows[-1], f"{time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
