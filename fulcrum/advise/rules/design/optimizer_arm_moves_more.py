"""Rule: an arm with another optimizer moves one of its settings as well."""

import re
from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import ConfigFamily

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy

KIND = re.compile(r"(^|[._])(name|type|kind|class|_target_|optimizer|optimizer_type|optim)$")
SHARED = re.compile(r"(^|[._])(adam_)?(eps|epsilon|betas?|beta1|beta2|weight_decay|clip\w*|max_grad_norm)$")


class OptimizerArmMovesMore(AuditRule):
    id = "optimizer-arm-moves-more"
    family = "design"
    gain = 0.4
    why = "the new optimizer is credited with what its eps, betas or weight decay do"
    size = "the published Muon arm (FID 18.2 to 15.6) also moved eps from 1e-15 to 1e-8"
    source = "docs/published.md, A8"
    published = "A8"
    lever = "muon"
    fix = "keep the settings that both have, and give the learning rate of each the same sweep"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            own = [change for change in arm.changes if change.decision == "optimizer"]
            kinds = [change for change in own if KIND.search(change.path) or re.search(r"muon", change.path)]
            moved = [
                change
                for change in own
                if SHARED.search(change.path) and change.before is not None and change.after is not None
            ]
            if kinds:
                for change in moved:
                    yield Sighting(
                        arm.at(change.path),
                        f"the arm changes {kinds[0].path} and also {change}",
                    )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.studies.arms import moves_optimizer

        for arm in study.arms:
            for label in arm.labels:
                if moves_optimizer(label):
                    yield Sighting(arm.name, f"the arm {label.text}")
