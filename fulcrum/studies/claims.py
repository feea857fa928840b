"""Published claims held against a study: where each applies.

A claim is held only against its own lever alone, with the published settings, on a baseline and a
metric that may stand for the published ones. Everywhere else it is "not comparable", with the
reason.
"""

from collections.abc import Collection, Sequence
from typing import Any

from fulcrum.data.fillers import World
from fulcrum.judge.card import METRICS
from fulcrum.judge.claim_verdicts import ClaimPlace, Scope
from fulcrum.levers.base import ANY, Claim, Lever
from fulcrum.levers.catalog import CATALOG
from fulcrum.networks.fillers import Pixels
from fulcrum.spec.edit import get, put
from fulcrum.spec.phrase import Staged
from fulcrum.spec.remark import Remark, remark
from fulcrum.spec.run import RunSpec
from fulcrum.studies.arms import Arm, baseline_of
from fulcrum.studies.plan import Plan

STANDS_FOR = {"fid": "frechet", "cmmd": "mmd"}  # published metric -> ours that stands beside it
SEAMS = (
    "data.caption",
    "flow.time",
    "flow.predict",
    "flow.weight",
    "model.route",
    "model.condition",
    "optim.rule",
    "average",
    "sample.guide",
)


def seen_as(claim: Claim, metrics: Collection[str]) -> str:
    """Name of our metric that a claim is held against; empty: this study has none."""
    name = claim.metric if claim.metric in METRICS else STANDS_FOR.get(claim.metric, "")
    return name if name in metrics else ""


def not_comparable(
    plan: Plan, arms: Sequence[Arm], arm: Arm, lever: Any, claim: Claim, metrics: Collection[str]
) -> Remark | None:
    """Why a claim cannot be held against an arm; None: it can."""
    base = baseline_of(arm, arms)
    if plan.design == "fractional":
        return remark(
            "mean-over-others",
            "it is about adding the lever to a plain recipe, and here its effect is a mean over"
            " settings of the others",
        )
    if lever in arm.removed:
        return remark(
            "taken-from-stack",
            "it is about adding the lever to a plain recipe, and here the lever is taken from a"
            " stack",
        )
    if arm.compound:
        return remark("compound", "it is about this lever alone, and the arm changes more")
    if isinstance(lever, Staged):
        return remark("staged", "here the lever is on for a part of the budget only")
    if claim.also:
        text = f"the published arm also had {claim.also} on: its number belongs to both"
        return remark("published-compound", text, also=claim.also)
    published = {
        name: claim.settings.get(name, field.default)
        for name, field in type(lever).model_fields.items()
    }
    other = [
        name for name, value in published.items() if value != ANY and getattr(lever, name) != value
    ]
    if other:
        text = (
            f"it is about {', '.join(f'{name}={published[name]}' for name in other)}, and here it"
            f" is {lever}"
        )
        return remark("other-settings", text, settings=other)
    if plan.trunk is not None:
        return remark(
            "late-change", "the arms begin from a trained trunk: here the lever is a late change"
        )
    if base.phrase.levers:
        names = [one.name for one in base.phrase.levers]
        return remark(
            "baseline-has-levers", f"the baseline already has {', '.join(names)}", levers=names
        )
    if unlike := _unlike(base.run, claim):
        return unlike
    if plan.judges or not isinstance(base.run.data.source, World):
        text = (
            "these pictures or their judges are from outside: nothing here stands for the published"
            " metric"
        )
        return remark("pictures-from-outside", text)
    if seen_as(claim, metrics):
        return None
    return remark(
        "no-such-metric", f"no metric of this study stands for {claim.metric}", metric=claim.metric
    )


def _unlike(run: RunSpec, claim: Claim) -> Remark | None:
    """What a baseline has in place of what the claim's own had; sizes, data and frozen networks may
    be smaller ones."""
    if claim.recipe not in CATALOG.recipes:
        return None
    published = CATALOG.recipes[claim.recipe]()
    for path in SEAMS:
        own, claimed = get(run, path), get(published, path)
        if own.kind != claimed.kind or (path == "data.caption" and own != claimed):
            text = f"the baseline has {path} = {own}, where the claim's has {claimed}"
            return remark("baseline-unlike", text, path=path)
    if [term.kind for term in run.terms] != [
        term.kind for term in published.terms
    ] or run.data.stages:
        return remark(
            "baseline-unlike",
            "the baseline has terms or stages that the claim's has not",
            path="terms",
        )
    if run.precision.storage != published.precision.storage:
        text = f"the baseline's weights are stored in {run.precision.storage}"
        return remark("baseline-unlike", text, path="precision.storage")
    if claim.carries and isinstance(run.encode.codec, Pixels) != isinstance(
        published.encode.codec, Pixels
    ):
        text = "one baseline is trained on pixels, the other on latents"
        return remark("baseline-unlike", text, path="encode.codec")
    return None


def scope_of(claim: Claim, base: Arm) -> Scope | None:
    """How near a study's setting is to the claim's: its own recipe on its own metric, or one that
    stands for it; None: the claim's direction does not carry over to another."""
    known = claim.recipe in CATALOG.recipes
    own = CATALOG.recipes[claim.recipe]() if known else None
    at_home = own is not None and put(base.run, "encode", own.encode) == own
    if at_home and claim.metric in METRICS:
        return "same"
    return "scaled" if claim.carries or at_home else None


def claim_places(plan: Plan, arms: Sequence[Arm], metrics: Collection[str]) -> list[ClaimPlace]:
    """The claims about the levers of all arms, each where it meets the study."""
    return [
        _place(plan, arms, arm, lever, claim, metrics)
        for arm in arms
        for lever in (*arm.added, *arm.removed)
        for claim in lever.card.claims
    ]


def _place(
    plan: Plan,
    arms: Sequence[Arm],
    arm: Arm,
    lever: Lever,
    claim: Claim,
    metrics: Collection[str],
) -> ClaimPlace:
    scope = scope_of(claim, baseline_of(arm, arms))
    return ClaimPlace(
        claim,
        arm.name,
        seen_as(claim, metrics),
        scope,
        "" if scope == "same" else f", on other features, at {arm.run.data.size} px",
        not_comparable(plan, arms, arm, lever, claim, metrics),
    )
