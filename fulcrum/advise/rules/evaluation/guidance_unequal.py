"""Rule: arms are drawn with different guidance."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import ConfigFamily

WORDS = ("guidance", "cfg_scale", "num_inference_steps", "sampler", "sampling_steps")


class GuidanceUnequal(AuditRule):
    id = "guidance-unequal"
    family = "evaluation"
    severity = "error"
    gain = 0.6
    why = (
        "guidance and the sampler move FID more than most training decisions: an arm with its own is compared with "
        "another ruler"
    )
    size = "several FID points between guidance 1 and 4"
    source = "docs/published.md, A7"
    fix = "one sampler and one guidance for all arms, or each arm's best from the same sweep, told with the result"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            for change in arm.changes:
                if any(word in change.path for word in WORDS):
                    yield Sighting(
                        arm.at(change.path),
                        f"the arm is drawn otherwise than the baseline: {change}",
                    )
