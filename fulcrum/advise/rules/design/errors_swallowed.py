"""Rule: errors of single samples are swallowed."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted

READERS = (
    "__getitem__",
    "__iter__",
    "collate",
    "collate_fn",
    "load_sample",
    "decode",
    "preprocess",
    "read_sample",
    "load_image",
)
HANDLERS = ("ignore_and_continue", "warn_and_continue")
COUNTS = ("+= 1", "append", "quarantine", "Counter", ".inc(", "raise", ".add(")


class ErrorsSwallowed(AuditRule):
    id = "errors-swallowed"
    family = "design"
    gain = 0.1
    effort = "edit"
    why = "the batch shrinks or repeats silently: how many pictures were trained on, and which, nobody knows"
    size = "a ledger that is wrong by as many samples as failed"
    source = "docs/published.md, A19"
    published = "A19"
    fix = (
        "count and name what fails, and stop above a share; or check the data once before: fulcrum data import --bad "
        "quarantine"
    )

    def in_script(self, script: Script) -> Sightings:
        for node in script.nodes:
            if isinstance(node, ast.ExceptHandler) and _reads(script, node) and _silent(node):
                what = ast.unparse(node.type) if node.type else "everything"
                yield Sighting(script.at(node), f"`except {what}` passes over a sample without counting it")
            elif (
                isinstance(node, ast.Name | ast.Attribute)
                and dotted(node).rpartition(".")[2] in HANDLERS
                and isinstance(node.ctx, ast.Load)
            ):
                yield Sighting(script.at(node), f"{dotted(node)} goes on after any error")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(
            r"(data|dataset|loader|shard|reader)\w*.*(on_error|handler|skip_errors|ignore_errors|skip_bad\w*|ignore_bad\w*)$"
        ):
            if entry.on or entry.text.rpartition(".")[2] in ("skip", "ignore", "continue", *HANDLERS):
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")


def _reads(script: Script, node: ast.AST) -> bool:
    home = script.function(node)
    return home is not None and (home.name in READERS or "collate" in home.name)


def _silent(node: ast.ExceptHandler) -> bool:
    """Broad, it gives the sample up (returns or goes on), and it neither raises nor counts. `pass` before another try of
    the same sample is none."""
    broad = node.type is None or dotted(node.type) in ("Exception", "BaseException", "OSError", "IOError")
    gives_up = any(isinstance(part, ast.Return | ast.Continue) for one in node.body for part in ast.walk(one))
    text = " ".join(ast.unparse(one) for one in node.body)
    return broad and gives_up and not any(sign in text for sign in COUNTS)
