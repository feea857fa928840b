"""Verdicts on published claims, from the effects of a study."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fulcrum.judge.card import METRICS
from fulcrum.judge.cells import Cells
from fulcrum.judge.claims import Claim
from fulcrum.judge.design import Design, JudgedArm
from fulcrum.judge.effects import joint_p_values, judged, paired
from fulcrum.judge.schema import ClaimResult, Effect
from fulcrum.judge.sentences import NO_DIFFERENCE
from fulcrum.spec.remark import Remark, remark

ClaimVerdict = Literal[
    "replicated", "contradicted", "opposite here", "underpowered", "out of scope", "not comparable"
]
Scope = Literal["same", "scaled"]


# how a claim fared, and the reason where that alone does not say it
Fared = tuple[ClaimVerdict, Remark | None]


def claimed_direction(claim: Claim) -> Literal["better", "worse", "none"]:
    """What a claimed change means: FID -3.3 is better, an accuracy of -0.1 is worse. Published
    distances are better low."""
    if claim.change == 0.0:
        return "none"
    better = METRICS[claim.metric].better if claim.metric in METRICS else "lower"
    return "better" if (claim.change > 0.0) == (better == "higher") else "worse"


def claim_verdict(seen: str, claim: Claim, scope: Scope, where: str = "") -> Fared:
    """The verdict on a claim that may be held against what was seen, by these rules:

    scope "scaled"  a smaller setting and other features stand for the claim's (`where` says which):
                    only the direction is compared. A published size never is, and the other
                    direction contradicts nothing: it is "opposite here".
    scope "same"    the claim's own setting and metric.

    seen \\ claimed         the same direction   the other direction       none
    better, worse          replicated           "same": contradicted;     as the other direction
                                                "scaled": opposite here
    tie                    "same": contradicted; "scaled": out of scope   replicated
    inconclusive           underpowered
    failed, not learned    not comparable
    """
    claimed = claimed_direction(claim)
    if seen == "failed":
        return "not comparable", remark("all-seeds-failed", "every seed of the arm failed")
    if seen == "not learned":
        return "not comparable", remark("not-learned", "the baseline has not learned this")
    if seen == "inconclusive":
        return "underpowered", None
    if seen == claimed or (seen == "tie" and claimed == "none"):
        return "replicated", remark(
            "same-direction", f"the direction is as claimed{where}", scope=scope
        )
    if scope == "same":
        return "contradicted", None
    if seen == "tie":
        return "out of scope", remark("no-difference", NO_DIFFERENCE)
    text = f"the other direction{where}: it says nothing about the claim's own setting"
    return "opposite here", remark("other-direction", text)


class ClaimPlace(NamedTuple):
    """A claim, where it meets an arm of a study."""

    claim: Claim
    arm: str
    seen: str  # our metric; empty: none
    #: how near the study's setting is to the claim's; None: its direction does not carry over
    scope: Scope | None
    where: str = ""  # what stands for the claim's setting, in words: ", at 64 px"
    reason: Remark | None = None  # why it is not comparable; None: it is

    @property
    def held(self) -> bool:
        return self.scope is not None and not self.reason


def judged_claims(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    effects: Mapping[str, Sequence[Effect]],
    places: Sequence[ClaimPlace],
) -> dict[str, tuple[ClaimResult, ...]]:
    """Arm -> the claims about its levers with their verdicts, from effects (by metric) that are not
    yet judged.

    The claims that can be held against the study are one family, over arms and metrics.
    """
    asked = {(place.arm, place.seen) for place in places if place.held}
    family = {
        metric: [row for row in rows if (row.arm, metric) in asked]
        for metric, rows in effects.items()
    }
    p_values = joint_p_values(paired(family.values()), plan.alpha)
    words = {
        (row.arm, metric): row.verdict
        for metric, rows in family.items()
        for row in judged(plan, arms, cells, metric, rows, p_values)
    }
    answers: dict[str, tuple[ClaimResult, ...]] = {arm.name: () for arm in arms}
    for place in places:
        answers[place.arm] += (_answered(place, words.get((place.arm, place.seen))),)
    return answers


def _answered(place: ClaimPlace, seen: str | None) -> ClaimResult:
    """The verdict on one claim; `seen` is the verdict on the effect, None where there is none."""
    fared: Fared | None = None
    if place.scope is None:
        text = "its direction is not expected to be the same at another scale"
        fared = "out of scope", remark("direction-not-carried", text)
    elif place.reason:
        fared = "not comparable", place.reason
    elif seen is not None:
        fared = claim_verdict(seen, place.claim, place.scope, place.where)
    verdict, why = fared or (None, None)
    return ClaimResult(
        **dict(place.claim),
        verdict=verdict,
        seen=place.seen,
        why=why.text if why else "",
        codes=(why,) if why else (),
    )
