"""What was said of a lever on scales that are not ours, as a sign: published claims, and our own verdicts on other metrics.

A published FID of -3 and an F-score of +0.03 have no common unit, and their signs are opposite: which way is better, the
metric says (`claimed_direction`), and of the size nothing is used.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from fulcrum.advise.hierarchy.measured_effect import MeasuredEffect
from fulcrum.levers.base import Claim
from fulcrum.spec.phrase import Catalogue
from fulcrum.studies.claims import claimed_direction

VOTES = {"better": 1.0, "worse": -1.0, "none": 0.0}


class SignVotes(NamedTuple):
    claims: tuple[Claim, ...]  # that may be expected to hold at this number of tokens
    verdicts: tuple[MeasuredEffect, ...]  # decided, on another metric than the one asked about

    @property
    def sign(self) -> float:
        """Mean of all votes, -1 (worse) to +1 (better); 0 where there are none, or as many for as against."""
        votes = [VOTES[claimed_direction(claim)] for claim in self.claims]
        votes += [VOTES[effect.verdict] for effect in self.verdicts]
        return sum(votes) / len(votes) if votes else 0.0

    @property
    def words(self) -> str:
        """'published: fid -3.56, cmmd -0.06'; claims that were made at several places are told apart"""
        places = list(dict.fromkeys(claim.scope for claim in self.claims))
        shared = set.intersection(*({*place.split(", ")} for place in places)) if places else set()
        said = []
        for place in places:
            numbers = [f"{claim.metric} {claim.change:+g}" for claim in self.claims if claim.scope == place]
            apart = [part for part in place.split(", ") if part not in shared]
            said.append(", ".join(numbers) + (f" ({', '.join(apart)})" if apart else ""))
        seen = [f"{effect.verdict} on {effect.metric} ({effect.scope.recipe})" for effect in self.verdicts]
        also = sorted({claim.also for claim in self.claims if claim.also})
        parts = [f"published: {', '.join(said)}" + (f" (with {', '.join(also)})" if also else "")] if said else []
        return "; ".join(parts + ([f"measured: {', '.join(seen)}"] if seen else []))


def sign_votes(
    lever: type[Any], metric: str, tokens: int, effects: Iterable[MeasuredEffect], catalogue: Catalogue
) -> SignVotes:
    other = (one for one in effects if one.lever == lever.name and one.metric != metric)
    seen = (one for one in other if one.verdict in ("better", "worse"))
    return SignVotes(_holding(lever.card.claims, tokens, catalogue), tuple(seen))


def _holding(claims: tuple[Claim, ...], tokens: int, catalogue: Catalogue) -> tuple[Claim, ...]:
    """The claims whose direction may be expected at this number of tokens: those that carry, and of those that depend on
    the scale the ones made nearest to it (routing: worse at 256 tokens, better at 1,024)."""
    distance = {
        name: abs(math.log(catalogue.recipes[name]().tokens / tokens))
        for name in {claim.recipe for claim in claims if not claim.carries}
        if name in catalogue.recipes
    }
    nearest = min(distance.values(), default=0.0)
    return tuple(claim for claim in claims if claim.carries or distance.get(claim.recipe) == nearest)
