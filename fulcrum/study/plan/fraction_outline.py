"""A fractional plan in words, for a terminal: its combinations, what cannot be told apart, what it can see."""

from collections.abc import Iterator

from fulcrum.judge.statistics import pairs_needed
from fulcrum.study.plan.design import fraction_of
from fulcrum.study.plan.estimate import Estimate
from fulcrum.study.plan.fraction import alias_strings, alias_words, named
from fulcrum.study.plan.fraction_power import one_at_a_time
from fulcrum.study.plan.plan import Plan


def combination_lines(plan: Plan) -> Iterator[str]:
    """Levers down, combinations across, the baseline first."""
    table = fraction_of(plan)
    width = max(map(len, table.levers))
    yield f"  {len(table.on)} of {2 ** len(table.levers)} combinations, x where a lever is on; the first is the baseline"
    for lever, column in zip(table.levers, table.on.T, strict=True):
        yield f"      {lever:<{width}}  " + " ".join("x" if on else "." for on in column)
    yield from (f"  {sentence}" for sentence in alias_words(table))
    others = alias_strings(table)[len(table.chosen) :]
    if others:
        yield "  of the other pairs, those in a line cannot be told apart"
        yield from ("      " + " = ".join(map(named, string)) for string in others)


def sight_lines(plan: Plan, estimate: Estimate) -> Iterator[str]:
    """What the fraction can see, beside one lever at a time."""
    combinations, levers = fraction_of(plan).on.shape
    seeds, cells = len(plan.seeds), combinations * len(plan.seeds)
    with_these = f"{combinations} combinations under {seeds} seeds and {levers} levers judged together at {plan.alpha:g}"
    if estimate.scatters is None:
        yield f"  with {with_these}, no effect gets a verdict in four studies of five: name more seeds"
        return
    if estimate.detectable is None:
        yield f"  {estimate.noise}"
        size = f"{estimate.scatters:.2g} times the scatter of cells about their seed"
    else:
        size = f"{estimate.detectable:.2g} on {plan.primary}"
    yield f"  with {with_these}, a lever's true effect of {size} gets its verdict in four studies of five;"
    if plan.interactions:
        yield "  what a chosen pair does beyond the sum of its levers must be about twice as large"
    if estimate.detectable is not None:
        yield f"  {estimate.noise}, which makes it smaller"
    alone, visible = one_at_a_time(plan)
    sees = f"see only effects {visible / estimate.scatters:.1f} times as large" if visible else "decide nothing"
    yield f"  one lever at a time, as many cells ({cells}) are {alone} seeds of each, and {sees}"
    if seeds < pairs_needed(plan.alpha):
        yield (
            f"  note: {seeds} seeds decide by normal theory, on the scatter of all levers together; "
            f"{pairs_needed(plan.alpha)} need no such assumption"
        )
