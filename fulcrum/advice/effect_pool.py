"""Pool evidence on a lever: measured effects, their scope, and published signs."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from fulcrum.advice.decisions import all_decisions, lever_of, row_of
from fulcrum.files.paths import read_regular
from fulcrum.judge.card import METRICS
from fulcrum.judge.claim_verdicts import claimed_direction
from fulcrum.judge.schema import StudyResult
from fulcrum.levers.base import Claim
from fulcrum.levers.measured_table import read_measured
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.phrase import Catalogue, Phrase, parse
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE
from fulcrum.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------
# Where an effect was measured, and in how many respects that is another place than the one that is
# asked about.


ALIKE = 1.5  # token counts and budgets within this factor are called the same
BUDGET = "budget.images="


class EvidenceScope(NamedTuple):
    """A baseline that levers are added to."""

    recipe: str
    levers: frozenset[str]  # that are on already
    settings: frozenset[str]  # path=value, without the budget
    images: int | None  # budget; None: not known
    tokens: int | None  # image tokens of a sample; None: not known
    science: int

    def __str__(self) -> str:
        on = "".join(f" + {lever}" for lever in sorted(self.levers))
        counts = ((self.tokens, "tokens"), (self.images, "images"))
        facts = [f"{count:,} {what}" for count, what in counts if count is not None]
        facts += sorted(self.settings) + [f"science {self.science}"] * (self.science != SCIENCE)
        return f"{self.recipe}{on}" + (f" ({', '.join(facts)})" if facts else "")


def scope_of_phrase(phrase: Phrase, settings: Iterable[str] = ()) -> EvidenceScope:
    """Of a phrase that a person asks about."""
    return EvidenceScope(
        phrase.recipe,
        frozenset(str(lever) for lever in phrase.levers),
        frozenset(one for one in settings if not one.startswith(BUDGET)),
        phrase.run.budget.images,
        phrase.run.tokens,
        SCIENCE,
    )


def scope_of_base(
    base: str, settings: Iterable[str], images: int | None, science: int, catalogue: Catalogue
) -> EvidenceScope:
    """Of a row of evidence. What cannot be read any more (a file of one's own) has no known tokens,
    nor has a recipe of another science: it has changed since."""
    settings = tuple(settings)
    try:
        phrase = parse(base, catalogue, settings) if science == SCIENCE else None
    except BadInput:
        phrase = None
    if phrase is None:
        recipe, *levers = base.split(" + ")
        kept = frozenset(one for one in settings if not one.startswith(BUDGET))
        return EvidenceScope(recipe, frozenset(levers), kept, images, None, science)
    scope = scope_of_phrase(phrase, settings)
    own_budget = any(one.startswith(BUDGET) for one in settings)
    return scope._replace(images=scope.images if own_budget or images is None else images)


def differences(there: EvidenceScope, here: EvidenceScope) -> list[str]:
    """In which respects evidence from there is about another place than here, in words; each is one
    step of distance. A row that does not know its tokens or budget has those of its recipe: another
    recipe has others."""
    other = there.recipe != here.recipe
    return [
        word
        for word, unlike in (
            (f"on {there.recipe}", other),
            (
                f"beside {', '.join(sorted(there.levers)) or 'no other lever'}",
                there.levers != here.levers,
            ),
            (
                f"with {', '.join(sorted(there.settings)) or 'no settings'}",
                there.settings != here.settings,
            ),
            (_count(there.tokens, "tokens"), _unlike(there.tokens, here.tokens, other)),
            (_count(there.images, "images"), _unlike(there.images, here.images, other)),
            (f"science {there.science}, now {here.science}", there.science != here.science),
        )
        if unlike
    ]


def same_step(there: EvidenceScope, here: EvidenceScope) -> bool:
    """Is a step here the step that was timed there? Another network, or another lever beside it,
    has another time; how many pictures a run sees changes no step."""
    return there._replace(images=here.images, tokens=here.tokens) == here and not _unlike(
        there.tokens, here.tokens
    )


def _count(number: int | None, what: str) -> str:
    return f"{what} not known" if number is None else f"{number:,} {what}"


def _unlike(one: int | None, other: int | None, unknown: bool = False) -> bool:
    if one is None or other is None:
        return unknown
    return not 1 / ALIKE <= one / other <= ALIKE


# --------------------------------------------------------------------------------------------------
# One measured effect of one lever, from the table that ships or from a person's own finished
# studies, in one form.


MOST = 64_000_000  # bytes of a report that are read
SHIPPED = "docs/evidence"
# of an effect, as a share of it: an interval of width zero is rounding, not certainty
SMALLEST_ERROR = 1e-3
NOTHING_LEARNED = ("failed", "not learned")  # verdicts whose numbers say nothing about a lever
# fields of a scope that a plan fixes: neither tokens, which a science may change, nor the science
SCOPE_OF_PLAN = 4
DECIDED = ("better", "worse", "tie")


class MeasuredEffect(NamedTuple):
    lever: str
    arm: str  # with its settings, as a phrase has it
    metric: str
    gain: float  # more is better, whatever the metric
    error: float  # standard error of the gain
    pairs: int
    verdict: str
    scope: EvidenceScope
    time: float | None  # of a step over its baseline's
    flops: float | None
    origin: str  # docs/evidence, or the name of a study of one's own
    plan: str = ""  # hash of the plan that it comes from
    #: how those of its trainings and its baseline's begin; empty: not known
    keys: frozenset[str] = frozenset()

    @property
    def clear(self) -> bool:
        """Does its 95 % interval exclude zero?"""
        return abs(self.gain) > float(student.ppf(0.975, self.pairs - 1)) * self.error

    def is_same(self, other: "MeasuredEffect") -> bool:
        """Do both tell of the same trainings, or one of some of the other's? Where one does not
        know its own, they are the same if plan, arm and place are; a science says nothing then, as
        nobody may have written it down."""
        if (self.lever, self.metric) != (other.lever, other.metric):
            return False
        if self.keys and other.keys:
            return self.keys <= other.keys or other.keys <= self.keys
        one, two = (
            (effect.plan, effect.arm, effect.scope[:SCOPE_OF_PLAN]) for effect in (self, other)
        )
        return bool(self.plan) and one == two


def known_effects(
    catalogue: Catalogue, out: Path, measured: Path | None = None
) -> list[MeasuredEffect]:
    """All that was measured: the table, and the finished studies below `out`. Trainings that stand
    in both, or under two plans, count once, with the more pairs."""
    table = read_measured(measured) if measured is not None else read_measured()
    shipped = [effect_of(row, SHIPPED, catalogue) for row in table]
    own = [effect_of(row, study, catalogue) for study, row in _own_rows(out, catalogue)]
    effects, once = (
        [one for one in (*shipped, *own) if one is not None],
        dict[int, MeasuredEffect](),
    )
    for place, effect in sorted(
        enumerate(effects), key=lambda one: (-one[1].pairs, -len(one[1].keys), one[0])
    ):
        if not any(effect.is_same(other) for other in once.values()):
            once[place] = effect
    return [once[place] for place in sorted(once)]


def effect_of(row: Mapping[str, Any], origin: str, catalogue: Catalogue) -> MeasuredEffect | None:
    """A row of a table; None where it says nothing about the lever's quality: an unknown lever or
    metric, one pair, nothing learned, or two sides that were judged by different prompts."""
    useless = row["verdict"] in NOTHING_LEARNED or not row.get("alike", True) or row["pairs"] < 2
    if useless or row["lever"] not in catalogue.levers or row["metric"] not in METRICS:
        return None
    sign = 1.0 if METRICS[row["metric"]].better == "higher" else -1.0
    half = (row["high"] - row["low"]) / 2.0
    error = max(
        half / float(student.ppf(0.975, row["pairs"] - 1)),
        SMALLEST_ERROR * abs(row["change"]),
        1e-9,
    )
    base, settings = row.get("base") or row["recipe"], row.get("settings") or ()
    return MeasuredEffect(
        row["lever"],
        row.get("arm") or row["lever"],
        row["metric"],
        sign * row["change"],
        error,
        row["pairs"],
        row["verdict"],
        scope_of_base(base, settings, row.get("images"), row["science"], catalogue),
        row.get("time"),
        row.get("flops"),
        origin,
        row.get("plan") or "",
        frozenset((row.get("keys") or "").split()),
    )


def _own_rows(out: Path, catalogue: Catalogue) -> Iterable[tuple[str, dict[str, Any]]]:
    """Of every finished study under a folder: the levers that were added alone. A report that
    cannot be read is passed over, as are studies whose arms begin from a trained trunk or are
    combinations: they ask something else."""
    for path in sorted(out.glob("study-*/report.json")) if out.is_dir() else ():
        try:
            result = StudyResult.model_validate_json(read_regular(path, limit=MOST))
            plan = json.loads(read_regular(path.with_name("plan.json"), limit=MOST))
            beside = (
                result.state != "finished"
                or result.fraction is not None
                or plan.get("trunk") is not None
            )
            science = _science_of(result, out)
        except (OSError, ValueError, AttributeError, RecursionError, FulcrumError):
            continue
        for decision in () if beside else all_decisions(path.parent.name, result):
            lever = lever_of(decision, catalogue.levers)
            row = row_of(lever, decision, science) if lever else None
            if row is not None:
                yield f"your {path.parent.name}", row


def _science_of(result: StudyResult, out: Path) -> int:
    """The version that trained a study's cells, as the first of them says; one whose cells are gone
    is of today's."""
    for cell in result.baseline.cells:
        if (out / cell.key / "about.json").is_file():
            return int(RunFolder(out / cell.key).about().get("science", FIRST_SCIENCE))
    return SCIENCE


# --------------------------------------------------------------------------------------------------
# What was said of a lever on scales that are not ours, as a sign: published claims, and our own
# verdicts on other metrics.
#
# A published FID of -3 and an F-score of +0.03 have no common unit, and their signs are opposite:
# which way is better, the metric says (`claimed_direction`), and of the size nothing is used.


VOTES = {"better": 1.0, "worse": -1.0, "none": 0.0}


class SignVotes(NamedTuple):
    claims: tuple[Claim, ...]  # that may be expected to hold at this number of tokens
    verdicts: tuple[MeasuredEffect, ...]  # decided, on another metric than the one asked about

    @property
    def sign(self) -> float:
        """Mean of all votes, -1 (worse) to +1 (better); 0 where there are none, or as many for as
        against."""
        votes = [VOTES[claimed_direction(claim)] for claim in self.claims]
        votes += [VOTES[effect.verdict] for effect in self.verdicts]
        return sum(votes) / len(votes) if votes else 0.0

    @property
    def words(self) -> str:
        """'published: fid -3.56, cmmd -0.06'; claims that were made at several places are told
        apart"""
        places = list(dict.fromkeys(claim.scope for claim in self.claims))
        shared = set.intersection(*({*place.split(", ")} for place in places)) if places else set()
        said = []
        for place in places:
            numbers = [
                f"{claim.metric} {claim.change:+g}" for claim in self.claims if claim.scope == place
            ]
            apart = [part for part in place.split(", ") if part not in shared]
            said.append(", ".join(numbers) + (f" ({', '.join(apart)})" if apart else ""))
        seen = [
            f"{effect.verdict} on {effect.metric} ({effect.scope.recipe})"
            for effect in self.verdicts
        ]
        also = sorted({claim.also for claim in self.claims if claim.also})
        parts = (
            [f"published: {', '.join(said)}" + (f" (with {', '.join(also)})" if also else "")]
            if said
            else []
        )
        return "; ".join(parts + ([f"measured: {', '.join(seen)}"] if seen else []))


def sign_votes(
    lever: type[Any],
    metric: str,
    tokens: int,
    effects: Iterable[MeasuredEffect],
    catalogue: Catalogue,
) -> SignVotes:
    other = (one for one in effects if one.lever == lever.name and one.metric != metric)
    seen = (one for one in other if one.verdict in ("better", "worse"))
    return SignVotes(_holding(lever.card.claims, tokens, catalogue), tuple(seen))


def _holding(claims: tuple[Claim, ...], tokens: int, catalogue: Catalogue) -> tuple[Claim, ...]:
    """The claims whose direction may be expected at this number of tokens: those that carry, and of
    those that depend on the scale the ones made nearest to it (routing: worse at 256 tokens, better
    at 1,024)."""
    distance = {
        name: abs(math.log(catalogue.recipes[name]().tokens / tokens))
        for name in {claim.recipe for claim in claims if not claim.carries}
        if name in catalogue.recipes
    }
    nearest = min(distance.values(), default=0.0)
    return tuple(
        claim for claim in claims if claim.carries or distance.get(claim.recipe) == nearest
    )


# --------------------------------------------------------------------------------------------------
# How evidence is pooled: what is expected of a lever here, from its own measurements, from other
# levers, and from print.
#
#     gain of a lever here  =  slope * sign  +  family  +  own
#     measured gain         =  gain here  +  N(0, d * omega^2)  +  N(0, error^2)
#
#     sign                                of what was published, -1 to 1
#     slope  ~ N(tau / 2, tau^2 / 4)      a published direction is worth half a usual effect, until
#                                         our numbers say otherwise
#     family ~ N(0, share * tau^2)        of levers that change the same part of a run
#     own    ~ N(0, (1 - share) * tau^2)
#     d                                   respects in which the place is another
#
# tau, share and omega are estimated (docs/decisions/0046-pooled-evidence.md). L levers, M of them
# measured.


SLOPE = 0.5  # mean and deviation of the slope, in tau
ROBUST = 3.0  # robust deviations beyond which one lever's effect says no more about the others'
ASSUMED_PAIRS = 2.0  # how many compared places the assumption omega = tau counts for
SHARES = (0.0, 0.2, 0.4, 0.6)
SPREADS = np.geomspace(0.1, 10.0, 41)  # of tau, around the median size of an effect
# of a metric on which nobody measured anything: only the order means something then
TAU_UNKNOWN = 0.05
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


def pooled(
    effects: Iterable[MeasuredEffect], arm: str, here: EvidenceScope, omega: float
) -> ExpectedGain | None:
    """What a lever's own measurements say of an arm of it here; None where there are none. Those of
    one arm at one place share what is particular about that place, so they are joined first."""
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
    return ExpectedGain(
        float(weights @ [one.mean for one in estimates] / weights.sum()), float(1.0 / weights.sum())
    )


def updated(prior: ExpectedGain, own: ExpectedGain | None) -> ExpectedGain:
    """A lever's own measurements, drawn towards what the others lead to expect, but never by more
    than their own error: the largest effects are no luck of the draw, and a normal prior would take
    a part of them away."""
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
        names, families = (
            tuple(values[place] for place in kept) for values in (self.names, self.families)
        )
        return MeasuredLevers(
            names, self.gains[kept], self.variances[kept], self.signs[kept], families
        )

    def covariance(self, tau: float, share: float) -> Floats:
        """(M, M) of the levers' true gains, the slope's uncertainty included."""
        same = np.array(
            [[one == other for other in self.families] for one in self.families], dtype=np.float64
        )
        own = np.eye(len(self.names))
        slope = SLOPE**2 * np.outer(self.signs, self.signs)
        return np.asarray(tau**2 * (slope + share * same + (1.0 - share) * own))


def family_of(
    effects: Mapping[str, Sequence[MeasuredEffect]],
    facts: Mapping[str, LeverFacts],
    here: EvidenceScope,
    omega: float,
) -> MeasuredLevers:
    """Every measured lever once: what its measurements say of it, with default settings, here."""
    estimates = {
        name: one
        for name, some in effects.items()
        if (one := pooled(some, name, here, omega)) is not None
    }
    gains = np.array([one.mean for one in estimates.values()])
    return MeasuredLevers(
        tuple(estimates),
        clipped(gains),
        np.array([one.variance for one in estimates.values()]),
        np.array([facts[name].sign for name in estimates]),
        tuple(facts[name].family for name in estimates),
    )


def clipped(gains: Floats) -> Floats:
    """Effects within three robust deviations of zero: captions that say nothing ruin a training,
    and that tells nothing about what an optimizer may do."""
    if len(gains) < 3:
        return gains
    limit = ROBUST * 1.4826 * float(np.median(np.abs(gains)))
    return np.clip(gains, -limit, limit) if limit > 0.0 else gains


def estimate_spread(
    effects: Mapping[str, Sequence[MeasuredEffect]],
    facts: Mapping[str, LeverFacts],
    here: EvidenceScope,
) -> Spread:
    """tau and share by their likelihood; omega from levers that were measured in two places, drawn
    towards tau."""
    first = family_of(effects, facts, here, 0.0)
    if not first.names:
        return Spread(TAU_UNKNOWN, 0.0, TAU_UNKNOWN, 0, 0)
    tau, _ = _likeliest(first)
    omega, places = _between_places(effects, tau)
    tau, share = _likeliest(family_of(effects, facts, here, omega))
    return Spread(tau, share, omega, len(first.names), places)


def _between_places(
    effects: Mapping[str, Sequence[MeasuredEffect]], tau: float
) -> tuple[float, int]:
    """omega, and how many pairs of places it is from: E (a - b)^2 = the errors' squares + d *
    omega^2."""
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
    # one lever alone would make tau its own size
    prior = -0.5 * np.log(tau / np.median(np.abs(family.gains) + 1e-12)) ** 2
    return float(-0.5 * white @ white - np.log(np.diag(factor)).sum() + prior)


def expected_from_others(
    lever: str, facts: LeverFacts, family: MeasuredLevers, spread: Spread
) -> ExpectedGain:
    """What print and the other levers lead to expect of one, whose own measurements are left
    out."""
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
    return ExpectedGain(
        float(mean + weights @ residual), max(float(variance - weights @ covariance), 1e-12)
    )
