"""Which lever to try next, in words, and the plan that would settle it."""

import json
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, get_args

from scipy.stats import norm

from fulcrum.advice.decisions import SAME_TIME
from fulcrum.advice.effect_pool import (
    DECIDED,
    EvidenceScope,
    LeverFacts,
    MeasuredEffect,
    SignVotes,
    Spread,
    differences,
    distance,
    estimate_spread,
    expected_from_others,
    family_of,
    known_effects,
    pooled,
    same_step,
    scope_of_phrase,
    sign_votes,
    updated,
)
from fulcrum.files.atomic import write_new
from fulcrum.files.paths import require_free
from fulcrum.judge.card import METRICS
from fulcrum.judge.power import chance_seen
from fulcrum.judge.statistics import pairs_needed
from fulcrum.levers.folder_lever import FromFolder
from fulcrum.measure.evaluation import can_measure
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue, Phrase, Staged, apply, ask, parse, read_lever
from fulcrum.studies.cell import lay_out
from fulcrum.studies.estimate import estimate
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import from_person
from fulcrum.studies.proof import PRIMARY_ANYWHERE, with_primary
from fulcrum.studies.runner import room

# --------------------------------------------------------------------------------------------------
# Where a plan may be written: asked before anything that takes time, so it imports nothing that
# does.


# --------------------------------------------------------------------------------------------------
# The levers that are left for a run, by expected effect per cost: what is known of each, how well,
# and from where.


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
    #: of a step over the run's own, timed in a study of such steps; None: nobody timed them
    time: float | None
    flops: float  # the same by formula, for this run
    settled: str  # the verdict of a study at this very place; empty: there is none
    pairs: int = 0  # most that a study at this very place had
    #: the smallest effect of interest on the metric; None: nobody said one
    margin: float | None = None

    @property
    def dearer(self) -> float:
        """Share by which a step takes longer: as timed, else as its FLOPs say; small ones count as
        what timing can tell."""
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
        """What is expected. No difference: a study here called it a tie, or no effect that matters
        lies in its interval. Unclear: less than matters is expected, no study here decided it, and
        its interval allows more, either way."""
        margin = self.margin or 0.0
        if self.settled == "tie" or max(-self.low, self.high) <= margin:
            return "no difference"
        if not self.settled and abs(self.expected) < margin:
            return "unclear"
        return "help" if self.expected > 0.0 else "hurt"

    @property
    def order(self) -> tuple[int, float, float]:
        """What is expected to help comes first, by gain per time; then what is unclear, by what
        finding out promises; then what makes no difference, the fastest first; then the rest, the
        least harm first. Equals stay as the catalogue has them."""
        keys = {
            "help": -self.per_tenth,
            "unclear": -self.promise,
            "no difference": self.step,
            "hurt": -self.expected,
        }
        return (
            OUTCOMES.index(self.outcome),
            round(keys[self.outcome], DIGITS),
            round(self.low - self.high, DIGITS),
        )

    @property
    def promise(self) -> float:
        """What finding out is expected to bring, for the time that its trainings take: the gain
        where it turns out to be one, times the chance of that. Wide intervals promise more than
        narrow ones around the same number."""
        deviation = max((self.high - self.low) / (2.0 * NORMAL_95), 1e-12)
        z = self.expected / deviation
        return round(
            float(self.expected * norm.cdf(z) + deviation * norm.pdf(z)) / self.step, DIGITS
        )

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
                    "differs": (
                        differences(one.scope, here) + [f"as {one.arm}"] * (one.arm != self.arm)
                    ),
                }
                for one in self.evidence
            ],
            "published": [
                {
                    "metric": one.metric,
                    "change": one.change,
                    "scope": one.scope,
                    "source": one.source,
                }
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
    text: str,
    catalogue: Catalogue,
    out: Path,
    settings: Iterable[str] = (),
    measured: Path | None = None,
) -> Advice:
    """Order the levers that a phrase does not have yet."""
    settings = tuple(settings)
    phrase = parse(text, catalogue, settings)
    usual = Plan.model_fields["primary"].default
    metric = usual if can_measure(phrase.run, usual) else PRIMARY_ANYWHERE
    margin = Plan.model_fields["smallest_effect"].default if metric == usual else None
    here, effects = scope_of_phrase(phrase, settings), known_effects(catalogue, out, measured)
    votes = {
        name: sign_votes(kind, metric, phrase.run.tokens, effects, catalogue)
        for name, kind in catalogue.levers.items()
    }
    facts = {
        name: LeverFacts(votes[name].sign, family(kind)) for name, kind in catalogue.levers.items()
    }
    by_lever = grouped(effects, metric)
    spread = estimate_spread(by_lever, facts, here)
    levers, refused = list[AdvisedLever](), list[tuple[str, str]]()
    others = family_of(by_lever, facts, here, spread.omega)
    for arm, lever in _candidates(catalogue, phrase, by_lever):
        why = _refusal(phrase, lever)
        if why:
            refused.append((arm, why))
            continue
        own = tuple(
            sorted(
                by_lever.get(lever.name, ()), key=lambda one: (distance(one, arm, here), -one.pairs)
            )
        )
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
                next(
                    (
                        one.time
                        for one in own
                        if one.time and one.arm == arm and same_step(one.scope, here)
                    ),
                    None,
                ),
                ask(lever, "cost", phrase.run).flops,
                next((one.verdict for one in at_home if one.verdict in DECIDED), ""),
                max((one.pairs for one in at_home), default=0),
                margin,
            )
        )
    return Advice(
        phrase,
        settings,
        metric,
        here,
        sorted(levers, key=lambda one: one.order),
        refused,
        spread,
        effects,
    )


