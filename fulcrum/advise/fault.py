"""A fault: what a rule saw where, why it matters, what it may cost, what to do; and in which order faults are told."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

from fulcrum.spec.errors import BadInput, nearest

Severity = Literal["note", "warning", "error"]
Effort = Literal["line", "edit", "rework"]
SEVERITIES: tuple[str, ...] = get_args(Severity)  # from the mildest
NEVER = "never"
EFFORT = {"line": 1.0, "edit": 3.0, "rework": 10.0}  # one line; some lines or settings; new data, or training again


class Fault(NamedTuple):
    """One place where one rule saw something."""

    rule: str
    family: str
    severity: Severity
    place: str  # file:line, a tensor, a slot of a run, an arm
    seen: str
    why: str
    size: str  # what it may cost, in words
    evidence: tuple[str, ...]  # where that size comes from: published, and from studies of one's own
    fix: str
    gain: float  # expected gain of mending it, 0 to 1: docs/decisions/0042-audit.md
    effort: Effort

    @property
    def priority(self) -> float:
        """Expected gain per effort."""
        return self.gain / EFFORT[self.effort]

    def plain(self) -> dict[str, Any]:
        return {**self._asdict(), "evidence": list(self.evidence), "priority": round(self.priority, 4)}


def stacked(faults: Iterable[Fault]) -> list[Fault]:
    """The priority stack: most gain per effort first; of equals the graver, then by place."""
    return sorted(faults, key=lambda one: (-one.priority, -SEVERITIES.index(one.severity), one.rule, one.place))


def at_least(faults: Iterable[Fault], severity: str) -> list[Fault]:
    """Those of this severity and above; of `never`, none."""
    if severity == NEVER:
        return []
    if severity not in SEVERITIES:
        raise BadInput(f"no severity is called '{severity}'", nearest(severity, (*SEVERITIES, NEVER)))
    return [one for one in faults if SEVERITIES.index(one.severity) >= SEVERITIES.index(severity)]
