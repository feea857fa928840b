"""How answers word what was found: a decision with its size and cost, and a verdict in a word."""

from collections.abc import Sequence

from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.schema import Effect
from fulcrum.report.evidence.decisions.decision import SAME_TIME, Decision, named

NOT_RUN = "Not run yet"
DISTANCE = "frechet"  # between drawn and real pictures, whatever was asked for; lower is better


def told(decision: Decision, said: Sequence[str] = ()) -> str:
    """The finding as the report words it, what it costs where that is known, and bounds that were not `said` yet."""
    sentence = sentences.answer(decision.result, decision.arm).removesuffix(".")
    sentence = sentence.replace(decision.arm.label, decision.name, 1)
    dear = decision.time is not None and abs(decision.time - 1.0) > SAME_TIME
    cost = f"; {number.ratio(decision.time)} the time" if dear else ""
    bounds = "".join(f"; {bound}" for bound in decision.bounds if bound not in said)
    return f"{sentence}{cost}{bounds}."


def settled(decision: Decision) -> bool:
    return decision.verdict in ("better", "worse", "tie")


def those_of(rows: Sequence[Decision], roots: Sequence[str]) -> list[Decision]:
    return [decision for root in roots if (decision := named(rows, root)) is not None]


def all_told(rows: Sequence[Decision]) -> str:
    """One after the other; a bound that several share is said with the first."""
    said, lines = list[str](), list[str]()
    for one in rows:
        lines.append(told(one, said))
        said += one.bounds
    return " ".join(lines)


def sized(decision: Decision) -> str:
    return f"{decision.name} ({decision.change}, {decision.pairs} pairs)"


def by_verdict(decision: Decision, *, better: str, worse: str, tie: str) -> str:
    return {"better": better, "worse": worse, "tie": tie}.get(decision.verdict, "Undecided")


def changed(effect: Effect) -> str:
    return number.change(effect.mean, effect.low, effect.high)


def by_distance(decision: Decision, otherwise: str) -> str:
    """What a distance between pictures says of it; `otherwise` where its interval holds zero."""
    size = decision.by(DISTANCE)
    if size is None or size.low is None or size.high is None:
        return ""
    unsure = f": {otherwise}" if size.low <= 0.0 <= size.high else ""
    return f" Fréchet distance {changed(size)}, exploratory{unsure}."
