"""Sentences about published claims: what was claimed, on which of our metrics it was held, and how it fared.

They stand in the section of their lever and never beside the ranking's verdict: a claim is about another metric.
"""

from fulcrum.report.arm_result import ArmResult, ClaimResult
from fulcrum.report.schema import StudyResult
from fulcrum.report.wording import number, sentences

NO_DIFFERENCE = "no difference that matters here, and a published size does not carry over"
MEANING = {
    "replicated": "the direction is as claimed",
    "contradicted": "in the same setting, not the direction that was claimed",
    "opposite here": "the other direction, in a scaled-down setting: it says nothing about the claim's own",
    "underpowered": "this study cannot tell",
    "not comparable": "our setting does not stand for the claim's",
    "out of scope": "our setting does not stand for the claim's",
}


def published(metric: str) -> str:
    """A published metric's name as papers write it."""
    return metric.upper() if metric in ("fid", "cmmd", "kid") else metric


def claimed(claim: ClaimResult) -> str:
    """'FID −2.65'"""
    return f"{published(claim.metric)} {number.change(claim.change, None, None)}"


def seen_of(result: StudyResult, arm: ArmResult, claim: ClaimResult) -> str:
    """What this study saw of a claim, on which of its metrics, and how that agrees with the primary one."""
    reason = claim.why or MEANING.get(claim.verdict or "", "")
    if claim.verdict == "not comparable":
        return f"Not held against it: {reason}."
    if not claim.seen:
        return f"No metric of this study stands for {published(claim.metric)}." if result.effects else ""
    metric, row = result.metric(claim.seen), result.effect(arm.name, claim.seen)
    if row is None:
        return ""
    word = "" if row.exploratory else f", {row.verdict}"
    sentence = (
        f"Our {sentences.lowered(metric.label)} stands for {published(claim.metric)} ({sentences.direction(metric)}): "
        f"{number.change(row.mean, row.low, row.high)}{word}" + (f": {reason}." if reason else ".")
    )
    first = result.effect(arm.name, result.primary.name)
    leans = "better" if ((row.mean or 0.0) > 0) == (metric.better == "higher") else "worse"
    if (
        first is not None
        and metric.name != result.primary.name
        and first.verdict in ("better", "worse")
        and first.verdict != leans
    ):
        sentence += (
            f" The ranking asks another metric, {sentences.lowered(result.primary.label)}, on which {arm.label} "
            f"{sentences.verb(arm.label)} {first.verdict}."
        )
    return sentence
