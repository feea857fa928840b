"""Verdicts on an effect (better, worse, tie, inconclusive) and on the claim that the literature makes about it."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fulcrum.measure.card import Better
from fulcrum.study.judge.effect import PairedEffect
from fulcrum.study.judge.rank import rank

Verdict = Literal["better", "worse", "tie", "inconclusive"]
ClaimVerdict = Literal["replicated", "contradicted", "underpowered", "out of scope"]
Direction = Literal["better", "worse", "none"]
Scope = Literal["same", "scaled", "other"]


class Claimed(NamedTuple):
    """What a claim says about an arm, and how near its setting is to ours."""

    direction: Direction
    scope: Scope


def verdict(
    effect: PairedEffect, p_adjusted: float, *, better: Better, smallest_effect: float, alpha: float = 0.05
) -> Verdict:
    """The verdict on one effect.

    tie           the whole interval lies within +- smallest_effect: whatever is there is too small to matter
    better/worse  p_adjusted <= alpha and the interval excludes zero (both: the p-value makes no assumption on the shape
                  of the noise, the interval guards against one wild seed)
    inconclusive  everything else, always with fewer than six pairs unless it is a tie
    A tie is asked first: an effect may be significant and still not matter.
    """
    if not smallest_effect >= 0.0:
        raise ValueError(f"expected a smallest effect of interest >= 0, found {smallest_effect}")
    if -smallest_effect <= effect.low and effect.high <= smallest_effect:
        return "tie"
    if p_adjusted <= alpha and (effect.low > 0.0 or effect.high < 0.0):
        return "better" if (effect.mean > 0.0) == (better == "higher") else "worse"
    return "inconclusive"


def claimed_direction(change: float, better: Better) -> Direction:
    """What a claimed change of a metric means: FID -3.3 is better, an accuracy of -0.1 is worse."""
    if change == 0.0:
        return "none"
    return "better" if (change > 0.0) == (better == "higher") else "worse"


def claim_verdict(seen: str, claimed: Claimed) -> ClaimVerdict:
    """The verdict on a claim, by these rules:

    scope "other"   the claim is about a setting that ours does not stand for (other token count, a lever on another
                    seam filler): out of scope, whatever we found.
    scope "scaled"  our setting is a scaled-down one of the claim's (32 px against 256 px, a million parameters against
                    a billion): only the direction is compared. A published size never is.
    scope "same"    the claim's own setting.

    seen \\ claimed         the same direction   the other direction   none
    better, worse          replicated           contradicted          contradicted
    tie                    "same": contradicted; "scaled": out of scope      replicated
    inconclusive           underpowered

    A tie contradicts a claim only in the claim's own setting: scaled down, the effect may have shrunk below what is of
    interest, and a size is just what does not carry over.
    """
    if claimed.scope == "other":
        return "out of scope"
    if seen == "inconclusive":
        return "underpowered"
    if seen == "tie":
        if claimed.direction == "none":
            return "replicated"
        return "contradicted" if claimed.scope == "same" else "out of scope"
    return "replicated" if seen == claimed.direction else "contradicted"


def judge(
    effects: Sequence[PairedEffect], *, better: Better, smallest_effect: float | Mapping[str, float],
    claims: Mapping[str, Claimed] | None = None, alpha: float = 0.05,
) -> list[PairedEffect]:  # fmt: skip
    """A family of arms on one metric with corrected p-values and verdicts, best arm first; the smallest effect of interest
    may be each arm's own."""
    claims = claims or {}
    strangers = sorted(set(claims) - {effect.arm for effect in effects})
    if strangers:
        raise ValueError(f"claims about arms that are not in the family: {strangers}")
    by_arm, judged = {effect.arm: effect for effect in effects}, []
    for arm, p in rank(effects, better).items():
        smallest = smallest_effect[arm] if isinstance(smallest_effect, Mapping) else smallest_effect
        word = verdict(by_arm[arm], p, better=better, smallest_effect=smallest, alpha=alpha)
        against = claim_verdict(word, claims[arm]) if arm in claims else None
        judged.append(by_arm[arm].model_copy(update={"p_adjusted": p, "verdict": word, "claim_verdict": against}))
    return judged
