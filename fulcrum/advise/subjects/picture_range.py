"""Which range a script's pictures have where they are handed over: followed back through what leaves values as they are."""

import ast

from fulcrum.advise.subjects.python_script import Script, dotted, keyword, number, source_of

KEEPS = ("to", "float", "double", "cpu", "cuda", "detach", "contiguous", "clone", "flatten", "reshape", "view", "permute")
STEPS = 12


def signed_by(script: Script, given: ast.AST, where: ast.AST) -> str:
    """The code that leaves pictures in [-1, 1], with nothing behind it that moves them; empty where that is not sure."""
    for _ in range(STEPS):
        if isinstance(given, ast.Name | ast.Attribute) and (former := _assigned(script, given, where)) is not None:
            given = where = former
        elif isinstance(given, ast.Call):
            name = dotted(given.func).rpartition(".")[2]
            if name in ("clamp", "clip", "clamp_", "clip_"):
                return source_of(given, 60) if _limits(given) == (-1.0, 1.0) else ""
            if name in ("tanh", "tanh_"):
                return source_of(given, 60)
            if name not in KEEPS or not isinstance(given.func, ast.Attribute) or script.cast_formats(given) & {"uint8"}:
                return ""
            given = given.func.value
        elif isinstance(given, ast.BinOp) and ast.unparse(given.right) in ("1", "1.0") and isinstance(given.op, ast.Sub):
            doubled = given.left  # x * 2 - 1
            factors = (doubled.left, doubled.right) if isinstance(doubled, ast.BinOp) else ()
            twice = isinstance(doubled, ast.BinOp) and isinstance(doubled.op, ast.Mult) and 2.0 in map(number, factors)
            return source_of(given, 60) if twice else ""
        elif _decoded(given):
            return f"{source_of(given, 60)}, as autoencoders of diffusers give them"
        else:
            return ""
    return ""


def _assigned(script: Script, name: ast.expr, where: ast.AST) -> ast.expr | None:
    """What a name was last given before a place of the same function; None where methods may have changed it in place."""
    home, line = script.function(where), getattr(where, "lineno", 0)
    if any(dotted(call.func).startswith(f"{dotted(name)}.") and dotted(call.func).endswith("_") for call in script.calls):
        return None
    own = [
        value
        for value in script.assignments.get(dotted(name), ())
        if script.function(value) is home and value.lineno <= line and value is not where
    ]
    return own[-1] if own else None


def _limits(call: ast.Call) -> tuple[float | None, float | None]:
    given = call.args if isinstance(call.func, ast.Attribute) and dotted(call.func.value) != "torch" else call.args[1:]
    low = keyword(call, "min") or (given[0] if given else None)
    high = keyword(call, "max") or (given[1] if len(given) > 1 else None)
    return number(low), number(high)


def _decoded(given: ast.AST) -> bool:
    """`vae.decode(latents).sample`, or its first part."""
    inner = given.value if isinstance(given, ast.Attribute | ast.Subscript) else None
    first = (
        isinstance(given, ast.Subscript)
        and number(given.slice) == 0
        or isinstance(given, ast.Attribute)
        and given.attr == "sample"
    )
    name = dotted(inner.func).lower() if isinstance(inner, ast.Call) else ""
    return first and name.endswith(".decode") and any(word in name for word in ("vae", "autoencoder"))
