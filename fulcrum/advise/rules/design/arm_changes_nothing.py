"""Rule: an arm that is the baseline, or another arm."""

from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import ConfigFamily

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy


class ArmChangesNothing(AuditRule):
    id = "arm-changes-nothing"
    family = "design"
    severity = "error"
    gain = 0.8
    why = "the same run twice shows the noise between runs, and is told as an effect"
    size = "an ablation of nothing"
    source = "docs/published.md, A10"
    fix = "leave it out, or make it differ"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for number, arm in enumerate(family.arms):
            moved = [change for change in arm.changes if not change.path.endswith("seed")]
            same = [other.name for other in family.arms[:number] if other.changes == arm.changes]
            seeds = [change for change in arm.changes if change.path.endswith("seed")]
            if not moved and not seeds:
                yield Sighting(arm.at(), "the arm differs from the baseline in nothing but names and folders")
            elif same:
                yield Sighting(arm.at(), f"the arm is the same as {same[0]}")

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        for name, message, hint in study.refused:
            if "changes nothing" in message or "the same run" in message:
                yield Sighting(name, message, hint)
