"""The levers that are left for a run, by expected effect per cost: what is known of each, how well, and from where."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from scipy.stats import norm

from fulcrum.advice.decisions import SAME_TIME
from fulcrum.advise.hierarchy.effect_pool import (
    LeverFacts,
    Spread,
    distance,
    estimate_spread,
    expected_from_others,
    family_of,
    pooled,
    updated,
)
from fulcrum.advise.hierarchy.evidence_scope import EvidenceScope, differences, same_step, scope_of_phrase
from fulcrum.advise.hierarchy.measured_effect import DECIDED, MeasuredEffect, known_effects
from fulcrum.advise.hierarchy.published_sign import SignVotes, sign_votes
from fulcrum.levers.folder_lever import FromFolder
from fulcrum.measure.evaluation import can_measure
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue, Phrase, Staged, apply, ask, parse, read_lever
from fulcrum.studies.plan import Plan
from fulcrum.studies.proof import PRIMARY_ANYWHERE

Known = Literal["measured here", "measured elsewhere", "claimed only", "nobody knows"]
Outcome = Literal["help", "unclear", "no difference", "hurt"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
TENTH = 0.1
DIGITS = 9  # beyond which two numbers are called equal
NORMAL_95 = 1.96  # deviations of half a 95 % interval


class AdvisedLever(NamedTuple):
    """One line of advice."""

    arm: str  # as a phrase has it
    lever: str
    expected: float  # gain on the metric: more is better
    low: float  # 95 %
    high: float
    known: Known
    evidence: tuple[MeasuredEffect, ...]  # on this metric, nearest first
    votes: SignVotes
    time: float | None  # of a step over the run's own, timed in a study of such steps; None: nobody timed them
    flops: float  # the same by formula, for this run
    settled: str  # the verdict of a study at this very place; empty: there is none
    pairs: int = 0  # most that a study at this very place had
    margin: float | None = None  # the smallest effect of interest on the metric; None: nobody said one

    @property
    def dearer(self) -> float:
        """Share by which a step takes longer: as timed, else as its FLOPs say; small ones count as what timing can tell."""
        return max(self.step - 1.0, SAME_TIME)

    @property
    def per_tenth(self) -> float:
        """Expected gain for each tenth of more time."""
        return self.expected * TENTH / self.dearer

    @property
    def step(self) -> float:
        """What a step takes, over the run's own: as timed, else as its FLOPs say."""
        return self.time or self.flops

    @property
    def outcome(self) -> Outcome:
        """What is expected. No difference: a study here called it a tie, or no effect that matters lies in its interval.
        Unclear: less than matters is expected, no study here decided it, and its interval allows more, either way."""
        margin = self.margin or 0.0
        if self.settled == "tie" or max(-self.low, self.high) <= margin:
            return "no difference"
        if not self.settled and abs(self.expected) < margin:
            return "unclear"
        return "help" if self.expected > 0.0 else "hurt"

    @property
    def order(self) -> tuple[int, float, float]:
        """What is expected to help comes first, by gain per time; then what is unclear, by what finding out promises; then
        what makes no difference, the fastest first; then the rest, the least harm first. Equals stay as the catalogue has
        them."""
        keys = {"help": -self.per_tenth, "unclear": -self.promise, "no difference": self.step, "hurt": -self.expected}
        return OUTCOMES.index(self.outcome), round(keys[self.outcome], DIGITS), round(self.low - self.high, DIGITS)

    @property
    def promise(self) -> float:
        """What finding out is expected to bring, for the time that its trainings take: the gain where it turns out to be
        one, times the chance of that. Wide intervals promise more than narrow ones around the same number."""
        deviation = max((self.high - self.low) / (2.0 * NORMAL_95), 1e-12)
        z = self.expected / deviation
        return round(float(self.expected * norm.cdf(z) + deviation * norm.pdf(z)) / self.step, DIGITS)

    def plain(self, here: EvidenceScope) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "lever": self.lever,
            "expected": self.expected,
            "low": self.low,
            "high": self.high,
            "known": self.known,
            "outcome": self.outcome,
            "time": self.time,
            "flops": self.flops,
            "per_tenth_of_time": self.per_tenth,
            "settled": self.settled,
            "promise": self.promise,
            "evidence": [
                {
                    "arm": one.arm,
                    "where": str(one.scope),
                    "gain": one.gain,
                    "error": one.error,
                    "pairs": one.pairs,
                    "verdict": one.verdict,
                    "from": one.origin,
                    "differs": differences(one.scope, here) + [f"as {one.arm}"] * (one.arm != self.arm),
                }
                for one in self.evidence
            ],
            "published": [
                {"metric": one.metric, "change": one.change, "scope": one.scope, "source": one.source}
                for one in self.votes.claims
            ],
            "sign": self.votes.sign,
        }


