"""The loop of a script that goes backward and steps, and how many steps it makes, where the script says so."""

import ast
import re
from typing import NamedTuple

from fulcrum.advise.subjects.python_script import Script, dotted
from fulcrum.advise.subjects.text_limits import constant_of

Loop = ast.For | ast.While
STEPS = ("max_train_steps", "max_steps", "num_train_steps", "train_steps", "total_steps", "steps", "num_steps")
COUNTER = re.compile(r"(?i)(^|[._])(\w*step|\w*iter(ation)?)$")
ENDS = (ast.Break, ast.Return, ast.Raise)


class OptimizerStep(NamedTuple):
    """A step of an optimizer that the script makes itself, in a loop that goes backward too."""

    optimizer: str  # the name that it has
    call: ast.Call
    loop: Loop  # the innermost that both stand in


def optimizer_steps(script: Script) -> list[OptimizerStep]:
    made = {name for name, values in script.assignments.items() if any(value in script.optimizers for value in values)}
    steps = []
    for call in script.named("step"):
        name = dotted(call.func).rpartition(".")[0]
        if name not in made and call.args and dotted(call.args[0]) in made:  # scaler.step(optimizer)
            name = dotted(call.args[0])
        within = script.loops(call)
        both = [loop for loop in within for back in script.named("backward") if loop in script.loops(back)]
        if name in made and both:
            steps.append(OptimizerStep(name, call, both[0]))
    return steps


def trained_steps(script: Script) -> float | None:
    """How many: an option's default, the range of the loop that no other loop repeats, or a count at which it is left."""
    loops = {step.loop for step in optimizer_steps(script)}
    for loop in loops:
        if not script.loops(loop) and (bound := _range(script, loop)) is not None:
            return bound
        for outer in (loop, *script.loops(loop)):
            exits = [
                one for one in ast.walk(outer) if isinstance(one, ast.If) and any(isinstance(end, ENDS) for end in one.body)
            ]
            for one in exits:
                if (bound := _limit(script, one.test, (ast.Eq, ast.GtE, ast.Gt))) is not None:
                    return bound
            if isinstance(outer, ast.While) and (bound := _limit(script, outer.test, (ast.Lt, ast.LtE))) is not None:
                return bound
    declared = [one.default for one in script.options if one.name in STEPS and type(one.default) is int]
    return float(declared[0]) if declared else None


def _range(script: Script, loop: Loop) -> float | None:
    """Of `for step in range(3000)`, with an enumerate or a progress bar around it."""
    for part in ast.walk(loop.iter) if isinstance(loop, ast.For) else ():
        if isinstance(part, ast.Call) and dotted(part.func) in ("range", "trange") and len(part.args) == 1:
            return constant_of(script, part.args[0])
    return None


def _limit(script: Script, test: ast.expr, comparisons: tuple[type[ast.cmpop], ...]) -> float | None:
    """The number that a counter of steps is held against; other counters (of epochs without progress) are none."""
    if (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], comparisons)
        and COUNTER.search(dotted(test.left))
        and len(test.ops) == 1
    ):
        return constant_of(script, test.comparators[0])
    return None
