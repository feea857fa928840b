"""How evidence is pooled: what is expected of a lever here, from its own measurements, from other levers, and from print.

    gain of a lever here  =  slope * sign  +  family  +  own        sign: of what was published, -1 to 1
    slope  ~ N(tau / 2, tau^2 / 4)      a published direction is worth half a usual effect, until our numbers say otherwise
    family ~ N(0, share * tau^2)        of levers that change the same part of a run
    own    ~ N(0, (1 - share) * tau^2)
    measured gain  =  gain here  +  N(0, d * omega^2)  +  N(0, error^2)         d: respects in which the place is another

tau, share and omega are estimated (docs/decisions/0046-pooled-evidence.md). L levers, M of them measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.advise.hierarchy.evidence_scope import EvidenceScope, differences
from fulcrum.advise.hierarchy.measured_effect import MeasuredEffect

SLOPE = 0.5  # mean and deviation of the slope, in tau
ROBUST = 3.0  # robust deviations beyond which one lever's effect says no more about the others'
ASSUMED_PAIRS = 2.0  # how many compared places the assumption omega = tau counts for
SHARES = (0.0, 0.2, 0.4, 0.6)
SPREADS = np.geomspace(0.1, 10.0, 41)  # of tau, around the median size of an effect
TAU_UNKNOWN = 0.05  # of a metric on which nobody measured anything: only the order means something then
Floats = NDArray[np.float64]


class ExpectedGain(NamedTuple):
    """A gain with its variance."""

    mean: float
    variance: float

    @property
    def interval(self) -> tuple[float, float]:
        """95 %."""
        half = 1.96 * self.variance**0.5
        return self.mean - half, self.mean + half


class LeverFacts(NamedTuple):
    """What is known of a lever beside its measurements."""

    sign: float  # of what was published
    family: str


class Spread(NamedTuple):
    """How far effects scatter: between levers, inside a family, between places."""

    tau: float
    share: float
    omega: float
    levers: int  # that tau is from
    places: int  # compared pairs of places that omega is from


def distance(effect: MeasuredEffect, arm: str, here: EvidenceScope) -> int:
    """Respects in which a measurement is not of this arm at this place."""
    return len(differences(effect.scope, here)) + (effect.arm != arm)


def pooled(effects: Iterable[MeasuredEffect], arm: str, here: EvidenceScope, omega: float) -> ExpectedGain | None:
    """What a lever's own measurements say of an arm of it here; None where there are none. Those of one arm at one place
    share what is particular about that place, so they are joined first."""
    places: dict[tuple[str, EvidenceScope], list[MeasuredEffect]] = {}
    for one in effects:
        places.setdefault((one.arm, one.scope), []).append(one)
    estimates = list[ExpectedGain]()
    for some in places.values():
        mean, variance = _joined([ExpectedGain(one.gain, one.error**2) for one in some])
        estimates.append(ExpectedGain(mean, variance + distance(some[0], arm, here) * omega**2))
    return _joined(estimates) if estimates else None


def _joined(estimates: Sequence[ExpectedGain]) -> ExpectedGain:
    """Weighted by precision."""
    weights = np.array([1.0 / one.variance for one in estimates])
    return ExpectedGain(float(weights @ [one.mean for one in estimates] / weights.sum()), float(1.0 / weights.sum()))


def updated(prior: ExpectedGain, own: ExpectedGain | None) -> ExpectedGain:
    """A lever's own measurements, drawn towards what the others lead to expect, but never by more than their own
    error: the largest effects are no luck of the draw, and a normal prior would take a part of them away."""
    if own is None:
        return prior
    mean, variance = _joined([prior, own])
    error = own.variance**0.5
    return ExpectedGain(float(np.clip(mean, own.mean - error, own.mean + error)), variance)


class MeasuredLevers(NamedTuple):
    """Measured levers, side by side, as arrays: what one may say about another."""

    names: tuple[str, ...]
    gains: Floats  # (M,) clipped
    variances: Floats  # (M,)
    signs: Floats  # (M,)
    families: tuple[str, ...]

    def without(self, lever: str) -> "MeasuredLevers":
        kept = [place for place, name in enumerate(self.names) if name != lever]
        names, families = (tuple(values[place] for place in kept) for values in (self.names, self.families))
        return MeasuredLevers(names, self.gains[kept], self.variances[kept], self.signs[kept], families)

    def covariance(self, tau: float, share: float) -> Floats:
        """(M, M) of the levers' true gains, the slope's uncertainty included."""
        same = np.array([[one == other for other in self.families] for one in self.families], dtype=np.float64)
        own = np.eye(len(self.names))
        slope = SLOPE**2 * np.outer(self.signs, self.signs)
        return np.asarray(tau**2 * (slope + share * same + (1.0 - share) * own))


def family_of(
    effects: Mapping[str, Sequence[MeasuredEffect]], facts: Mapping[str, LeverFacts], here: EvidenceScope, omega: float
) -> MeasuredLevers:
    """Every measured lever once: what its measurements say of it, with default settings, here."""
    estimates = {name: one for name, some in effects.items() if (one := pooled(some, name, here, omega)) is not None}
    gains = np.array([one.mean for one in estimates.values()])
    return MeasuredLevers(
        tuple(estimates),
        clipped(gains),
        np.array([one.variance for one in estimates.values()]),
        np.array([facts[name].sign for name in estimates]),
        tuple(facts[name].family for name in estimates),
    )


def clipped(gains: Floats) -> Floats:
    """Effects within three robust deviations of zero: captions that say nothing ruin a training, and that tells nothing
    about what an optimizer may do."""
    if len(gains) < 3:
        return gains
    limit = ROBUST * 1.4826 * float(np.median(np.abs(gains)))
    return np.clip(gains, -limit, limit) if limit > 0.0 else gains


def estimate_spread(
    effects: Mapping[str, Sequence[MeasuredEffect]], facts: Mapping[str, LeverFacts], here: EvidenceScope
) -> Spread:
    """tau and share by their likelihood; omega from levers that were measured in two places, drawn towards tau."""
    first = family_of(effects, facts, here, 0.0)
    if not first.names:
        return Spread(TAU_UNKNOWN, 0.0, TAU_UNKNOWN, 0, 0)
    tau, _ = _likeliest(first)
    omega, places = _between_places(effects, tau)
    tau, share = _likeliest(family_of(effects, facts, here, omega))
    return Spread(tau, share, omega, len(first.names), places)


def _between_places(effects: Mapping[str, Sequence[MeasuredEffect]], tau: float) -> tuple[float, int]:
    """omega, and how many pairs of places it is from: E (a - b)^2 = the errors' squares + d * omega^2."""
    squares, steps, places = 0.0, 0, 0
    for some in effects.values():
        limit = ROBUST * tau
        for one, other in combinations(some, 2):
            apart = distance(one, other.arm, other.scope)
            if apart:
                difference = float(np.clip(one.gain - other.gain, -limit, limit))
                squares += difference**2 - one.error**2 - other.error**2
                steps, places = steps + apart, places + 1
    return ((ASSUMED_PAIRS * tau**2 + max(squares, 0.0)) / (ASSUMED_PAIRS + steps)) ** 0.5, places


