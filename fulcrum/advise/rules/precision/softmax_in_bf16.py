"""Rule: a softmax in bf16."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.step_trace import StepTrace
from fulcrum.spec.run import RunSpec

FUSED_ATTENTION = ("_softmax", "_log_softmax", "_safe_softmax")


class SoftmaxInBf16(AuditRule):
    id = "softmax-in-bf16"
    family = "precision"
    also = "note of a fused kernel, which sums in fp32"
    gain = 0.04
    why = "scores are rounded to 8 bits before they are compared, and the weights of many tokens after it"
    size = "no number published; the page of our lever has what we measured"
    lever = "bf16_op(op=softmax)"
    fix = "scores.float().softmax(-1), or scaled_dot_product_attention, whose kernels sum in fp32"

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.softmax == "bf16":
            yield Sighting("precision.softmax", "a softmax is computed in bf16", "--set precision.softmax=fp32")

    def in_step(self, step: StepTrace) -> Sightings:
        for operation in step.of("softmax"):
            if operation.low:
                whole = operation.operation in FUSED_ATTENTION
                inside = ": its kernel sums in fp32, what it takes and gives is rounded" if whole else ""
                seen = f"a softmax ran as {operation.operation} on {operation.formats}{inside}"
                yield Sighting(operation.place, seen, severity="note" if whole else "warning")
