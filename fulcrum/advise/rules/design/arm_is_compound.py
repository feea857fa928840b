"""Rule: an arm changes more than one decision."""

from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import ConfigFamily

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy


class ArmIsCompound(AuditRule):
    id = "arm-is-compound"
    family = "design"
    gain = 0.6
    effort = "rework"
    why = "the effect belongs to all changes together, and to none of them"
    size = "the published REPA-E, LPIPS and TREAD arms are such"
    source = "docs/published.md, A7"
    published = "A7"
    fix = 'one arm for each change, and one for all of them: interactions = [["a", "b"]] in a plan'

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            decisions: dict[str, str] = {}
            for change in arm.changes:
                decisions.setdefault(change.decision, change.path)
            decisions.pop("seed", None)
            if len(decisions) > 1:
                what = ", ".join(f"{name} ({path})" for name, path in decisions.items())
                yield Sighting(arm.at(), f"the arm changes {len(decisions)} decisions: {what}")

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.studies.arms import baseline_of, moves_optimizer

        controls = {arm.against for arm in study.arms}  # what others are held against is not what the study asks about
        for arm in study.arms if not study.plan.interactions and study.plan.design == "one_at_a_time" else ():
            carried = [label for label in arm.labels if moves_optimizer(label)]
            paths = list(dict.fromkeys(change.path for change in arm.changes))
            single = len(paths) == 1 and not baseline_of(arm, study.arms).is_baseline  # one change from its control
            if arm.compound and not carried and not single and arm.name not in controls:
                yield Sighting(arm.name, f"the arm changes {', '.join(paths)}")
