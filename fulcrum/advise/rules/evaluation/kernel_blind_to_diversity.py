"""Rule: a kernel distance whose kernel is nearly straight."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, keyword, number

WIDEST = 3.0  # features of length one are at most 2 apart
NAME = re.compile(r"(?i)^_?(sigma|bandwidth|bw|kernel_width)$")


class KernelBlindToDiversity(AuditRule):
    id = "kernel-blind-to-diversity"
    family = "evaluation"
    gain = 0.3
    why = (
        "on features of length one a Gaussian of width 10 is a straight line: the value is ten times the squared "
        "distance of the means, and hardly sees lost diversity"
    )
    size = "the published CMMD and DINO-MMD are such distances, to about 1 %"
    source = "docs/published.md, A14"
    published = "A14"
    fix = "take the median distance of the reference's features as the width, or several widths, or KID's polynomial kernel"

    def in_script(self, script: Script) -> Sightings:
        if not script.mentions(r"mmd"):
            return
        unit = script.mentions(r"^normalize$") or script.mentions(r"^norm$|linalg") or script.mentions(r"cmmd|clip|dino")
        for name, values in script.assignments.items():
            for value in values:
                width = number(value)
                if NAME.match(name.rpartition(".")[2]) and width is not None and width >= WIDEST and unit:
                    yield Sighting(script.at(value), f"{name} = {width:g} on features of length one")
        for call in script.calls:
            width = number(keyword(call, "sigma", "bandwidth"))
            if width is not None and width >= WIDEST and "mmd" in dotted(call.func).lower() and unit:
                yield Sighting(
                    script.at(call), f"{dotted(call.func)} has a kernel of width {width:g} on features of length one"
                )
        for node in script.nodes:
            if isinstance(node, ast.FunctionDef) and "mmd" in node.name.lower() and unit:
                for argument, default in zip(reversed(node.args.args), reversed(node.args.defaults), strict=False):
                    width = number(default)
                    if NAME.match(argument.arg) and width is not None and width >= WIDEST:
                        yield Sighting(
                            script.at(default), f"{node.name} has {argument.arg}={width:g} on features of length one"
                        )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"mmd.*(sigma|bandwidth|kernel_width)$"):
            if entry.number is not None and entry.number >= WIDEST:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {entry.leaf} to the median distance of the reference's features",
                )
