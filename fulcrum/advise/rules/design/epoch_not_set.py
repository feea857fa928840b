"""Rule: a distributed sampler that is never told the epoch."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import Script, is_constant, keyword, source_of


class EpochNotSet(AuditRule):
    id = "epoch-not-set"
    family = "design"
    gain = 0.05
    why = "DistributedSampler shuffles by seed and epoch: without set_epoch every epoch has the order of the first"
    size = "no number published"
    source = "torch documentation"
    fix = "sampler.set_epoch(epoch) at the top of every epoch"

    def in_script(self, script: Script) -> Sightings:
        if not script.trains or script.mentions("set_epoch") or script.mentions("^accelerator$"):
            return
        for call in script.named("DistributedSampler"):
            if not is_constant(keyword(call, "shuffle"), False):
                yield Sighting(script.at(call), f"{source_of(call)}, and set_epoch is never called")
