"""An audit in words, for a terminal."""

from collections import Counter
from collections.abc import Iterator

from fulcrum.advise.audit_target import Audit
from fulcrum.advise.fault import SEVERITIES, Fault
from fulcrum.advise.published_faults import explained

MOST_PLACES = 4  # of one rule that are told whole; the others are counted
LEGEND = "A1, A10 and the like number the faults that were found in the published PRX code"
EFFORTS = {"line": "a line", "edit": "some lines or settings", "rework": "new data or a new training"}


def text(audit: Audit) -> str:
    return "\n".join(_lines(audit))


def headline(audit: Audit) -> str:
    """How many faults of each severity."""
    counts = Counter[str](fault.severity for fault in audit.faults)
    words = [f"{counts[name]} {name}{'s' if counts[name] > 1 else ''}" for name in reversed(SEVERITIES) if counts[name]]
    kinds = len(grouped(audit.faults))
    several = f" in {len(audit.faults)} places; {kinds} kind{'s' if kinds > 1 else ''}" if kinds < len(audit.faults) else ""
    return (", ".join(words) or "nothing found") + several


def grouped(faults: list[Fault]) -> list[list[Fault]]:
    """Faults of one rule together, in the order of the stack."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.rule, fault.severity), []).append(fault)
    return list(groups.values())


def legend(audit: Audit) -> list[str]:
    """What the numbers mean that sizes and their sources cite."""
    return explained(text for fault in audit.faults for text in (fault.size, *fault.evidence))


def _lines(audit: Audit) -> Iterator[str]:
    yield f"{audit.target} ({audit.kind}: {audit.looked_at})"
    yield f"  {headline(audit)}" + (f", {len(audit.ignored)} ignored with a reason" if audit.ignored else "")
    if audit.faults:
        yield ""
        yield "most expected gain for the least effort first"
    for number, group in enumerate(grouped(audit.faults), 1):
        first = group[0]
        yield ""
        yield f"{number}. {first.severity}: {first.rule} ({first.family})"
        for fault in group[:MOST_PLACES]:
            yield f"   {fault.place}: {fault.seen}"
        if len(group) > MOST_PLACES:
            yield f"   and {len(group) - MOST_PLACES} more places: --json has them all"
        yield f"   why   {first.why}"
        yield f"   size  {first.size}" + (f" ({first.evidence[0]})" if first.evidence else "")
        for more in first.evidence[1:]:
            yield f"         {more}"
        fixes = list(dict.fromkeys(fault.fix for fault in group))
        yield f"   fix   {fixes[0]}"
        for fix in fixes[1:MOST_PLACES]:
            yield f"         {fix}"
        if len(fixes) > MOST_PLACES:
            yield f"         and {len(fixes) - MOST_PLACES} more: --json has them all"
        yield f"   effort {EFFORTS[first.effort]}"
    if numbers := legend(audit):
        yield ""
        yield f"{LEGEND} (docs/published.md)"
        yield from (f"   {line}" for line in numbers)
    for rule, place, reason in audit.ignored:
        yield f"ignored: {rule} at {place}: {reason}"