def _likeliest(family: MeasuredLevers) -> tuple[float, float]:
    usual = float(np.median(np.abs(family.gains))) or float(family.variances.mean()) ** 0.5
    tried = [(float(usual * spread), share) for spread in SPREADS for share in SHARES]
    return max(tried, key=lambda one: _log_likelihood(family, *one))


def _log_likelihood(family: MeasuredLevers, tau: float, share: float) -> float:
    matrix = family.covariance(tau, share) + np.diag(family.variances)
    residual = family.gains - SLOPE * tau * family.signs
    factor = np.linalg.cholesky(matrix)
    white = np.linalg.solve(factor, residual)
    prior = -0.5 * np.log(tau / np.median(np.abs(family.gains) + 1e-12)) ** 2  # one lever alone would make tau its own size
    return float(-0.5 * white @ white - np.log(np.diag(factor)).sum() + prior)


def expected_from_others(lever: str, facts: LeverFacts, family: MeasuredLevers, spread: Spread) -> ExpectedGain:
    """What print and the other levers lead to expect of one, whose own measurements are left out."""
    others, tau = family.without(lever), spread.tau
    mean = SLOPE * tau * facts.sign
    variance = tau**2 * (1.0 + SLOPE**2 * facts.sign**2)
    if not others.names:
        return ExpectedGain(mean, variance)
    shared = np.array([name == facts.family for name in others.families], dtype=np.float64)
    covariance = tau**2 * (SLOPE**2 * facts.sign * others.signs + spread.share * shared)  # (M,)
    matrix = others.covariance(tau, spread.share) + np.diag(others.variances)
    weights = np.linalg.solve(matrix, covariance)
    residual = others.gains - SLOPE * tau * others.signs
    return ExpectedGain(float(mean + weights @ residual), max(float(variance - weights @ covariance), 1e-12))
