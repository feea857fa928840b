"""Rule: autocast around the backward pass or the optimizer."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import Script, dotted


class AutocastTooWide(AuditRule):
    id = "autocast-too-wide"
    family = "precision"
    gain = 0.03
    effort = "line"
    why = (
        "autocast belongs around the forward pass and the loss; around backward it casts again what was already cast,"
        " around the optimizer it rounds updates that products compute"
    )
    size = "no number published"
    source = "torch.amp documentation: backward under autocast is not recommended"
    fix = "end the `with torch.autocast` block before loss.backward()"

    def in_script(self, script: Script) -> Sightings:
        for node in script.nodes:
            if not isinstance(node, ast.With | ast.AsyncWith):
                continue
            if not any(
                isinstance(one.context_expr, ast.Call) and dotted(one.context_expr.func).rpartition(".")[2] == "autocast"
                for one in node.items
            ):
                continue
            for inner in node.body:
                for call in ast.walk(inner):
                    if isinstance(call, ast.Call) and _is_update(dotted(call.func)):
                        yield Sighting(
                            script.at(call), f"`{dotted(call.func)}` runs inside the autocast of line {node.lineno}"
                        )


def _is_update(name: str) -> bool:
    owner, _, method = name.rpartition(".")
    return method == "backward" or (method == "step" and ("optim" in owner.lower() or owner.lower() in ("opt", "scaler")))
