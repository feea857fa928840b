"""Rule: a plan that sees only very large differences."""

from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy

LARGE = 2.4  # times the scatter of the paired differences; six pairs and three arms see 2.1


class PowerLow(AuditRule):
    id = "power-low"
    family = "design"
    severity = "note"
    gain = 0.2
    effort = "rework"
    why = "arms are judged together: with many of them and few seeds only very large differences get a verdict"
    size = "the smallest difference that is seen in four studies of five is told with the fault"
    source = "docs/statistics.md, simulated through the rule that verdicts follow"
    fix = "fewer arms, more seeds, or seeds only where they are needed: seeds = {first = 8, step = 4, most = 16}"

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.judge.statistics import pairs_needed
        from fulcrum.studies.power import detectable

        plan, arms = study.plan, sum(not arm.is_baseline for arm in study.arms)
        if plan.design != "one_at_a_time" or not arms or len(plan.seeds) < pairs_needed(plan.alpha):
            return
        seen = detectable(len(plan.seeds), arms, alpha=plan.alpha)
        if seen is None or seen > LARGE:
            least = "no difference" if seen is None else f"only a difference of {seen:.1f} times the scatter of the pairs"
            yield Sighting(
                "seeds", f"with {len(plan.seeds)} pairs and {arms} arms {least} gets its verdict in four studies of five"
            )
