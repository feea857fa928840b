"""Rule: a metric is handed pictures in another range than it expects."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.picture_range import signed_by
from fulcrum.advise.subjects.python_script import Script, dotted, is_constant, keyword, source_of

METRICS = (
    "FrechetInceptionDistance",
    "KernelInceptionDistance",
    "InceptionScore",
    "MemorizationInformedFrechetInceptionDistance",
)


class MetricRange(AuditRule):
    id = "metric-range"
    family = "evaluation"
    severity = "error"
    gain = 1.0
    why = (
        "with normalize=True torchmetrics multiplies by 255: bytes wrap around and become the features of colour-"
        "negated pictures, and so do values below 0; without it, floats in [0, 1] are cut to black"
    )
    size = "the absolute number compares with nothing"
    source = "docs/published.md, A1"
    published = "A1"
    fix = "FrechetInceptionDistance(normalize=True) with floats in [0, 1], or normalize=False with uint8"

    def in_script(self, script: Script) -> Sightings:
        for name, values in script.assignments.items():
            for value in values:
                if not (isinstance(value, ast.Call | ast.Attribute) and (made := _metric(value))):
                    continue
                expects_floats = is_constant(keyword(made, "normalize"), True)
                for update in script.named(f"{name}.update"):
                    bytes_given = update.args and _bytes(script, update.args[0])
                    if expects_floats and bytes_given:
                        yield Sighting(
                            script.at(update),
                            f"{source_of(update)} hands over uint8, and line {made.lineno} says normalize=True",
                        )
                    elif update.args and (signed := signed_by(script, update.args[0], update)):
                        yield Sighting(
                            script.at(update),
                            f"{source_of(update)} hands over [-1, 1] ({signed}), and line {made.lineno} "
                            f"{'says normalize=True: [0, 1]' if expects_floats else 'expects bytes'}",
                            "bring them to [0, 1] first: (images / 2 + 0.5).clamp(0, 1), with normalize=True",
                        )
                    elif (
                        not expects_floats
                        and keyword(made, "normalize") is None
                        and update.args
                        and not bytes_given
                        and _unit_floats(script, update.args[0])
                    ):
                        yield Sighting(
                            script.at(update),
                            f"{source_of(update)} hands over floats, and line {made.lineno} does not say normalize=True",
                        )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(fid|kid|frechet|inception)\w*.*[._]normali[sz]e$"):
            folder = entry.path.rpartition(".")[0]
            given = config.first(rf"^{folder}\.(input_)?(dtype|image_dtype|image_format|range)$".replace("[", r"\["))
            if entry.on and given and given.text in ("uint8", "byte", "bytes", "0-255", "[0, 255]"):
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value} and {given.path} = {given.value}")


def _metric(value: ast.AST) -> ast.Call | None:
    """The call that makes the metric, behind `.to(device)`."""
    for part in ast.walk(value):
        if isinstance(part, ast.Call) and dotted(part.func).rpartition(".")[2] in METRICS:
            return part
    return None


def _bytes(script: Script, given: ast.AST) -> bool:
    """Is its last known format uint8?"""
    for _ in range(6):
        if isinstance(given, ast.Call):
            formats = script.cast_formats(given)
            if formats:
                return formats == {"uint8"}
            if dotted(given.func).rpartition(".")[2] in ("float", "double"):
                return False
        if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Div):
            return False
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
            given = given.func.value
        elif isinstance(given, ast.Name | ast.Attribute) and script.assignments.get(dotted(given)):
            given = script.assignments[dotted(given)][-1]
        else:
            return False
    return False


def _unit_floats(script: Script, given: ast.AST) -> bool:
    """Is it surely floats: divided by 255, clamped to [0, 1], `(x + 1) / 2`, rand?"""
    text = " ".join(ast.unparse(part) for part in script.meanings(given, 2) if isinstance(part, ast.Call | ast.BinOp))
    return any(
        sign in text.replace(" ", "")
        for sign in (
            "/255",
            "/2+0.5",
            "+1)/2",
            "clamp(0,1)",
            "clamp(0.0,1.0)",
            "clamp(min=0,max=1)",
            "ToTensor(",
            "torch.rand(",
        )
    )
