"""How good the advice is: every measured lever is left out in turn, predicted from the rest, and
compared."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from fulcrum.advice.advice import family, grouped
from fulcrum.advice.effect_pool import (
    EvidenceScope,
    ExpectedGain,
    LeverFacts,
    MeasuredEffect,
    estimate_spread,
    expected_from_others,
    family_of,
    pooled,
    sign_votes,
    updated,
)
from fulcrum.spec.phrase import Catalogue

FEWEST = 3  # levers measured at one place, below which nothing is ranked
SHUFFLES = 10_000  # of the ranks, for the chance of a correlation by luck
TOKENS = 64  # where a place does not know its own


class Predicted(NamedTuple):
    lever: str
    place: EvidenceScope
    expected: ExpectedGain
    sign: float  # of what was published
    seen: MeasuredEffect

    @property
    def hit(self) -> bool | None:
        """Was the sign right? None: nothing was predicted, or what was measured has no clear
        sign."""
        if abs(self.expected.mean) < 1e-9 or not self.seen.clear:
            return None
        return (self.expected.mean > 0.0) == (self.seen.gain > 0.0)

    @property
    def published_hit(self) -> bool | None:
        return (
            None
            if not self.sign or not self.seen.clear
            else (self.sign > 0.0) == (self.seen.gain > 0.0)
        )

    @property
    def covered(self) -> bool:
        """Does the 95 % interval of what would be measured hold what was?"""
        deviation = float((self.expected.variance + self.seen.error**2) ** 0.5)
        return abs(self.seen.gain - self.expected.mean) <= 1.96 * deviation


class Score(NamedTuple):
    """How predictions of one kind fared."""

    title: str
    predictions: list[Predicted]

    @property
    def hits(self) -> tuple[int, int]:
        calls = [one.hit for one in self.predictions if one.hit is not None]
        return sum(calls), len(calls)

    @property
    def published_hits(self) -> tuple[int, int]:
        calls = [one.published_hit for one in self.predictions if one.published_hit is not None]
        return sum(calls), len(calls)

    @property
    def covered(self) -> tuple[int, int]:
        return sum(one.covered for one in self.predictions), len(self.predictions)

    @property
    def rank_correlation(self) -> tuple[float, float] | None:
        """Spearman's, and the chance of one as large if the order were drawn by lot; None where
        there is no order."""
        expected = np.asarray(rankdata([one.expected.mean for one in self.predictions]))
        seen = np.asarray(rankdata([one.seen.gain for one in self.predictions]))
        if len(expected) < FEWEST or np.ptp(expected) == 0.0 or np.ptp(seen) == 0.0:
            return None
        rng = np.random.default_rng(0)
        shuffled = np.array([rng.permutation(seen) for _ in range(SHUFFLES)])
        centred = expected - expected.mean()
        found = float(np.corrcoef(expected, seen)[0, 1])
        by_lot = (shuffled - seen.mean()) @ centred / (len(seen) * expected.std() * seen.std())
        return found, float((1 + (by_lot >= found - 1e-12).sum()) / (SHUFFLES + 1))

    def plain(self) -> dict[str, Any]:
        rank = self.rank_correlation
        return {
            "title": self.title,
            "levers": len(self.predictions),
            "signs_right": self.hits[0],
            "signs_called": self.hits[1],
            "published_signs_right": self.published_hits[0],
            "published_signs_called": self.published_hits[1],
            "rank_correlation": None if rank is None else rank[0],
            "chance_by_lot": None if rank is None else rank[1],
            "covered": self.covered[0],
            "predictions": [
                {
                    "lever": one.seen.arm,
                    "place": str(one.place),
                    "expected": one.expected.mean,
                    "deviation": one.expected.variance**0.5,
                    "measured": one.seen.gain,
                    "error": one.seen.error,
                    "hit": one.hit,
                }
                for one in self.predictions
            ],
        }


def back_test(effects: Sequence[MeasuredEffect], catalogue: Catalogue, metric: str) -> list[Score]:
    """At every place where enough levers were measured: each left out; then each lever's place left
    out, where it was measured at two. What is left out helps to estimate nothing."""
    measured = [one for one in effects if one.metric == metric]
    places = [
        place
        for place in dict.fromkeys(one.scope for one in measured)
        if _levers_at(measured, place) >= FEWEST
    ]
    scores = list[Score]()
    for place in places:
        facts = _facts(effects, catalogue, metric, place)
        seen = _nearest_arms([one for one in measured if one.scope == place])
        left_out = [_without_lever(one, measured, facts, metric) for one in seen]
        scores.append(Score(f"each lever left out, at {place}", left_out))
    elsewhere = list[Predicted]()
    for place in dict.fromkeys(one.scope for one in measured):
        facts = _facts(effects, catalogue, metric, place)
        for one in _nearest_arms([one for one in measured if one.scope == place]):
            if any(other.lever == one.lever and other.scope != place for other in measured):
                elsewhere.append(_without_place(one, measured, facts, metric))
    return [
        *scores,
        Score("each place left out of a lever that was measured at two or more", elsewhere),
    ]


def _without_lever(
    seen: MeasuredEffect,
    measured: Sequence[MeasuredEffect],
    facts: Mapping[str, LeverFacts],
    metric: str,
) -> Predicted:
    rest = grouped([one for one in measured if one.lever != seen.lever], metric)
    spread = estimate_spread(rest, facts, seen.scope)
    others = family_of(rest, facts, seen.scope, spread.omega)
    expected = expected_from_others(seen.lever, facts[seen.lever], others, spread)
    return Predicted(seen.lever, seen.scope, expected, facts[seen.lever].sign, seen)


def _without_place(
    seen: MeasuredEffect,
    measured: Sequence[MeasuredEffect],
    facts: Mapping[str, LeverFacts],
    metric: str,
) -> Predicted:
    rest = grouped(
        [one for one in measured if one.lever != seen.lever or one.scope != seen.scope], metric
    )
    spread = estimate_spread(rest, facts, seen.scope)
    others = family_of(rest, facts, seen.scope, spread.omega)
    prior = expected_from_others(seen.lever, facts[seen.lever], others, spread)
    expected = updated(prior, pooled(rest[seen.lever], seen.arm, seen.scope, spread.omega))
    return Predicted(seen.lever, seen.scope, expected, facts[seen.lever].sign, seen)


def _facts(
    effects: Sequence[MeasuredEffect], catalogue: Catalogue, metric: str, place: EvidenceScope
) -> dict[str, LeverFacts]:
    """As they are known without our own verdicts: on another metric the left-out lever would give
    itself away."""
    tokens = place.tokens or TOKENS
    return {
        name: LeverFacts(sign_votes(kind, metric, tokens, (), catalogue).sign, family(kind))
        for name, kind in catalogue.levers.items()
    }


def _levers_at(measured: Sequence[MeasuredEffect], place: EvidenceScope) -> int:
    return len({one.lever for one in measured if one.scope == place})


def _nearest_arms(measured: Sequence[MeasuredEffect]) -> list[MeasuredEffect]:
    """One measurement of each lever: with its default settings if there is one, then with the most
    pairs."""
    best: dict[str, MeasuredEffect] = {}
    for one in sorted(measured, key=lambda one: (one.arm != one.lever, -one.pairs, one.arm)):
        best.setdefault(one.lever, one)
    return list(best.values())


def back_test_text(scores: Sequence[Score]) -> str:
    return "\n".join(_lines(scores))


def _lines(scores: Sequence[Score]) -> Iterator[str]:
    if not any(score.predictions for score in scores):
        yield (
            f"nothing to test: no place where {FEWEST} levers were measured, no lever measured at"
            " two places"
        )
    for score in scores:
        if not score.predictions:
            continue
        yield score.title
        width = max(len(one.seen.arm) for one in score.predictions)
        for one in sorted(score.predictions, key=lambda one: -one.seen.gain):
            word = {True: "right", False: "wrong", None: "no call"}[one.hit]
            where = f"  {one.place}" if "at two or more" in score.title else ""
            yield (
                f"  {one.seen.arm:<{width}}  expected {one.expected.mean:+.3f} ±"
                f" {1.96 * one.expected.variance**0.5:.3f}, measured {one.seen.gain:+.3f} ±"
                f" {1.96 * one.seen.error:.3f}  {word}{where}"
            )
        yield (
            f"  signs right: {_share(score.hits)}; by published signs alone:"
            f" {_share(score.published_hits)}"
        )
        rank = score.rank_correlation
        yield (
            "  rank correlation: too few levers, or no order was predicted"
            if rank is None
            else f"  rank correlation: {rank[0]:+.2f} (as large by lot: {rank[1]:.2f})"
        )
        yield f"  measured inside the 95 % interval: {_share(score.covered)}"
        yield ""


def _share(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {counts[1]}" if counts[1] else "no call"