class Advice(NamedTuple):
    phrase: Phrase
    settings: tuple[str, ...]
    metric: str
    here: EvidenceScope
    levers: list[AdvisedLever]  # best first
    refused: list[tuple[str, str]]  # arm, why it cannot be applied here, or is idle
    spread: Spread
    effects: list[MeasuredEffect]  # all that was pooled

    @property
    def measured(self) -> list[MeasuredEffect]:
        return [one for one in self.effects if one.metric == self.metric]

    def plain(self) -> dict[str, Any]:
        return {
            "phrase": str(self.phrase),
            "settings": list(self.settings),
            "metric": self.metric,
            "better": "higher",
            "here": str(self.here),
            "levers": [one.plain(self.here) for one in self.levers],
            "refused": [{"arm": arm, "why": why} for arm, why in self.refused],
            "spread": self.spread._asdict(),
            "measured": len(self.measured),
        }


def advise(
    text: str, catalogue: Catalogue, out: Path, settings: Iterable[str] = (), measured: Path | None = None
) -> Advice:
    """Order the levers that a phrase does not have yet."""
    settings = tuple(settings)
    phrase = parse(text, catalogue, settings)
    usual = Plan.model_fields["primary"].default
    metric = usual if can_measure(phrase.run, usual) else PRIMARY_ANYWHERE
    margin = Plan.model_fields["smallest_effect"].default if metric == usual else None
    here, effects = scope_of_phrase(phrase, settings), known_effects(catalogue, out, measured)
    votes = {
        name: sign_votes(kind, metric, phrase.run.tokens, effects, catalogue) for name, kind in catalogue.levers.items()
    }
    facts = {name: LeverFacts(votes[name].sign, family(kind)) for name, kind in catalogue.levers.items()}
    by_lever = grouped(effects, metric)
    spread = estimate_spread(by_lever, facts, here)
    levers, refused = list[AdvisedLever](), list[tuple[str, str]]()
    others = family_of(by_lever, facts, here, spread.omega)
    for arm, lever in _candidates(catalogue, phrase, by_lever):
        why = _refusal(phrase, lever)
        if why:
            refused.append((arm, why))
            continue
        own = tuple(sorted(by_lever.get(lever.name, ()), key=lambda one: (distance(one, arm, here), -one.pairs)))
        prior = expected_from_others(lever.name, facts[lever.name], others, spread)
        gain = updated(prior, pooled(own, arm, here, spread.omega))
        at_home = [one for one in own if not distance(one, arm, here)]
        levers.append(
            AdvisedLever(
                arm,
                lever.name,
                gain.mean,
                *gain.interval,
                _known(own, at_home, votes[lever.name]),
                own,
                votes[lever.name],
                next((one.time for one in own if one.time and one.arm == arm and same_step(one.scope, here)), None),
                ask(lever, "cost", phrase.run).flops,
                next((one.verdict for one in at_home if one.verdict in DECIDED), ""),
                max((one.pairs for one in at_home), default=0),
                margin,
            )
        )
    return Advice(phrase, settings, metric, here, sorted(levers, key=lambda one: one.order), refused, spread, effects)


def grouped(effects: Iterable[MeasuredEffect], metric: str) -> dict[str, list[MeasuredEffect]]:
    """Lever -> what was measured of it on this metric."""
    by_lever: dict[str, list[MeasuredEffect]] = {}
    for one in effects:
        if one.metric == metric:
            by_lever.setdefault(one.lever, []).append(one)
    return by_lever


def family(lever: type[Any]) -> str:
    """Levers that change the same part of a run: precision, captions and data, codec, objective, routing, optimizer."""
    first: str = lever.touches[0]
    return first.split(".")[0] if first.split(".")[0] not in ("data", "model", "encode") else ".".join(first.split(".")[:2])


def _candidates(
    catalogue: Catalogue, phrase: Phrase, by_lever: Mapping[str, Sequence[MeasuredEffect]]
) -> Iterable[tuple[str, Any]]:
    """Every lever that is not on yet with its default settings, and with those that it was measured with."""
    on = {(lever.lever if isinstance(lever, Staged) else lever).name for lever in phrase.levers}
    for name, kind in catalogue.levers.items():
        if name in on:
            continue
        yield name, kind()
        for arm in dict.fromkeys(one.arm for one in by_lever.get(name, ()) if one.arm != name):
            try:
                yield arm, read_lever(arm, catalogue)
            except BadInput:  # a setting of before
                continue


def _refusal(phrase: Phrase, lever: Any) -> str:
    """Why a lever cannot be added to a run, or nothing could come of it there; empty: it can."""
    if isinstance(lever, FromFolder) and not lever.path:
        return f"it is about a published network, and needs its folder: {lever.name}(path='FOLDER')"
    try:
        run = apply(phrase.base, (*phrase.levers, lever))
    except BadInput as error:
        return error.message.removeprefix(f"'{lever.name}' cannot be used here: ")
    return run.model.learned.problem(run) or str(ask(lever, "idle", run))


def _known(own: Sequence[MeasuredEffect], at_home: Sequence[MeasuredEffect], votes: SignVotes) -> Known:
    if at_home:
        return "measured here"
    if own or votes.verdicts:
        return "measured elsewhere"
    return "claimed only" if votes.claims else "nobody knows"