def grouped(effects: Iterable[MeasuredEffect], metric: str) -> dict[str, list[MeasuredEffect]]:
    """Lever -> what was measured of it on this metric."""
    by_lever: dict[str, list[MeasuredEffect]] = {}
    for one in effects:
        if one.metric == metric:
            by_lever.setdefault(one.lever, []).append(one)
    return by_lever


def family(lever: type[Any]) -> str:
    """Levers that change the same part of a run: precision, captions and data, codec, objective,
    routing, optimizer."""
    first: str = lever.touches[0]
    return (
        first.split(".")[0]
        if first.split(".")[0] not in ("data", "model", "encode")
        else ".".join(first.split(".")[:2])
    )


def _candidates(
    catalogue: Catalogue, phrase: Phrase, by_lever: Mapping[str, Sequence[MeasuredEffect]]
) -> Iterable[tuple[str, Any]]:
    """Every lever that is not on yet with its default settings, and with those that it was measured
    with."""
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


def _known(
    own: Sequence[MeasuredEffect], at_home: Sequence[MeasuredEffect], votes: SignVotes
) -> Known:
    if at_home:
        return "measured here"
    if own or votes.verdicts:
        return "measured elsewhere"
    return "claimed only" if votes.claims else "nobody knows"


# --------------------------------------------------------------------------------------------------
# Advice in words, for a terminal.


MOST_EVIDENCE = 2  # measurements of a lever that are told; --json has them all
MOST_LEVERS = 6  # of a group that are told, each with its best settings; --all tells the others
NOTHING = "–"
TITLES: dict[Outcome, str] = {
    "help": (
        "expected to help, most gain for the time first; an interval that holds zero leaves the"
        " sign open"
    ),
    "unclear": (
        "too small to call: less than matters is expected, more is possible; the most promising to"
        " try first"
    ),
    "no difference": "make no difference that matters: the fastest first",
    "hurt": "expected to hurt: least harm first",
}


def text(advice: Advice, *, whole: bool = False) -> str:
    """`whole`: every lever, with the reasons of those that cannot be added."""
    return "\n".join(_lines(advice, whole))


