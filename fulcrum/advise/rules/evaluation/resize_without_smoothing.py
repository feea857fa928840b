"""Rule: pictures are made smaller for a teacher or a metric without smoothing."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, is_constant, keyword, source_of

JUDGES = re.compile(
    r"(?i)teacher|dino|siglip|inception|lpips|metric|repa|perceptual|features?_extract"
    r"|(?<![a-z])(clip|fid|eval\w*)(?![a-z])"
)
NO_PICTURE = re.compile(r"(?i)mask|feat|embed|latent|logit|pos|grid|small")
PICTURE = re.compile(r"(?i)image|img|pixel|picture|photo|frame|rgb|generated|recon|(^|[._])(x|real|fake|samples?)$")
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
        for call in script.named("F.interpolate", "functional.interpolate"):
            mode = keyword(call, "mode") or (call.args[3] if len(call.args) > 3 else None)
            if not _for_a_judge(script, call) or keyword(call, "scale_factor") is not None:
                continue
            if mode is None or is_constant(mode, "nearest"):
                yield Sighting(script.at(call), f"{source_of(call)} resizes by nearest neighbour")
            elif (
                isinstance(mode, ast.Constant)
                and mode.value in SMOOTH
                and not is_constant(keyword(call, "antialias"), True)
            ):
                yield Sighting(script.at(call), f"{source_of(call)} has no antialias=True")
        for call in script.named("Resize", "functional.resize", "F.resize", "TF.resize"):
            plain = is_constant(keyword(call, "antialias"), False)
            if (
                (plain or "NEAREST" in ast.unparse(call))
                and JUDGES.search(script.context(call))
                and "mask" not in _given(call)
            ):
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
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}", f"set {config.setting(entry, True)}")


def _for_a_judge(script: Script, call: ast.Call) -> bool:
    """Is it a picture, on its way to a teacher or a metric? Feature maps, masks and positions are resized as one likes."""
    given = _given(call)
    picture = PICTURE.search(given) is not None and NO_PICTURE.search(given) is None
    return picture and JUDGES.search(f"{script.context(call)} {given}") is not None


def _given(call: ast.Call) -> str:
    return dotted(call.args[0] if call.args else keyword(call, "input") or call)
