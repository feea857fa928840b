"""Verdicts on an effect: better, worse, tie, inconclusive."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from fulcrum.measure.card import Better
from fulcrum.spec.remark import Remark, remark
from fulcrum.study.judge.statistics.effect import PairedEffect, failures_note, half_widths
from fulcrum.study.judge.statistics.outliers import oddities
from fulcrum.study.judge.statistics.rank import aligned, flipped_statistics, pairs_needed, rank
from fulcrum.study.judge.statistics.selection import attained_level, headline_size, kept_share

Verdict = Literal["better", "worse", "tie", "inconclusive"]


def verdict(effect: PairedEffect, p_adjusted: float, *, better: Better, alpha: float = 0.05) -> Verdict:
    """The verdict on an effect whose margin and tie interval are known.

    tie           the tie interval lies within +- margin: whatever is there is too small to matter. An equivalence test at
                  level alpha asks the interval at 1 - 2 alpha
    better/worse  p_adjusted <= alpha and the interval excludes zero (both: the p-value makes no assumption on the size
                  of the noise, the interval guards against one wild seed)
    inconclusive  everything else, always with fewer than six pairs unless it is a tie
    A tie is asked first: an effect may be significant and still not matter. Where seeds of the arm failed, the survivors
    alone can only speak against it: they make it neither better nor a tie.
    """
    assert effect.margin is not None and effect.tie_low is not None and effect.tie_high is not None
    if -effect.margin <= effect.tie_low and effect.tie_high <= effect.margin:
        return "inconclusive" if effect.failed else "tie"
    if p_adjusted <= alpha and (effect.low > 0.0 or effect.high < 0.0):
        if (effect.mean > 0.0) != (better == "higher"):
            return "worse"
        return "inconclusive" if effect.failed else "better"
    return "inconclusive"


def judge(
    effects: Sequence[PairedEffect], *, better: Better, smallest_effect: float | Mapping[str, float],
    alpha: float = 0.05, p_values: Mapping[str, float] | None = None,
) -> list[PairedEffect]:  # fmt: skip
    """A family of arms on one metric with corrected p-values and verdicts, best arm first.

    Arms may differ in their seeds, and each may have a smallest effect of interest of its own. `p_values` (arm -> p) are
    those of a larger family, over several metrics or looks, where the plan asks for one.
    """
    by_arm, judged = {effect.arm: effect for effect in _with_intervals(effects, alpha)}, []
    for arm, p in rank(effects, better, alpha, p_values).items():
        margin = smallest_effect[arm] if isinstance(smallest_effect, Mapping) else smallest_effect
        effect = _with_margin(by_arm[arm], margin, alpha)
        word = verdict(effect, p, better=better, alpha=alpha)
        shrunk = effect.shrunk if word in ("better", "worse") else effect.mean  # nobody picked the others
        judged.append(effect.model_copy(update={"p_adjusted": p, "verdict": word, "shrunk": shrunk}))
    return judged


def _with_intervals(effects: Sequence[PairedEffect], alpha: float) -> list[PairedEffect]:
    """Each effect with its intervals, and with its mean as it would be told if it was picked out of the family."""
    differences = aligned(effects)
    reach, tie_reach = half_widths(differences, alpha), half_widths(differences, 2.0 * alpha)
    distances = np.sqrt(flipped_statistics(differences, np.ones((1, len(differences))))[0])
    tested = max(1, sum(effect.n >= pairs_needed(alpha) for effect in effects))
    return [
        effect.model_copy(
            update={
                "low": effect.mean - float(reach[k]),
                "high": effect.mean + float(reach[k]),
                "tie_low": effect.mean - float(tie_reach[k]),
                "tie_high": effect.mean + float(tie_reach[k]),
                "shrunk": headline_size(
                    effect.mean, float(reach[k]), kept_share(float(distances[k]), attained_level(alpha, tested, effect.n))
                ),
            }
        )
        for k, effect in enumerate(effects)
    ]


def _with_margin(effect: PairedEffect, margin: float, alpha: float) -> PairedEffect:
    """With the margin that a verdict asks for, and what a reader must know about the effect."""
    if not margin >= 0.0:
        raise ValueError(f"expected a smallest effect of interest >= 0, found {margin}")
    noted = effect.noted(failures_note(effect.planned, effect.failed), _too_few(effect.n, alpha))
    warned = noted.warned(*oddities(np.array(effect.differences), margin))
    return warned.model_copy(update={"margin": margin})


def _too_few(n: int, alpha: float) -> Remark | None:
    missing = pairs_needed(alpha) - n
    if missing <= 0:
        return None
    seeds = "one more seed" if missing == 1 else f"{missing} more seeds"
    return remark("too-few-pairs", f"{n} pairs cannot reach p ≤ {alpha:g}: {seeds} can", pairs=n, missing=missing)