def _lines(advice: Advice, whole: bool) -> Iterator[str]:
    yield from _head(advice)
    unknown = [one for one in advice.levers if one.known == "nobody knows"]
    known = [one for one in advice.levers if one.known != "nobody knows"]
    before = 0
    for outcome, title in TITLES.items():
        levers = [one for one in known if one.outcome == outcome]
        yield from _table(title, levers, advice, before, whole)
        before += len(levers)
    if unknown:
        usual = max((one.high - one.low) / 2.0 for one in unknown)
        yield ""
        yield (
            f"nobody knows (no measurement, no published number; a lever is worth ±{usual:.2g}"
            " here, either way)"
        )
        yield from (
            map(_unknown, unknown) if whole else [f"     {', '.join(one.arm for one in unknown)}"]
        )
    if advice.refused and whole:
        yield ""
        yield "cannot be added to this run, or nothing could come of it there"
        for arm, why in advice.refused:
            yield f"     {arm}: {why}"
    yield from legend(advice)
    yield from _next(advice, whole)


def _head(advice: Advice) -> Iterator[str]:
    metric, spread = METRICS[advice.metric], advice.spread
    origins = sorted({one.origin for one in advice.measured})
    yield f"{advice.here}: what to change next"
    yield f"  judged by {metric.name}; gains are signed so that more is better, with 95 % intervals"
    yield (
        f"  from {len(advice.measured)} measured effects of {spread.levers} levers"
        + (f" ({', '.join(origins)})" if origins else "")
        + f" and {sum(len(one.votes.claims) for one in advice.levers)} published claims, of which"
        " the sign alone counts"
    )
    if advice.measured and not any(one.known == "measured here" for one in advice.levers):
        places = ", ".join(sorted({one.scope.recipe for one in advice.measured}))
        yield (
            f"  nobody measured a lever on this very run: all is carried over from {places}, with"
            " wide intervals;"
        )
        yield (
            "  such advice has often been wrong (docs/advice.md tells how often): a study of your"
            " own decides"
        )
    if not spread.levers:
        yield (
            "  nobody measured anything on this metric: the order is that of published signs, sizes"
            " are assumed"
        )


def _unknown(lever: AdvisedLever) -> str:
    family = f", {lever.expected:+.3f} by its family" if abs(lever.expected) >= 5e-4 else ""
    return f"     {lever.arm} (step {_step(lever)}{family})"


def _next(advice: Advice, whole: bool) -> Iterator[str]:
    """What to type now."""
    settings = "".join(f" --set {shlex.quote(setting)}" for setting in advice.settings)
    asked = shlex.quote(str(advice.phrase))
    first = next(
        (one for one in advice.levers if one.outcome == "help" and one.known != "nobody knows"),
        None,
    )
    yield ""
    if first is not None:
        tried = shlex.quote(f"{advice.phrase} + {first.arm}")
        yield f"try the first of them:          fulcrum train {tried}{settings}"
    yield f"settle what is open, by seeds:  fulcrum advise {asked}{settings} --plan next.toml"
    if not whole:
        yield f"all levers, and which cannot be added:  fulcrum advise {asked}{settings} --all"


def legend(advice: Advice) -> Iterator[str]:
    """How to read the columns; of words that may be missing, only those that are there."""
    shown = [effect for one in advice.levers for effect in one.evidence[:MOST_EVIDENCE]]
    older = sorted(
        {effect.scope.science for effect in shown if effect.scope.science != advice.here.science}
    )
    margin = next((one.margin for one in advice.levers if one.margin is not None), None)
    matters = f", where {margin:g} is the smallest change of interest" if margin is not None else ""
    timed = any(one.time for one in advice.levers)
    yield ""
    yield "how to read it"
    yield (
        f"     expected gain  on {advice.metric}{matters}; where the interval holds zero, even the"
        " sign is open"
    )
    yield (
        "     step           time over a step of this run, as timed; FLOPs: nobody timed it here,"
        " counted by formula"
        if timed
        else (
            "     step           FLOPs over those of this run's step, by formula: nobody timed this"
            " run's levers"
        )
    )
    yield (
        "     per 10 % time  gain for each tenth that a step takes longer; free: by less than"
        f" {SAME_TIME:.0%}"
    )
    if any(one.votes.claims for one in advice.levers):
        yield (
            "     published      change of the paper's own metrics, at its scale; of fid and the"
            " *mmd less is better"
        )
    if older:
        versions = ", ".join(map(str, older))
        yield (
            f"     science {versions:<7}the version of the training code that measured it; what is"
            " older counts for less"
        )


