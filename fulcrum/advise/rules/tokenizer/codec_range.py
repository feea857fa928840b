"""Rule: pictures in [0, 1] are given to an autoencoder that was trained on [-1, 1]."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import Script, dotted, number, source_of

UNIT = ("ToTensor",)  # torchvision's: bytes become [0, 1]
LATENTS = "latent_dist"
# Names of whatever may move the range: Normalize, preprocess, VaeImageProcessor, to_minus_one_one, rescale.
MOVES = re.compile(r"(?i)normali[sz]e|preprocess|processor|rescale|minus_?one|signed|standardi[sz]e|to_range")
CENTRES = (0.5, 1.0, 127.5)


class CodecRange(AuditRule):
    id = "codec-range"
    family = "tokenizer"
    severity = "error"
    gain = 0.2
    why = (
        "autoencoders of diffusers read pictures in [-1, 1]: in [0, 1] every picture is bright and of half the contrast, "
        "and what is drawn comes back washed out"
    )
    size = "latents of other pictures than those that are shown; no number published"
    source = "diffusers documentation"
    fix = "transforms.Normalize([0.5], [0.5]) after ToTensor()"

    def in_script(self, script: Script) -> Sightings:
        if not script.trains or _moved(script):
            return
        encoded = [node for node in script.nodes if isinstance(node, ast.Attribute) and node.attr == LATENTS]
        for call in script.named("Compose") if encoded else ():
            last = call.args[0].elts[-1] if call.args and isinstance(call.args[0], ast.List) and call.args[0].elts else None
            if isinstance(last, ast.Call) and dotted(last.func).rpartition(".")[2] in UNIT:
                yield Sighting(
                    script.at(last),
                    f"{source_of(last)} gives [0, 1], nothing moves it to [-1, 1], and line {encoded[0].lineno} encodes it",
                )


def _moved(script: Script) -> bool:
    """Does a name speak of it (an argument's, as of a metric, does not), or is something subtracted or divided away that
    centres pixels: x * 2 - 1, (x - 0.5) / 0.5, x / 127.5 - 1?"""
    names = (getattr(node, "id", getattr(node, "attr", getattr(node, "name", None))) for node in script.nodes)
    return any(isinstance(name, str) and MOVES.search(name) for name in names) or any(
        isinstance(node, ast.BinOp)
        and (
            (isinstance(node.op, ast.Sub) and number(node.right) in CENTRES)
            or (isinstance(node.op, ast.Div) and number(node.right) == 127.5)
        )
        or isinstance(node, ast.Call)
        and dotted(node.func).rpartition(".")[2] in ("sub", "sub_", "subtract")
        for node in script.nodes
    )
