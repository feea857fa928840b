"""Rule: gradients are clipped while they are still multiplied by the loss scale."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import Script, dotted, source_of

CLIPS = re.compile(r"clip_grad")  # torch's, and what libraries build on it: dispatch_clip_grad, adaptive_clip_grad
UNSCALES_ITSELF = re.compile(
    r"(?i)accelerat|fabric|optim|engine|scaler|trainer|strategy|plugin|^self$"
)  # where it is a method
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
        scaled = _scaled_backwards(script)
        unscaled = script.named(*UNSCALES)
        told = set[ast.AST | None]()
        for clip in script.calls:
            base, _, name = dotted(clip.func).rpartition(".")
            own = script.function(clip)
            if own in told or not CLIPS.search(name) or UNSCALES_ITSELF.search(base):
                continue
            here = [call for call in unscaled if script.function(call) is own]
            elsewhere = len(here) < len(unscaled)  # a function that this one may call: not followed
            before = [call for call in scaled if _same_home(script, call, clip)]
            if before and not elsewhere and not any(call.lineno <= clip.lineno for call in here):
                late = f"; line {here[0].lineno} unscales only afterwards" if here else ", and nothing unscales them"
                told.add(own)
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
    """Do both stand in one function, or in methods of one class, or does the second's function call the first's?"""
    mine, yours = script.function(one), script.function(other)
    if mine is yours:
        return True
    if mine is not None and any(dotted(call.func) == mine.name and script.function(call) is yours for call in script.calls):
        return True
    homes = [next((node for node in script.around(each) if isinstance(node, ast.ClassDef)), None) for each in (one, other)]
    return homes[0] is not None and homes[0] is homes[1]
