"""Rule: iREPA's spatial normalisation over the wrong axis, or with the wrong projector."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, keyword, number, source_of


class IrepaNormalisesFeatures(AuditRule):
    id = "irepa-normalises-features"
    family = "schedule"
    gain = 0.15
    why = (
        "iREPA takes the mean over tokens from the teacher's tokens, so that layout is left; a token's own mean over "
        "its features is about zero after a LayerNorm, and taking it away does nothing"
    )
    size = "the published 'iREPA got worse with DINOv3' is of this"
    source = "docs/published.md, A21"
    published = "A21"
    lever = "irepa"
    fix = "z = z - alpha * z.mean(dim=1, keepdim=True) for (B, N, D) tokens, and a 3x3 convolution as the projector"

    def in_script(self, script: Script) -> Sightings:
        for node in script.nodes:
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
                continue
            for call in ast.walk(node.right):
                if (
                    isinstance(call, ast.Call)
                    and dotted(call.func).endswith("mean")
                    and _own_axis(call)
                    and _speaks_of_irepa(script, node)
                ):
                    yield Sighting(script.at(node), f"{source_of(node)} takes each token's own mean away")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"irepa|spatial_norm"):
            if entry.text in ("feature", "features", "channel", "channels", "-1") and any(
                word in entry.leaf for word in ("norm", "axis", "dim", "mean", "over")
            ):
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}", f"set {config.setting(entry, 'tokens')}")
            if "proj" in entry.leaf and entry.text.startswith("att"):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}, where iREPA has a convolution",
                    f"set {config.setting(entry, 'conv')}",
                )


def _own_axis(call: ast.Call) -> bool:
    axis = keyword(call, "dim", "axis")
    given = axis if axis is not None else next(iter(call.args[-1:]), None)
    return number(given) in (-1.0, 2.0)


def _speaks_of_irepa(script: Script, node: ast.AST) -> bool:
    own = script.context(node)
    return any(word in own for word in ("irepa", "spatial")) or (
        script.mentions("irepa") and any(word in own for word in ("teacher", "align", "target", "norm"))
    )
