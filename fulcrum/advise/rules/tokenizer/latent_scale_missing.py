"""Rule: an autoencoder's latents are trained on as they come, without its scaling factor."""

import ast
import re
from collections.abc import Iterator

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.rules.tokenizer.latent_scale_typed import SCALES
from fulcrum.advise.subjects.python_script import Script, dotted, source_of

LATENT_DISTRIBUTION = "latent_dist"  # what diffusers' autoencoders call the distribution that they encode to
WORDS = re.compile(
    r"(?i)scal(e|ing)_factor|shift_factor|running_(mean|var)|(latents?|vae|codec|encoder)_?(scal|shift|mean|std|norm)"
)
BY_NAME = re.compile(r"(?i)scal|norm|standard|whiten|shift|mul|div")  # functions and methods that may do it
SIZED = (ast.Mult, ast.Div)


class LatentScaleMissing(AuditRule):
    id = "latent-scale-missing"
    family = "tokenizer"
    severity = "error"
    gain = 0.2
    why = (
        "an autoencoder's latents have any deviation, and its scaling factor brings them to about one, for which noise "
        "schedules are made: without it pictures stand out of the noise for most of the time, and a pipeline, which "
        "divides by the factor, draws something else"
    )
    size = "latents of Stable Diffusion deviate by 5.5 instead of 1, of FLUX.1 by 2.8; no number published"
    source = "1 / scaling_factor of their configurations"
    fix = "latents = latents * vae.config.scaling_factor (first minus vae.config.shift_factor, where it has one)"

    def in_script(self, script: Script) -> Sightings:
        if not script.trains or script.named("kl") or self._known(script):
            return
        for node in script.nodes:
            if isinstance(node, ast.Attribute) and node.attr == LATENT_DISTRIBUTION and not _trained(script, node):
                latents = _chain(script, node)
                if not any(_sized(script, one) for one in _uses(script, latents)):
                    yield Sighting(script.at(node), f"{source_of(latents)} is never multiplied by the scaling factor")

    def _known(self, script: Script) -> bool:
        """Does the script speak of the factor other than where it divides by it, which is how latents are decoded?"""
        for node in script.nodes:
            name = getattr(node, "id", getattr(node, "attr", getattr(node, "arg", getattr(node, "name", None))))
            text = node.value if isinstance(node, ast.Constant) else name
            spoken = text in SCALES if isinstance(text, float) else isinstance(text, str) and bool(WORDS.search(text))
            if spoken and not any(
                isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) for one in script.around(node)
            ):
                return True
        return False


def _chain(script: Script, node: ast.AST) -> ast.expr:
    """`vae.encode(x).latent_dist.sample()`, whole."""
    for one in script.around(node):
        if not isinstance(one, ast.Attribute | ast.Call) or isinstance(one, ast.Call) and node in one.args:
            break
        node = one
    assert isinstance(node, ast.expr)
    return node


def _trained(script: Script, node: ast.Attribute) -> bool:
    """Is the autoencoder itself what is trained? Then its latents are nobody's input."""
    call = next((one for one in ast.walk(node) if isinstance(one, ast.Call)), None)
    return call is not None and script.is_trained(dotted(call.func).rpartition(".")[0], node)


def _uses(script: Script, latents: ast.expr) -> Iterator[ast.AST]:
    """The latents, and wherever the names stand that hold them; a function that returns them hands them on."""
    yield latents
    names, functions = set[str](), set[str]()
    for one in script.around(latents):
        if isinstance(one, ast.Assign):
            names |= {dotted(target) for target in one.targets}
        elif isinstance(one, ast.Return) and (function := script.function(one)) is not None:
            functions.add(function.name)
    for node in script.nodes:
        held = isinstance(node, ast.Name | ast.Attribute) and dotted(node) in names
        if held or isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in functions:
            yield node


def _sized(script: Script, node: ast.AST) -> bool:
    """Is it multiplied or divided as a whole, or handed to something that may do so? As one addend of a sum it is being
    mixed with noise: (1 - t) * latents + t * noise."""
    inner = node
    for one in script.around(node):
        if isinstance(one, ast.Call) and BY_NAME.search(dotted(one.func).rpartition(".")[2]):
            return True
        if isinstance(one, ast.AugAssign):
            return inner is one.target and isinstance(one.op, SIZED)
        if isinstance(one, ast.BinOp) and isinstance(one.op, SIZED):
            outer = next(iter(script.around(one)))
            return not (isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Add | ast.Sub))
        if isinstance(one, ast.stmt) or isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add):
            return False
        inner = one
    return False
