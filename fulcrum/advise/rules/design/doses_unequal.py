"""Rule: two ways to do one thing are compared at different doses."""

import re
from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import ConfigFamily

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy

DOSES = re.compile(
    r"(^|[._])(drop|ratio|rate|mask_ratio|drop_ratio|selection_ratio|keep|share|weight|coeff|dose)$|(drop|mask|keep)\w*(ratio|rate)$"
)
KINDS = {"routing": r"tread|sprint|rout|mask"}


class DosesUnequal(AuditRule):
    id = "doses-unequal"
    family = "design"
    severity = "note"
    gain = 0.2
    effort = "edit"
    why = "one arm does more of the same: which method is better cannot be read from them"
    size = "TREAD at 50 % against SPRINT at 75 % in the published study"
    source = "docs/published.md, A12"
    published = "A12"
    lever = "sprint"
    fix = "give both the same share of tokens, or compare each with the baseline only"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for kind, pattern in KINDS.items():
            doses = [
                (arm, change)
                for arm in family.arms
                for change in arm.changes
                if re.search(pattern, change.path) and DOSES.search(change.path) and isinstance(change.after, int | float)
            ]
            for number, (arm, change) in enumerate(doses):
                for other, its in doses[number + 1 :]:
                    if other is not arm and its.after != change.after and _method(its.path) != _method(change.path):
                        yield Sighting(
                            other.at(its.path),
                            f"{kind}: {arm.name} has {change.path} = {change.after}, {other.name} has {its.path} = "
                            f"{its.after}",
                        )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.studies.arms import unequal

        for found in unequal(study.arms):
            yield Sighting("arms", found.text)


def _method(path: str) -> str:
    return path.rpartition(".")[0]