def _table(
    title: str, levers: Sequence[AdvisedLever], advice: Advice, before: int, whole: bool
) -> Iterator[str]:
    """A group of levers, numbered on from `before`; unless it is to be whole, the first of them,
    each lever once."""
    if not levers:
        return
    once = {one.lever: one for one in reversed(levers)}
    shown = levers if whole else [one for one in levers if once[one.lever] is one][:MOST_LEVERS]
    width = max(12, *(len(one.arm) for one in levers))
    yield ""
    yield title
    yield (
        f"     {'lever':<{width}}  {'expected gain [95 %]':<25}  {'step':<12} "
        f" {'per 10 % time':<13}  known"
    )
    for one in shown:
        number = before + 1 + levers.index(one)
        gain = f"{one.expected:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"
        yield (
            f"{number:>3}. {one.arm:<{width}}  {gain:<25}  {_step(one):<12}  {_per_tenth(one):<13} "
            f" {one.known}"
        )
        for fact in _facts(one, advice):
            yield f"     {'':<{width}}  {fact}"
    if left := [one.arm for one in levers if one not in shown]:
        yield f"     and {len(left)} more: {', '.join(left)}"


def _step(lever: AdvisedLever) -> str:
    """What a step costs over the run's own; FLOPs are a guess at time."""
    return f"x {lever.time:.2f}" if lever.time else f"x {lever.flops:.2f} FLOPs"


def _per_tenth(lever: AdvisedLever) -> str:
    dearer = lever.step - 1.0
    if lever.outcome == "help":
        faster = f"free, {-dearer:.0%} faster" if dearer < -SAME_TIME else "free"
        return f"{lever.per_tenth:+.3f}" if dearer > SAME_TIME else faster
    return f"saves {-dearer:.0%}" if dearer < -SAME_TIME else NOTHING


def _facts(lever: AdvisedLever, advice: Advice) -> Iterator[str]:
    """Where what is known of a lever comes from."""
    for one in lever.evidence[:MOST_EVIDENCE]:
        apart = differences(one.scope, advice.here) + [f"as {one.arm}"] * (one.arm != lever.arm)
        where = f"another place: {', '.join(apart)}" if apart else "this very run"
        elsewhere = one.time if one.time and not lever.time else None
        timed = f", step x {elsewhere:.2f} there" if elsewhere else ""
        yield (
            f"{one.gain:+.3f} over {one.pairs} pairs, {one.verdict} ({one.origin}; {where}{timed})"
        )
    if len(lever.evidence) > MOST_EVIDENCE:
        yield f"and {len(lever.evidence) - MOST_EVIDENCE} more: --json"
    if lever.votes.words:
        yield lever.votes.words


# --------------------------------------------------------------------------------------------------
# The plan that would settle the most promising levers of an advice: seeds by power, and what fits a
# budget of hours.


ARMS = 3
# more pairs than the first look are added only where a lever is undecided
FIRST_LOOK, STEP, MOST_PAIRS = 8, 4, 16
POWER = 0.8
HOUR = 3600.0


class NextPlan(NamedTuple):
    levers: list[AdvisedLever]
    pairs: int
    hours: float | None  # None: not asked
    remarks: list[str]  # how the pairs were chosen, what does not fit
    text: str  # TOML

    def words(self, to: Path | None) -> str:
        """What would be asked, and the command for it; None: it is written nowhere."""
        took = f", about {self.hours:.1f} hours here" if self.hours is not None else ""
        arms = ", ".join(one.arm for one in self.levers)
        following = (
            "written; what it takes (minutes, where its pictures are not encoded yet): fulcrum"
            f" study plan {to}"
            if to is not None
            else "write it: --plan next.toml"
        )
        lines = [
            f"the next study: {arms} with up to {self.pairs} paired seeds{took}",
            *self.remarks,
            following,
        ]
        return "\n  ".join(lines)

    def write(self, path: Path) -> None:
        """Where nothing stands yet."""
        require_free(path)
        write_new(path, self.text.encode())


