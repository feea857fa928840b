"""How often verdicts are right: simulated studies with known truth, judged by the rule of before
and by the present one.

    python bench/calibration.py [--studies 2000] [--quick]

Prints a table in Markdown. Cells scatter by one *seed deviation*, baseline included, which is also
the margin; effects are in standard deviations of an arm's paired differences (1.41 seed
deviations), as the targets of `docs/statistics.md` are. In every study the first arm may have an
effect, the others have none.

The rule of before, which only this file still knows: Student's t of each arm alone, without shared
scatter, over the seeds that all arms have.

n pairs, A arms, S sign vectors
"""

import argparse
import math
import time
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fulcrum.judge.statistics import (
    Floats,
    adjusted,
    attained_level,
    flipped_statistics,
    half_widths,
    headline_size,
    kept_share,
    oddities,
    pairs_needed,
    sign_vectors,
    step_down,
)

Noise = Literal["normal", "heavy", "skewed", "unequal", "one-sided", "others fail", "worst fail"]
ALPHA = 0.05
MARGIN = 1.0 / math.sqrt(2.0)  # one seed deviation, in deviations of the differences
# sign vectors, at most, for both rules: p is known well enough, and twelve pairs take no minute
VECTORS = 512
NOISES: tuple[Noise, ...] = ("normal", "heavy", "skewed", "unequal")
ARMS, PAIRS = (1, 3, 10, 25), (3, 6, 8, 12, 20)


class Case(NamedTuple):
    noise: Noise
    arms: int
    pairs: int


class Judged(NamedTuple):
    """What a rule says about many studies."""

    decided: NDArray[np.int64]  # (studies, A): 1 better, -1 worse, 0 neither; higher is better
    mean: Floats  # (studies, A)
    reach: Floats  # (studies, A): half the interval
    headline: Floats  # (studies, A): the mean that a headline says


class Row(NamedTuple):
    """One line of the table."""

    coverage: float
    family_error: float  # any verdict where no arm does anything
    power: tuple[float, float]  # at 1.4 and 2.0 deviations
    type_s: float  # of the decided at half a margin: verdicts of the wrong sign
    exaggeration: float  # of those called better at half a margin: headline over truth
    warned: float  # of the false verdicts: with a warning beside them


def all_cases() -> list[Case]:
    plain = [Case(noise, arms, pairs) for noise in NOISES for arms in ARMS for pairs in PAIRS]
    hostile = [Case("one-sided", arms, pairs) for arms, pairs in ((1, 6), (10, 20))]
    failing = [
        Case(noise, arms, pairs)
        for noise in ("others fail", "worst fail")
        for arms, pairs in ((3, 8), (10, 12))
    ]
    return plain + hostile + failing


def draw(case: Case, effect: float, studies: int) -> Floats:
    """Differences (studies, n, A), NaN where a cell failed; the first arm has unit variance, and is
    moved by `effect`."""
    rng = np.random.default_rng([case.arms, case.pairs, len(case.noise), round(100 * effect)])
    shape = (studies, case.pairs, case.arms + 1)
    if case.noise == "heavy":
        cells = rng.standard_t(3, shape) / math.sqrt(3.0)
    elif case.noise in ("skewed", "one-sided"):
        cells = rng.exponential(1.0, shape) - 1.0
    else:
        cells = rng.standard_normal(shape)
    if case.noise == "one-sided":
        # a quiet baseline: the skew stays in the difference
        cells[..., 0] = 0.2 * rng.standard_normal(shape[:2])
    differences = (cells[..., 1:] - cells[..., :1]) / math.sqrt(2.0)
    if case.noise == "unequal":
        size = 1.0 / np.sqrt(rng.gamma(3.0, size=(studies, 1, case.arms)))
        differences *= size / size[..., :1]
    differences[..., 0] += effect
    if case.noise == "others fail":
        differences[..., 1:][rng.random(differences[..., 1:].shape) < 0.1] = np.nan
    # a tenth of the arms' cells, those with the worst values: survivors flatter
    if case.noise == "worst fail":
        differences[cells[..., 1:] < -1.2816] = np.nan
    return differences


def judge_now(differences: Floats) -> Judged:
    """The present rule, by the functions that `judge` calls."""
    missing = np.isnan(differences).any(axis=1)
    p_values = adjusted(differences, alpha=ALPHA, signs=_signs(differences.shape[1]))
    mean, reach = _means(differences), half_widths(differences, ALPHA)
    decided = np.where((p_values <= ALPHA) & (np.abs(mean) > reach), np.sign(mean), 0.0).astype(
        np.int64
    )
    decided[missing & (decided > 0)] = 0  # survivors alone make no arm better
    headline = mean.copy()
    distances = np.sqrt(flipped_statistics(differences, np.ones((1, differences.shape[1]))))[:, 0]
    pairs = np.isfinite(differences).sum(axis=1)
    tested = (pairs >= pairs_needed(ALPHA)).sum(axis=1)
    for study, arm in zip(*np.nonzero(decided), strict=True):
        level = attained_level(ALPHA, max(int(tested[study]), 1), int(pairs[study, arm]))
        headline[study, arm] = headline_size(
            float(mean[study, arm]),
            float(reach[study, arm]),
            kept_share(float(distances[study, arm]), level),
        )
    return Judged(decided, mean, reach, headline)


