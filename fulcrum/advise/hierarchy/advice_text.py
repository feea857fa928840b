"""Advice in words, for a terminal."""

import shlex
from collections.abc import Iterator, Sequence

from fulcrum.advice.decisions import SAME_TIME
from fulcrum.advise.hierarchy.advice import Advice, AdvisedLever, Outcome
from fulcrum.advise.hierarchy.evidence_scope import differences
from fulcrum.judge.card import METRICS

MOST_EVIDENCE = 2  # measurements of a lever that are told; --json has them all
MOST_LEVERS = 6  # of a group that are told, each with its best settings; --all tells the others
NOTHING = "–"
TITLES: dict[Outcome, str] = {
    "help": "expected to help, most gain for the time first; an interval that holds zero leaves the sign open",
    "unclear": "too small to call: less than matters is expected, more is possible; the most promising to try first",
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
        yield f"nobody knows (no measurement, no published number; a lever is worth ±{usual:.2g} here, either way)"
        yield from map(_unknown, unknown) if whole else [f"     {', '.join(one.arm for one in unknown)}"]
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
        + f" and {sum(len(one.votes.claims) for one in advice.levers)} published claims, of which the sign alone counts"
    )
    if advice.measured and not any(one.known == "measured here" for one in advice.levers):
        places = ", ".join(sorted({one.scope.recipe for one in advice.measured}))
        yield f"  nobody measured a lever on this very run: all is carried over from {places}, with wide intervals;"
        yield "  such advice has often been wrong (docs/advice.md tells how often): a study of your own decides"
    if not spread.levers:
        yield "  nobody measured anything on this metric: the order is that of published signs, sizes are assumed"


def _unknown(lever: AdvisedLever) -> str:
    family = f", {lever.expected:+.3f} by its family" if abs(lever.expected) >= 5e-4 else ""
    return f"     {lever.arm} (step {_step(lever)}{family})"


def _next(advice: Advice, whole: bool) -> Iterator[str]:
    """What to type now."""
    settings = "".join(f" --set {shlex.quote(setting)}" for setting in advice.settings)
    asked = shlex.quote(str(advice.phrase))
    first = next((one for one in advice.levers if one.outcome == "help" and one.known != "nobody knows"), None)
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
    older = sorted({effect.scope.science for effect in shown if effect.scope.science != advice.here.science})
    margin = next((one.margin for one in advice.levers if one.margin is not None), None)
    matters = f", where {margin:g} is the smallest change of interest" if margin is not None else ""
    timed = any(one.time for one in advice.levers)
    yield ""
    yield "how to read it"
    yield f"     expected gain  on {advice.metric}{matters}; where the interval holds zero, even the sign is open"
    yield (
        "     step           time over a step of this run, as timed; FLOPs: nobody timed it here, counted by formula"
        if timed
        else "     step           FLOPs over those of this run's step, by formula: nobody timed this run's levers"
    )
    yield f"     per 10 % time  gain for each tenth that a step takes longer; free: by less than {SAME_TIME:.0%}"
    if any(one.votes.claims for one in advice.levers):
        yield "     published      change of the paper's own metrics, at its scale; of fid and the *mmd less is better"
    if older:
        versions = ", ".join(map(str, older))
        yield f"     science {versions:<7}the version of the training code that measured it; what is older counts for less"


def _table(title: str, levers: Sequence[AdvisedLever], advice: Advice, before: int, whole: bool) -> Iterator[str]:
    """A group of levers, numbered on from `before`; unless it is to be whole, the first of them, each lever once."""
    if not levers:
        return
    once = {one.lever: one for one in reversed(levers)}
    shown = levers if whole else [one for one in levers if once[one.lever] is one][:MOST_LEVERS]
    width = max(12, *(len(one.arm) for one in levers))
    yield ""
    yield title
    yield f"     {'lever':<{width}}  {'expected gain [95 %]':<25}  {'step':<12}  {'per 10 % time':<13}  known"
    for one in shown:
        number = before + 1 + levers.index(one)
        gain = f"{one.expected:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"
        yield f"{number:>3}. {one.arm:<{width}}  {gain:<25}  {_step(one):<12}  {_per_tenth(one):<13}  {one.known}"
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
        yield f"{one.gain:+.3f} over {one.pairs} pairs, {one.verdict} ({one.origin}; {where}{timed})"
    if len(lever.evidence) > MOST_EVIDENCE:
        yield f"and {len(lever.evidence) - MOST_EVIDENCE} more: --json"
    if lever.votes.words:
        yield lever.votes.words
