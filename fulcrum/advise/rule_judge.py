"""Holds every rule against a subject and makes faults of what they see."""

from collections.abc import Callable, Iterable

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.fault import SEVERITIES, Fault
from fulcrum.advise.own_evidence import OwnEvidence
from fulcrum.advise.rules.rule_list import BY_ID, RULES
from fulcrum.spec.errors import BadInput, nearest

UNSURE = 0.1  # most gain of a sighting that is milder than its rule: whether it matters here is a guess
NO_RULE = "unreadable"  # what could not be looked at counts as a fault: nothing is passed over silently


def chosen_rules(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[AuditRule, ...]:
    """All rules; where some are named, only these; never those to skip."""
    only, skip = set(only), set(skip)
    for name in (*only, *skip):
        if name not in BY_ID:
            raise BadInput(f"no rule is called '{name}'", nearest(name, BY_ID))
    return tuple(rule for rule in RULES if (not only or rule.id in only) and rule.id not in skip)


class Judge:
    """Makes faults of what rules see."""

    def __init__(self, evidence: OwnEvidence, rules: tuple[AuditRule, ...] = RULES) -> None:
        self.evidence, self.rules = evidence, rules

    def faults(self, look: Callable[[AuditRule], Sightings], place: Callable[[Sighting], str]) -> list[Fault]:
        """What every rule saw; one that fails on what it never met is named, and the others look on."""
        faults = list[Fault]()
        for rule in self.rules:
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
        milder = one.severity is not None and SEVERITIES.index(one.severity) < SEVERITIES.index(rule.severity)
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
            min(rule.gain, UNSURE) if milder else rule.gain,
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
