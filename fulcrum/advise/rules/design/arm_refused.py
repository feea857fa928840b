"""Rule: an arm that cannot be run."""

from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy


class ArmRefused(AuditRule):
    id = "arm-refused"
    family = "design"
    severity = "error"
    gain = 1.0
    why = "the study would stop before its first cell"
    size = "nothing is learned"
    fix = "correct the arm, or leave it out"

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        for name, message, hint in study.refused:
            if "changes nothing" not in message and "the same run" not in message:
                yield Sighting(name or "plan", message, hint)
