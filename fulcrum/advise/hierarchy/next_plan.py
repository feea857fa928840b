"""The plan that would settle the most promising levers of an advice: seeds by power, and what fits a budget of hours."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from fulcrum.advise.hierarchy.advice import Advice, AdvisedLever, family
from fulcrum.advise.hierarchy.plan_place import require_free
from fulcrum.files.atomic import write_new
from fulcrum.judge.statistics import pairs_needed
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue
from fulcrum.studies.cell import lay_out
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import from_person
from fulcrum.studies.power import chance_seen, estimate
from fulcrum.studies.proof import with_primary
from fulcrum.studies.runner import room

ARMS = 3
FIRST_LOOK, STEP, MOST_PAIRS = 8, 4, 16  # more pairs than the first look are added only where a lever is undecided
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
            f"written; what it takes (minutes, where its pictures are not encoded yet): fulcrum study plan {to}"
            if to is not None
            else "write it: --plan next.toml"
        )
        lines = [f"the next study: {arms} with up to {self.pairs} paired seeds{took}", *self.remarks, following]
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
    """A study of the most promising levers of which no study at this very place has said all it can."""
    levers = chosen(advice, catalogue)
    if not levers:
        raise BadInput("there is nothing to settle: every lever that can be added here was decided here", "see --json")
    pairs, remarks = pairs_for(smallest_effect(advice), len(levers), scatter_of(advice))
    if hours is not None:
        levers, pairs, taken, more = _fitted(advice, levers, pairs, hours, catalogue, out, user_files or {})
        text = plan_text(advice, levers, pairs)
        return NextPlan(levers, pairs, taken, [*remarks, *more], text)
    _ = plan_of(advice, levers, pairs)  # refuse here what `study plan` would
    return NextPlan(levers, pairs, None, remarks, plan_text(advice, levers, pairs))


def unsettled(advice: Advice) -> list[AdvisedLever]:
    """Each lever once, the most promising first, without those of which a study at this very place has said all it can:
    decided, or undecided after as many pairs as a plan asks for. Trainings that are there are never run again, and the
    same numbers judged in a smaller company are no new evidence."""
    once: dict[str, AdvisedLever] = {}
    for one in sorted(advice.levers, key=lambda one: -one.promise):
        if not one.settled and one.pairs < MOST_PAIRS:
            once.setdefault(one.lever, one)
    return list(once.values())


def chosen(advice: Advice, catalogue: Catalogue) -> list[AdvisedLever]:
    """The first of them, each of another part of a run where there are enough: levers of one part tell about each other."""
    left, levers, families = unsettled(advice), list[AdvisedLever](), set[str]()
    for one in left:
        part = family(catalogue.levers[one.lever])
        if part not in families:
            families.add(part)
            levers.append(one)
    levers += [one for one in left if one not in levers]
    return sorted(levers[:ARMS], key=lambda one: -one.promise)


def smallest_effect(advice: Advice) -> float | None:
    """Of interest, on the advice's metric, as a plan that names none has it; None: so many deviations of the baseline."""
    return plan_of(advice, advice.levers[:1], FIRST_LOOK).smallest_effect


def scatter_of(advice: Advice) -> float | None:
    """Deviation of paired differences: the median of what was measured here, or else on this recipe, or anywhere."""
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
    """The fewest pairs that see the smallest effect of interest in four studies of five, and at most sixteen."""
    if not scatter or effect is None:
        return MOST_PAIRS, ["how far paired differences scatter here is not known before a study: pairs as they are usual"]
    scattered = f"paired differences scatter by {scatter:.3f}"
    if (seen := chance_seen(effect / scatter, MOST_PAIRS, arms)) < POWER:
        return MOST_PAIRS, [f"with {MOST_PAIRS} pairs the chance to see a true {effect:g} is {seen:.0%}: {scattered}"]
    low, high = pairs_needed(Plan.model_fields["alpha"].default), MOST_PAIRS
    while low < high:  # power rises with the pairs
        middle = (low + high) // 2
        low, high = (low, middle) if chance_seen(effect / scatter, middle, arms) >= POWER else (middle + 1, high)
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
    """As many of the levers, and as many pairs of them, as fit: first fewer pairs, down to what can reach a verdict at
    all, then fewer levers. Hours are those of this machine with all its lanes, from a few steps of every arm."""
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
            fitted = pairs if fit >= pairs else fit if fit <= FIRST_LOOK else FIRST_LOOK + (fit - FIRST_LOOK) // STEP * STEP
            less = [] if (len(levers), fitted) == wanted else [_less(wanted, len(levers), fitted, hours)]
            return levers, fitted, taken * fitted / pairs, less
        levers, taken = levers[:-1], taken * fewest / pairs
    raise BadInput(
        f"{fewest} pairs of one lever take about {taken:.1f} hours here, and fewer reach no verdict",
        f"--budget {taken * 1.1:.1f}, or a smaller recipe or budget of images: --set budget.images=N",
    )


def _less(wanted: tuple[int, int], levers: int, pairs: int, hours: float) -> str:
    return (
        f"in {hours:g} hours there is time for {levers} of {wanted[0]} levers with {pairs} of {wanted[1]} pairs: smaller "
        "effects than planned for may stay undecided"
    )


def plan_of(advice: Advice, levers: Sequence[AdvisedLever], pairs: int) -> Plan:
    return from_person(tomllib.loads(plan_text(advice, levers, pairs)), "the plan")


def plan_text(advice: Advice, levers: Sequence[AdvisedLever], pairs: int) -> str:
    """TOML; every word that a person or a file gave is quoted as JSON quotes it, which TOML reads alike."""
    reasons = [
        f"#   {one.arm}: {one.known}, expected {one.expected:+.3f} [{one.low:+.3f}, {one.high:+.3f}]" for one in levers
    ]
    lines = [
        f"# What `fulcrum advise` would settle next: docs/advice.md. Judged by {advice.metric}; more is better below.",
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
    return f"{{ first = {FIRST_LOOK}, step = {STEP}, most = {pairs} }}  # more than {FIRST_LOOK} only where undecided"


def _quoted(text: str) -> str:
    return json.dumps(text)
