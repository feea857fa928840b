"""Rule: weights that an optimizer trains are stored in bf16 or fp16."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.model_folder import TRAINED, ModelFolder
from fulcrum.advise.subjects.python_script import LOW, Script, dotted, is_constant, source_of
from fulcrum.advise.subjects.step_trace import StepTrace
from fulcrum.advise.subjects.stored_tensors import BITS, StoredTensors, matching
from fulcrum.advise.subjects.stored_tensors import LOW as LOW_STORED
from fulcrum.spec.run import RunSpec

KEYS = r"(^|[._])((master_)?weights?_dtype|storage_dtype|model_dtype|pure_bf16|full_bf16|full_fp16|model\.dtype)$"
ADAPTERS = ("get_peft_model", "add_adapter", "inject_adapter_in_model")  # what they add is in fp32, the rest is frozen
ROUNDS = r"stochastic_round"
STATE = ("exp_avg", "momentum_buffer", "optimizer.")


def _wider(name: str) -> str:
    """fp32 in the words of the file: bfloat16 -> float32, bf16 -> fp32."""
    return re.sub(r"bfloat16|float16|half", "float32", re.sub(r"\b(bf16|fp16)", "fp32", name))


class WeightsInBf16(AuditRule):
    id = "weights-in-bf16"
    family = "precision"
    severity = "error"
    also = "note of weights without an optimizer's state beside them"
    gain = 0.2
    why = (
        "bf16 keeps 8 bits: an update smaller than 1/256 to 1/512 of a weight rounds to nothing, and late in training"
        " most are"
    )
    size = "FID 18.2 to 21.9 when the weights are stored in bf16 (not a clean arm: A10)"
    source = "PRX Part 2"
    lever = "bf16_storage"
    fix = "keep the weights that are trained in fp32 and compute in bf16: torch.autocast, or a cast inside the layers"

    def in_script(self, script: Script) -> Sightings:
        frozen = {
            dotted(one.func).rpartition(".")[0]
            for one in script.named("requires_grad_")
            if one.args and is_constant(one.args[0], False)
        }
        rescued = bool(script.named("cast_training_params", "upcast_trainable_params", *ADAPTERS)) or script.mentions(
            ROUNDS
        )
        reported = set[str]()
        for cast in script.casts:
            passed = cast.name in frozen | reported or rescued
            if not passed and cast.formats & LOW and script.is_trained(cast.name, cast.node):
                reported.add(cast.name)
                formats = " or ".join(sorted(cast.formats & LOW))
                yield Sighting(
                    script.at(cast.node),
                    f"`{cast.name}` is stored in {formats} by {source_of(cast.node)} and its parameters are optimized",
                    f"leave `{cast.name}` in fp32; wrap its forward pass in torch.autocast(device, dtype=torch.bfloat16)",
                )
        for call in script.named("set_default_dtype"):
            if call.args and script.formats(call.args[0]) & LOW and script.optimizers:
                yield Sighting(
                    script.at(call), "every tensor that is made from here on is stored in low precision, weights included"
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(KEYS):
            if entry.on or entry.text.removeprefix("torch.") in ("bf16", "bfloat16", "fp16", "float16", "half"):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {config.setting(entry, False if entry.on else _wider(entry.text))}; keep mixed_precision at bf16",
                )

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.storage == "bf16" and run.precision.rounding == "nearest":
            yield Sighting(
                "precision.storage",
                "weights are stored in bf16",
                "--set precision.storage=fp32, or add the lever stochastic_rounding",
            )

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        beside = set(matching(tensors.tensors, *STATE, "ema"))
        weights = [one for one in tensors.tensors if one not in beside]
        numbers, low = (sum(one.numbers for one in weights if one.format in kinds) for kinds in (BITS, LOW_STORED))
        if low <= 0.5 * numbers:
            return
        resumes = bool(matching(tensors.tensors, *STATE))
        formats = ", ".join(sorted({one.format for one in weights} & set(LOW_STORED)))
        seen = f"{low / numbers:.0%} of {numbers:,} numbers are stored in {formats}"
        if resumes:
            yield Sighting("weights", seen + ", and an optimizer's state lies beside them")
        else:
            yield Sighting(
                "weights",
                seen + ": right for drawing, not for going on to train",
                "load with torch_dtype=torch.float32 before training on from it",
                "note",
            )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        for part in folder.parts:
            if part.name in TRAINED:
                for one in self.in_tensors(part.tensors):
                    yield one._replace(place=part.name or "weights")

    def in_step(self, step: StepTrace) -> Sightings:
        low = [name for name, kind in step.trained.items() if kind in LOW]
        if low:
            yield Sighting(
                low[0], f"{len(low)} of {len(step.trained)} trained parameters are stored in {step.trained[low[0]]}"
            )
