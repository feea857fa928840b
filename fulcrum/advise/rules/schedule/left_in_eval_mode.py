"""Rule: a network is set to eval mode for a preview and trained on in it."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import Script, dotted
from fulcrum.advise.subjects.training_loop import OptimizerStep, optimizer_steps


class LeftInEvalMode(AuditRule):
    id = "left-in-eval-mode"
    family = "schedule"
    gain = 0.05
    why = "dropout is off and batch norm stands still from the first preview on: half of the training is another one"
    size = "nothing where the network has neither; no number published"
    source = "torch documentation"
    fix = "net.train() after every evaluation, or evaluate the averaged copy"

    def in_script(self, script: Script) -> Sightings:
        steps = optimizer_steps(script)
        if not steps or any(isinstance(call.func, ast.Attribute) for call in script.named("train")):
            return
        for call in script.named("eval"):
            name = dotted(call.func).rpartition(".")[0]
            if isinstance(call.func, ast.Attribute) and not call.args and _is_trained_on(script, name, call, steps):
                yield Sighting(script.at(call), f"{name}.eval(), and no line calls train()")


def _is_trained_on(script: Script, name: str, call: ast.Call, steps: list[OptimizerStep]) -> bool:
    """Is it a network that an optimizer has, in the loop that steps or before it; or in a function that is handed one
    there?"""
    home = script.function(call)
    if any(script.function(step.call) is home and call.lineno <= _end(script, step) for step in steps):
        return script.is_trained(name, call)
    words = [one.arg for one in home.args.args] if home is not None else []
    if home is None or name not in words:
        return False
    for one in script.named(home.name):
        inside = any(set(script.loops(step.call)) & set(script.loops(one)) for step in steps)
        given = one.args[words.index(name)] if len(one.args) > words.index(name) else None
        given = next((word.value for word in one.keywords if word.arg == name), given)
        if inside and given is not None and script.is_trained(dotted(given), one):
            return True
    return False


def _end(script: Script, step: OptimizerStep) -> int:
    """The last line of the outermost loop around a step: that of epochs, as a rule."""
    return script.loops(step.call)[-1].end_lineno or 0
