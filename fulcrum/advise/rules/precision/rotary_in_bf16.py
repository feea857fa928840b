"""Rule: rotary positions in bf16."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import LOW, Script, source_of
from fulcrum.advise.subjects.step_trace import StepTrace
from fulcrum.spec.run import RunSpec

ROTARY_NAMES = ("rope", "rotary", "freqs", "freqs_cis", "inv_freq", "cos", "sin", "pos_emb")


class RotaryInBf16(AuditRule):
    id = "rotary-in-bf16"
    family = "precision"
    gain = 0.05
    why = (
        "bf16 cannot tell 256 from 257: angles of far positions are rounded to their neighbours', and cos and sin to 8 bits"
    )
    size = "no number published; the page of our lever has what we measured"
    lever = "bf16_op(op=rope)"
    fix = "keep positions, angles, cos and sin in fp32, turn queries and keys in fp32, and cast afterwards"

    def in_script(self, script: Script) -> Sightings:
        for cast in script.casts:
            if cast.name.lower().rpartition(".")[2] in ROTARY_NAMES and cast.formats and cast.formats <= LOW:
                yield Sighting(script.at(cast.node), f"the rotary table is cast: {source_of(cast.node)}")

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.rope == "bf16":
            yield Sighting("precision.rope", "rotary positions are computed in bf16", "--set precision.rope=fp32")

    def in_step(self, step: StepTrace) -> Sightings:
        for operation in step.of("rotary"):
            if operation.low:
                yield Sighting(operation.place, f"rotary positions ran as {operation.operation} on {operation.formats}")