def judge_before(differences: Floats) -> Judged:
    """Student's t of every arm alone, and only seeds that all arms have."""
    if np.isnan(differences).any():
        parts = [_before(one[np.isfinite(one).all(axis=1)][None]) for one in differences]
        return Judged(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return _before(differences)


def _before(differences: Floats) -> Judged:
    studies, n, arms = differences.shape
    if n < 2:
        nothing = np.zeros((studies, arms))
        return Judged(nothing.astype(np.int64), nothing, nothing + math.inf, nothing)
    moment = np.square(differences).sum(axis=1, keepdims=True)
    vectors = _signs(n)
    size = max(1, 2_000_000 // (len(vectors) * arms))
    p_values = np.concatenate(
        [
            step_down(np.square(vectors @ differences[k : k + size]) / (n * moment[k : k + size]))
            for k in range(0, studies, size)
        ]
    )
    mean, reach = (
        differences.mean(axis=1),
        differences.std(axis=1, ddof=1) * float(stdtrit(n - 1, 1 - ALPHA / 2)) / n**0.5,
    )
    decided = np.where((p_values <= ALPHA) & (np.abs(mean) > reach), np.sign(mean), 0.0).astype(
        np.int64
    )
    return Judged(decided, mean, reach, mean)


def _means(differences: Floats) -> Floats:
    return np.asarray(
        np.nansum(differences, axis=1) / np.maximum(np.isfinite(differences).sum(axis=1), 1)
    )


def _signs(n: int) -> Floats:
    signs = sign_vectors(n)
    if len(signs) <= VECTORS:
        return signs
    return signs[
        np.concatenate(
            [[0], 1 + np.random.default_rng(n).choice(len(signs) - 1, VECTORS - 1, replace=False)]
        )
    ]


def measure(case: Case, studies: int) -> dict[str, Row]:
    """The line of each rule."""
    null, half, small, large = (
        draw(case, effect, studies) for effect in (0.0, MARGIN / 2, 1.4, 2.0)
    )
    rows = {}
    for rule, judged in (("before", judge_before), ("now", judge_now)):
        nothing, little = judged(null), judged(half)
        alarms, first = nothing.decided != 0, little.decided[:, 0]
        truth = np.zeros(case.arms)
        truth[0] = MARGIN / 2
        finite = np.isfinite(little.reach)
        false = [null[study][:, arm] for study, arm in zip(*np.nonzero(alarms), strict=True)]
        rows[rule] = Row(
            coverage=float((np.abs(little.mean - truth) <= little.reach)[finite].mean()),
            family_error=float(alarms.any(axis=1).mean()),
            power=(
                float((judged(small).decided[:, 0] > 0).mean()),
                float((judged(large).decided[:, 0] > 0).mean()),
            ),
            type_s=float((first[first != 0] < 0).mean()) if (first != 0).any() else math.nan,
            exaggeration=(
                float(little.headline[first > 0, 0].mean() / truth[0])
                if (first > 0).any()
                else math.nan
            ),
            warned=(
                float(np.mean([bool(oddities(one[np.isfinite(one)], 0.0)) for one in false]))
                if false
                else math.nan
            ),
        )
    return rows


HEADER = (
    "| noise | arms | pairs | coverage | family error | power at 1.4 | at 2.0 | type S |"
    " exaggeration | warned |\n|---|---|---|---|---|---|---|---|---|---|"
)


def line(case: Case, rows: dict[str, Row]) -> str:
    """One line of the table: before → now."""

    def both(values: tuple[float, float], digits: int = 3) -> str:
        shown = [
            "–" if math.isnan(value) else f"{value:.{digits}f}".replace("0.", ".", 1)
            for value in values
        ]
        return " → ".join(shown)

    before, now = rows["before"], rows["now"]
    cells = [
        both((before.coverage, now.coverage)),
        both((before.family_error, now.family_error)),
        *(both((before.power[k], now.power[k]), 2) for k in (0, 1)),
        both((before.type_s, now.type_s)),
        both((before.exaggeration, now.exaggeration), 1),
        both((before.warned, now.warned), 2),
    ]
    return f"| {case.noise} | {case.arms} | {case.pairs} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="six and eight pairs only")
    options = parser.parse_args()
    begun = time.perf_counter()
    print(HEADER)
    for case in all_cases():
        if not options.quick or case.pairs in (6, 8):
            print(line(case, measure(case, options.studies)), flush=True)
    print(f"\n{options.studies:,} studies a case, {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
