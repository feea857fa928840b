"""Holds every rule against a subject and makes faults of what they see."""

from collections.abc import Callable

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.fault import Fault
from fulcrum.advise.own_evidence import OwnEvidence
from fulcrum.advise.rules.rule_list import RULES

NO_RULE = "unreadable"  # what could not be looked at counts as a fault: nothing is passed over silently


class Judge:
    """Makes faults of what rules see."""

    def __init__(self, evidence: OwnEvidence) -> None:
        self.evidence = evidence

    def faults(self, look: Callable[[AuditRule], Sightings], place: Callable[[Sighting], str]) -> list[Fault]:
        """What every rule saw; one that fails on what it never met is named, and the others look on."""
        faults = list[Fault]()
        for rule in RULES:
            try:
                faults += [self.fault(rule, one, place(one)) for one in look(rule)]
            except Exception as error:
                why = (
                    f"the rule {rule.id} failed: {type(error).__name__}: {error}; this should not happen: please report it"
                )
                faults.append(unreadable(place(Sighting("1", "")), why))
        return faults

    def fault(self, rule: AuditRule, one: Sighting, place: str) -> Fault:
        published = (rule.source,) if rule.source else ()
        return Fault(
            rule.id,
            rule.family,
            one.severity or rule.severity,
            place,
            one.seen,
            rule.why,
            rule.size,
            (*published, *self.evidence.of(rule.lever)),
            one.fix or rule.fix,
            rule.gain,
            rule.effort,
        )


def unreadable(place: str, why: str) -> Fault:
    return Fault(
        NO_RULE,
        "design",
        "error",
        place,
        why,
        "what cannot be read cannot be audited",
        "not known",
        (),
        "mend it, or name the other files",
        0.5,
        "line",
    )
