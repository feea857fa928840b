"""Rule: gradients are never set to zero, so every step follows the sum of all before."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import Script, dotted, source_of
from fulcrum.advise.subjects.training_loop import OptimizerStep, optimizer_steps

CLEARS = r"(zero|clear|reset|empty)_?grad|set_to_none|foreach_zero|post_accumulate|deepspeed|^fabric$|lightning"
STEPS = re.compile(r"^(step|unscale_|prepare\w*|get_\w*scheduler\w*|add_param_group|state_dict|load_state_dict|print|len)$")


class GradientsNeverCleared(AuditRule):
    id = "gradients-never-cleared"
    family = "schedule"
    severity = "error"
    gain = 0.2
    why = (
        "backward adds to the gradients that are there: without zero_grad every step follows the sum of all batches so far"
    )
    size = "momentum without end: the training drifts or diverges; no number published"
    source = "torch documentation"
    fix = "optimizer.zero_grad(set_to_none=True) after every optimizer.step()"

    def in_script(self, script: Script) -> Sightings:
        if script.mentions(CLEARS) or _cleared_by_hand(script):
            return
        for step in optimizer_steps(script):
            if not _cleared_elsewhere(script, step):
                yield Sighting(
                    script.at(step.call),
                    f"{source_of(step.call)} in the loop of line {step.loop.lineno}, and nothing sets gradients to zero",
                    f"{step.optimizer}.zero_grad(set_to_none=True) after it",
                )
                return


def _cleared_by_hand(script: Script) -> bool:
    """`p.grad = None`, `p.grad.zero_()`, `torch.autograd.grad`."""
    written = (node for node in script.nodes if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load))
    return any(node.attr == "grad" for node in written) or bool(
        script.named("grad.zero_", "grad.data.zero_", "autograd.grad")
    )


def _cleared_elsewhere(script: Script, step: OptimizerStep) -> bool:
    """Is the optimizer made anew in the loop, or handed to a function that may clear?"""
    made = [value for value in script.assignments[step.optimizer] if value in script.optimizers]
    if any(step.loop in script.loops(value) for value in made):
        return True
    for call in script.calls:
        name = dotted(call.func).rpartition(".")[2]
        given = (*call.args, *(one.value for one in call.keywords))
        if any(dotted(one) == step.optimizer for one in given) and not STEPS.match(name) and not name[:1].isupper():
            return True
    return False