def next_plan(
    advice: Advice,
    catalogue: Catalogue,
    out: Path,
    hours: float | None = None,
    user_files: Mapping[str, str] | None = None,
) -> NextPlan:
    """A study of the most promising levers of which no study at this very place has said all it
    can."""
    levers = chosen(advice, catalogue)
    if not levers:
        raise BadInput(
            "there is nothing to settle: every lever that can be added here was decided here",
            "see --json",
        )
    pairs, remarks = pairs_for(smallest_effect(advice), len(levers), scatter_of(advice))
    if hours is not None:
        levers, pairs, taken, more = _fitted(
            advice, levers, pairs, hours, catalogue, out, user_files or {}
        )
        text = plan_text(advice, levers, pairs)
        return NextPlan(levers, pairs, taken, [*remarks, *more], text)
    _ = plan_of(advice, levers, pairs)  # refuse here what `study plan` would
    return NextPlan(levers, pairs, None, remarks, plan_text(advice, levers, pairs))


def unsettled(advice: Advice) -> list[AdvisedLever]:
    """Each lever once, the most promising first, without those of which a study at this very place
    has said all it can: decided, or undecided after as many pairs as a plan asks for. Trainings
    that are there are never run again, and the same numbers judged in a smaller company are no new
    evidence."""
    once: dict[str, AdvisedLever] = {}
    for one in sorted(advice.levers, key=lambda one: -one.promise):
        if not one.settled and one.pairs < MOST_PAIRS:
            once.setdefault(one.lever, one)
    return list(once.values())


def chosen(advice: Advice, catalogue: Catalogue) -> list[AdvisedLever]:
    """The first of them, each of another part of a run where there are enough: levers of one part
    tell about each other."""
    left, levers, families = unsettled(advice), list[AdvisedLever](), set[str]()
    for one in left:
        part = family(catalogue.levers[one.lever])
        if part not in families:
            families.add(part)
            levers.append(one)
    levers += [one for one in left if one not in levers]
    return sorted(levers[:ARMS], key=lambda one: -one.promise)


def smallest_effect(advice: Advice) -> float | None:
    """Of interest, on the advice's metric, as a plan that names none has it; None: so many
    deviations of the baseline."""
    return plan_of(advice, advice.levers[:1], FIRST_LOOK).smallest_effect


def scatter_of(advice: Advice) -> float | None:
    """Deviation of paired differences: the median of what was measured here, or else on this
    recipe, or anywhere."""
    scatters = [(one.scope, one.error * one.pairs**0.5) for one in advice.measured]
    for near in (
        [scatter for scope, scatter in scatters if scope == advice.here],
        [scatter for scope, scatter in scatters if scope.recipe == advice.here.recipe],
        [scatter for _, scatter in scatters],
    ):
        if near:
            return float(median(near))
    return None


