"""Rule: the loss is computed in bf16."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import LOW, Script, source_of
from fulcrum.advise.subjects.step_trace import StepTrace
from fulcrum.spec.run import RunSpec

LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


class LossInBf16(AuditRule):
    id = "loss-in-bf16"
    family = "precision"
    gain = 0.05
    why = "a mean over many squares and the difference of two close numbers are what bf16 is worst at"
    size = "no number published; the page of our lever has what we measured"
    lever = "bf16_op(op=loss)"
    fix = "F.mse_loss(prediction.float(), target.float())"

    def in_script(self, script: Script) -> Sightings:
        low = [
            cast
            for cast in script.casts
            if cast.formats and cast.formats <= LOW and script.is_trained(cast.name, cast.node)
        ]
        for call in script.named(*LOSSES):
            own = [cast.name for cast in low if script.function(cast.node) in (None, script.function(call))]
            autocast = any(
                isinstance(one, ast.With) and "autocast" in ast.unparse(one.items[0].context_expr)
                for one in script.around(call)
            )
            if own and not autocast and "float" not in " ".join(ast.unparse(argument) for argument in call.args):
                yield Sighting(script.at(call), f"{source_of(call)} on what `{own[0]}` gives in low precision")

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.loss == "bf16":
            yield Sighting("precision.loss", "the terms of the loss are computed in bf16", "--set precision.loss=fp32")

    def in_step(self, step: StepTrace) -> Sightings:
        for operation in step.of("loss"):
            if operation.low:
                yield Sighting(operation.place, f"the loss is reduced by {operation.operation} in {operation.formats}")
