"""Decisions of the ranking that another study asked again: what became of their directions, their order and their sizes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fulcrum.report.evidence.decisions.decision import Decision, all_decisions, named
from fulcrum.report.evidence.decisions.known_studies import LONGER, Studies

AskedAgain = tuple[Decision, Decision]  # as another study found it, and as it stands in the ranking


def asked_again(own: Iterable[Decision], rows: Iterable[Decision]) -> list[AskedAgain]:
    """Decisions of another study that have a number there and in the ranking."""
    ranked = list(rows)
    both = [(one, before) for one in own if (before := named(ranked, one.arm.root)) is not None]
    return [(one, before) for one, before in both if one.gain is not None and before.gain is not None]


def same_way(asked: Iterable[AskedAgain]) -> tuple[int, int]:
    """How many are decided in both, and how many of these go the same way."""
    decided = [(one, before) for one, before in asked if one.decided and before.decided]
    return len(decided), sum(one.verdict == before.verdict for one, before in decided)


def same_order(asked: Sequence[AskedAgain]) -> tuple[int, int]:
    """How many pairs of decisions there are, and how many stand in the same order in both, better above worse."""
    places = [(a, b) for place, a in enumerate(asked) for b in asked[place + 1 :]]
    kept = sum(((a[0].gain or 0) > (b[0].gain or 0)) == ((a[1].gain or 0) > (b[1].gain or 0)) for a, b in places)
    return len(places), kept


class TrainedLonger(NamedTuple):
    """What became of gains where both sides saw more images."""

    times: float  # as many images
    gains: int  # of the ranking that were asked again
    shrunk: list[AskedAgain]  # those that are less than half as large


def trained_longer(studies: Studies, rows: Iterable[Decision]) -> TrainedLonger | None:
    """None: it was not asked, or has no answer yet."""
    ranked, result = list(rows), studies.get(LONGER)
    if result is None or not ranked or result.state != "finished":
        return None
    asked = asked_again(all_decisions(LONGER, result), ranked)
    gained = [(one, before) for one, before in asked if before.verdict == "better"]
    shrunk = [(one, before) for one, before in gained if (one.gain or 0.0) < (before.gain or 0.0) / 2]
    return TrainedLonger(result.plan.images / ranked[0].result.plan.images, len(gained), shrunk)