def pairs_for(effect: float | None, arms: int, scatter: float | None) -> tuple[int, list[str]]:
    """The fewest pairs that see the smallest effect of interest in four studies of five, and at
    most sixteen."""
    if not scatter or effect is None:
        return MOST_PAIRS, [
            "how far paired differences scatter here is not known before a study: pairs as they are"
            " usual"
        ]
    scattered = f"paired differences scatter by {scatter:.3f}"
    if (seen := chance_seen(effect / scatter, MOST_PAIRS, arms)) < POWER:
        return MOST_PAIRS, [
            f"with {MOST_PAIRS} pairs the chance to see a true {effect:g} is {seen:.0%}:"
            f" {scattered}"
        ]
    low, high = pairs_needed(Plan.model_fields["alpha"].default), MOST_PAIRS
    while low < high:  # power rises with the pairs
        middle = (low + high) // 2
        low, high = (
            (low, middle)
            if chance_seen(effect / scatter, middle, arms) >= POWER
            else (middle + 1, high)
        )
    pairs = low if low <= FIRST_LOOK else FIRST_LOOK + STEP * -(-(low - FIRST_LOOK) // STEP)
    return pairs, [f"{pairs} pairs see a true {effect:g} in four studies of five: {scattered}"]


def _fitted(
    advice: Advice,
    levers: list[AdvisedLever],
    pairs: int,
    hours: float,
    catalogue: Catalogue,
    out: Path,
    user_files: Mapping[str, str],
) -> tuple[list[AdvisedLever], int, float, list[str]]:
    """As many of the levers, and as many pairs of them, as fit: first fewer pairs, down to what can
    reach a verdict at all, then fewer levers. Hours are those of this machine with all its lanes,
    from a few steps of every arm."""
    fewest, wanted = pairs_needed(Plan.model_fields["alpha"].default), (len(levers), pairs)
    taken = 0.0
    while levers:
        plan = plan_of(advice, levers, pairs)
        layout = lay_out(plan, catalogue, user_files, out)
        plan = with_primary(plan, layout.arms[0].run)
        seconds = estimate(plan, layout, out).seconds or 0.0
        taken = seconds / room([arm.run for arm in layout.arms], plan.threads).lanes / HOUR
        fit = int(min(pairs * hours / taken, pairs)) if taken else pairs
        if fit >= min(pairs, fewest):
            fitted = (
                pairs
                if fit >= pairs
                else fit
                if fit <= FIRST_LOOK
                else FIRST_LOOK + (fit - FIRST_LOOK) // STEP * STEP
            )
            less = (
                []
                if (len(levers), fitted) == wanted
                else [_less(wanted, len(levers), fitted, hours)]
            )
            return levers, fitted, taken * fitted / pairs, less
        levers, taken = levers[:-1], taken * fewest / pairs
    raise BadInput(
        f"{fewest} pairs of one lever take about {taken:.1f} hours here, and fewer reach no"
        " verdict",
        f"--budget {taken * 1.1:.1f}, or a smaller recipe or budget of images: --set"
        " budget.images=N",
    )


def _less(wanted: tuple[int, int], levers: int, pairs: int, hours: float) -> str:
    return (
        f"in {hours:g} hours there is time for {levers} of {wanted[0]} levers with {pairs} of"
        f" {wanted[1]} pairs: smaller effects than planned for may stay undecided"
    )


def plan_of(advice: Advice, levers: Sequence[AdvisedLever], pairs: int) -> Plan:
    return from_person(tomllib.loads(plan_text(advice, levers, pairs)), "the plan")


def plan_text(advice: Advice, levers: Sequence[AdvisedLever], pairs: int) -> str:
    """TOML; every word that a person or a file gave is quoted as JSON quotes it, which TOML reads
    alike."""
    reasons = [
        f"#   {one.arm}: {one.known}, expected {one.expected:+.3f} [{one.low:+.3f},"
        f" {one.high:+.3f}]"
        for one in levers
    ]
    lines = [
        (
            f"# What `fulcrum advise` would settle next: docs/advice.md. Judged by {advice.metric};"
            " more is better below."
        ),
        *reasons,
        "#",
        "#     fulcrum study plan THIS.toml     (hours, and what it can see)",
        "#     fulcrum study run THIS.toml",
        f"title = {_quoted(f'What to change next on {advice.phrase}')}",
        f"baseline = {_quoted(str(advice.phrase))}",
        f"arms = [{', '.join(_quoted(one.arm) for one in levers)}]",
        f"seeds = {_seeds(pairs)}",
        f"primary = {_quoted(advice.metric)}",
    ]
    if advice.settings:
        lines.append(f"settings = [{', '.join(map(_quoted, advice.settings))}]")
    return "\n".join(lines) + "\n"


def _seeds(pairs: int) -> str:
    if pairs <= FIRST_LOOK:
        return f"[{', '.join(map(str, range(pairs)))}]"
    return (
        f"{{ first = {FIRST_LOOK}, step = {STEP}, most = {pairs} }}  # more than {FIRST_LOOK} only"
        " where undecided"
    )


def _quoted(text: str) -> str:
    return json.dumps(text)
