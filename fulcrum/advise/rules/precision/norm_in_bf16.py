"""Rule: a norm in bf16."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.step_trace import StepTrace
from fulcrum.spec.run import RunSpec

FUSED = ("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm", "_fused_rms_norm")


class NormInBf16(AuditRule):
    id = "norm-in-bf16"
    family = "precision"
    also = "note of a fused kernel, which sums in fp32"
    gain = 0.04
    why = "what it takes and gives is rounded to 8 bits in every block; one written by hand (rsqrt of a mean) sums in bf16"
    size = "no number published; the page of our lever has what we measured"
    lever = "bf16_op(op=norm)"
    fix = "cast inside the norm: x.float() before, .to(dtype) after; torch.autocast does it for layer_norm"

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.norm == "bf16":
            yield Sighting("precision.norm", "a norm is computed in bf16", "--set precision.norm=fp32")

    def in_step(self, step: StepTrace) -> Sightings:
        for operation in step.of("norm"):
            if operation.low:
                whole = operation.operation in FUSED
                inside = ": its kernel sums in fp32, what it takes and gives is rounded" if whole else ""
                seen = f"a norm ran as {operation.operation} on {operation.formats}{inside}"
                yield Sighting(operation.place, seen, severity="note" if whole else "warning")
