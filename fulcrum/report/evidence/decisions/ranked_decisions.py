"""The decisions of all studies on one recipe: those to be ranked, and those that were held against something else."""

from collections.abc import Sequence

from fulcrum.report.evidence.decisions.decision import Decision, all_decisions, best_first
from fulcrum.report.evidence.decisions.known_studies import Studies, in_table, ordered


def pooled(studies: Studies) -> list[Decision]:
    """The decisions of all studies that change one at a time on one recipe, best first, on one metric. Trainings that two
    studies share are counted once."""
    alike, seen = list[Decision](), list[frozenset[str]]()
    metric = next((result.primary.name for name, result in ordered(studies).items() if in_table(name, result)), "")
    for name, result in ordered(studies).items():
        if in_table(name, result) and result.primary.name == metric:
            new = [one for one in all_decisions(name, result) if not one.is_among(seen)]
            seen += [one.keys for one in new]
            alike += new
    return best_first(alike)


def table(studies: Studies) -> list[Decision]:
    """The ranking: decisions that were held against the recipe as it is, each in one row. Of one that was tried at the
    recipe's learning rate and at rates that were searched, the first, as all others are."""
    return ranked(pooled(studies))


def ranked(decisions: Sequence[Decision]) -> list[Decision]:
    """Those of them that may be ranked."""
    rows = [one for one in decisions if not one.held_against]
    shared = {one.arm.root for one in rows if not one.result.sweeps}
    return [one for one in rows if not one.result.sweeps or one.arm.root not in shared]


def beside(studies: Studies) -> list[Decision]:
    """Decisions on the same recipe that were held against something else than it: beside the ranking, not in it."""
    return [one for one in pooled(studies) if one.held_against]


def searched(studies: Studies) -> list[Decision]:
    """Decisions of the ranking as they came out at learning rates that were searched for both sides."""
    roots = {one.arm.root for one in table(studies) if not one.result.sweeps}
    own = [(name, result) for name, result in ordered(studies).items() if in_table(name, result) and result.sweeps]
    return [one for name, result in own for one in all_decisions(name, result) if one.arm.root in roots]
