"""Rule: gradients are clipped while they are still multiplied by the loss scale."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import Script, dotted, source_of

CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads_with_norm_")
UNSCALES_ITSELF = r"^(accelerator|accelerate|fabric|lightning|deepspeed|composer)$"
# `get_scale` is for those who divide by hand, or multiply the threshold.
UNSCALES = ("unscale_", "unscale_gradients", "get_scale")


class ClipOfScaledGradients(AuditRule):
    id = "clip-of-scaled-gradients"
    family = "precision"
    severity = "error"
    gain = 0.1
    why = (
        "a GradScaler multiplies gradients by some 65,536 until its step divides them again: a threshold of 1 before "
        "that cuts every step to a length that follows the scale, and the norm that is logged is not the gradient's"
    )
    size = "every step is clipped, and below Adam's eps small ones shrink; no number published"
    source = "torch.amp documentation: unscale before clipping"
    fix = "scaler.unscale_(optimizer) between backward and clip_grad_norm_"

    def in_script(self, script: Script) -> Sightings:
        if script.mentions(UNSCALES_ITSELF):
            return
        scaled = _scaled_backwards(script)
        unscaled = script.named(*UNSCALES)
        for clip in script.named(*CLIPS):
            own = script.function(clip)
            here = [call for call in unscaled if script.function(call) is own]
            elsewhere = len(here) < len(unscaled)  # a function that this one may call: not followed
            before = [call for call in scaled if _same_home(script, call, clip)]
            if before and not elsewhere and not any(call.lineno <= clip.lineno for call in here):
                late = f"; line {here[0].lineno} unscales only afterwards" if here else ", and nothing unscales them"
                yield Sighting(
                    script.at(clip),
                    f"{source_of(clip)} after line {before[0].lineno} scaled the loss{late}",
                )


def _scaled_backwards(script: Script) -> list[ast.Call]:
    """Calls of a scaler's `scale` whose result goes backward: `scaler.scale(loss).backward()`, or by way of a name."""
    names = {dotted(call.func).rpartition(".")[0] for call in script.named("backward")}
    scaled = []
    for call in script.named("scale"):
        named = any(call in script.assignments.get(name, ()) for name in names)
        goes = (dotted(call) in names or named) and bool(call.args)
        if isinstance(call.func, ast.Attribute) and goes:
            scaled.append(call)
    return scaled


def _same_home(script: Script, one: ast.AST, other: ast.AST) -> bool:
    """Do both stand in one function, or in methods of one class?"""
    if script.function(one) is script.function(other):
        return True
    homes = [next((node for node in script.around(each) if isinstance(node, ast.ClassDef)), None) for each in (one, other)]
    return homes[0] is not None and homes[0] is homes[1]
