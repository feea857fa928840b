"""An average of weights that a script keeps by hand: `ema[name].mul_(0.9999).add_(weight, alpha=0.0001)`."""

import ast
import re
from collections.abc import Iterator

from fulcrum.advise.subjects.python_script import Script, dotted
from fulcrum.advise.subjects.text_limits import constant_of

AVERAGE = re.compile(r"(?i)(^|[^a-z])(ema|shadow|averaged?|avg)($|[^a-z])")
LOWEST = 0.5  # below it is no decay of an average of weights


def hand_made(script: Script) -> Iterator[tuple[ast.Call, float]]:
    """Updates of an average, with their decay where it stands there or has one name."""
    for call in script.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name not in ("mul_", "lerp_") or not call.args or not _is_average(script, call):
            continue
        given = constant_of(script, call.args[-1])
        if given is None and isinstance(call.args[-1], ast.BinOp):  # lerp_(weight, 1 - decay)
            left, right = (constant_of(script, one) for one in (call.args[-1].left, call.args[-1].right))
            given = left - right if left is not None and right is not None else None
        decay = given if name == "mul_" or given is None else 1.0 - given
        if decay is not None and LOWEST < decay < 1.0:
            yield call, decay


def _is_average(script: Script, call: ast.Call) -> bool:
    """By its own name, or by what the loop around it takes it from: `for a, b in zip(ema.parameters(), ...)`."""
    base = call.func.value if isinstance(call.func, ast.Attribute) else call
    if AVERAGE.search(dotted(base)):
        return True
    own = dotted(base).partition(".")[0]
    for loop in script.loops(call):
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Tuple):
            continue
        names = [dotted(one) for one in loop.target.elts]
        sources = loop.iter.args if isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "zip" else []
        if own in names and len(sources) == len(names):
            return bool(AVERAGE.search(dotted(sources[names.index(own)])))
    return False
