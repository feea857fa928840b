"""Rule: pictures are made smaller for a teacher or a metric without smoothing."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, is_constant, keyword, source_of

JUDGES = re.compile(r"(?i)teacher|dino|clip|siglip|inception|fid|feature|lpips|metric|repa|perceptual|encoder_input|eval")
SMOOTH = ("bilinear", "bicubic")


class ResizeWithoutSmoothing(AuditRule):
    id = "resize-without-smoothing"
    family = "evaluation"
    gain = 0.15
    why = (
        "nearest-neighbour and unsmoothed resizing alias: a teacher or judge then sees edges that are not there, and "
        "teachers are compared on damaged pictures"
    )
    size = "FID moves by several points with the resizing alone"
    source = "docs/published.md, A16; arXiv:2104.11222"
    published = "A16"
    fix = 'F.interpolate(x, size, mode="bicubic", antialias=True), or Pillow\'s resize'

    def in_script(self, script: Script) -> Sightings:
        for call in script.named("interpolate"):
            mode = keyword(call, "mode") or (call.args[3] if len(call.args) > 3 else None)
            grows = keyword(call, "scale_factor")
            if not JUDGES.search(_about(script, call)) or grows is not None or _is_grid(call):
                continue
            nearest = mode is None or is_constant(mode, "nearest")
            if nearest:
                yield Sighting(script.at(call), f"{source_of(call)} resizes by nearest neighbour")
            elif (
                isinstance(mode, ast.Constant)
                and mode.value in SMOOTH
                and not is_constant(keyword(call, "antialias"), True)
            ):
                yield Sighting(script.at(call), f"{source_of(call)} has no antialias=True")
        for call in script.named("Resize", "resize"):
            plain = is_constant(keyword(call, "antialias"), False)
            nearest = "NEAREST" in ast.unparse(call)
            if (plain or nearest) and JUDGES.search(_about(script, call)):
                yield Sighting(script.at(call), f"{source_of(call)} does not smooth")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(
            r"(teacher|dino|clip|fid|inception|metric|repa|feature|eval)\w*.*(resize|interpolation|resample)\w*$"
        ):
            if entry.text.startswith("nearest"):
                yield Sighting(
                    config.at(entry), f"{entry.path} = {entry.value}", f"set {entry.leaf} to bicubic, with antialias"
                )
        for entry in config.find(r"(teacher|dino|clip|fid|inception|metric|repa|feature|eval)\w*.*antialias$"):
            if entry.off:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}", f"set {entry.leaf} to true")


def _about(script: Script, call: ast.Call) -> str:
    """What the resizing is for: functions and classes around it, what it is assigned to, what it is given."""
    return f"{script.context(call)} {dotted(call.args[0]) if call.args else ''}"


def _is_grid(call: ast.Call) -> bool:
    """Positions, masks and logits are no pictures."""
    return bool(re.search(r"(?i)pos|mask|logit|heat|flow|grid|embed", dotted(call.args[0]) if call.args else ""))
