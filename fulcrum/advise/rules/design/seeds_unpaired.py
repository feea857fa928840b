"""Rule: arms that are trained under other seeds than the baseline."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import ConfigFamily


class SeedsUnpaired(AuditRule):
    id = "seeds-unpaired"
    family = "design"
    gain = 0.3
    why = (
        "with the same seeds an arm and its baseline share initial weights, data order and noise, and their "
        "difference scatters less"
    )
    size = "the scatter of a difference falls by the root of one minus the correlation"
    source = "docs/statistics.md"
    fix = "train every arm under the baseline's seeds"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            moved = [
                change
                for change in arm.changes
                if change.path.rpartition(".")[2] in ("seed", "seeds", "random_seed", "global_seed")
            ]
            others = [change for change in arm.changes if change not in moved]
            if moved and others:
                yield Sighting(arm.at(moved[0].path), f"the arm changes its seed as well: {moved[0]}")
