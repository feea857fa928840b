"""Rule: the optimizer's moments are kept in bf16."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import LOW
from fulcrum.advise.subjects.step_trace import StepTrace
from fulcrum.advise.subjects.stored_tensors import LOW as LOW_STORED
from fulcrum.advise.subjects.stored_tensors import StoredTensors, matching
from fulcrum.spec.run import RunSpec


class OptimizerStateInBf16(AuditRule):
    id = "optimizer-state-in-bf16"
    family = "precision"
    gain = 0.1
    why = (
        "with beta2 = 0.999 a second moment moves by a thousandth per step, and bf16 cannot hold a change below "
        "1/256: it freezes"
    )
    size = "no published number; the page of our lever has what we measured"
    lever = "bf16_optimizer_state"
    fix = "keep exp_avg and exp_avg_sq in fp32: they take the dtype of the weights, so store those in fp32"

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"optim.*(state|moment)\w*dtype$"):
            if entry.text.removeprefix("torch.") in ("bf16", "bfloat16", "fp16", "float16"):
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.optimizer == "bf16":
            yield Sighting("precision.optimizer", "the optimizer remembers in bf16", "--set precision.optimizer=fp32")

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        low = [one for one in matching(tensors.tensors, "exp_avg", "momentum_buffer") if one.format in LOW_STORED]
        if low:
            yield Sighting(low[0].name, f"{len(low)} tensors of the optimizer's state are stored in {low[0].format}")

    def in_step(self, step: StepTrace) -> Sightings:
        low = [name for name, kind in step.optimizer_state.items() if kind in LOW]
        if low:
            yield Sighting(
                low[0],
                f"{len(low)} of {len(step.optimizer_state)} moments of the optimizer are kept in "
                f"{step.optimizer_state[low[0]]}",
            )
