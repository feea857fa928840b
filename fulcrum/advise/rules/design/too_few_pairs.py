"""Rule: too few seeds to decide anything."""

from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import ConfigFamily

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy

FEWEST_ELSEWHERE = 3  # how others judge is not known; from three on a t-test can find a large difference


class TooFewPairs(AuditRule):
    id = "too-few-pairs"
    family = "design"
    gain = 0.5
    effort = "rework"
    why = (
        "with fewer than six paired seeds no difference can be significant at 0.05 by ranks, as studies here are judged; "
        "with one nothing is known of the noise between seeds, and with two almost nothing"
    )
    size = "every published row has one seed"
    source = "docs/statistics.md"
    fix = "six paired seeds, or seeds = {first = 8, step = 4, most = 16}"

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.judge.statistics import pairs_needed

        plan, least = study.plan, pairs_needed(study.plan.alpha)
        if len(plan.seeds) < least and plan.design != "fractional":
            yield Sighting("seeds", f"{len(plan.seeds)} pairs cannot reach significance at {plan.alpha:g}; {least} can")

    def in_family(self, family: ConfigFamily) -> Sightings:
        seeds = [
            value
            for arm in (family.baseline, *family.arms)
            for path, value in arm.values.items()
            if path.rpartition(".")[2] == "seeds"
        ]
        fewest = min((len(value) for value in seeds if isinstance(value, list)), default=FEWEST_ELSEWHERE)
        if fewest < FEWEST_ELSEWHERE:
            yield Sighting(family.baseline.at(), f"an arm with {fewest} seeds")
