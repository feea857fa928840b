"""Rule: a setting that nothing reads."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import LABELS
from fulcrum.advise.subjects.python_script import Script, dotted, keyword
from fulcrum.advise.subjects.training_project import TrainingProject

SINKS = (
    "vars",
    "print",
    "repr",
    "str",
    "dict",
    "asdict",
    "dumps",
    "dump",
    "info",
    "pprint",
    "init_trackers",
    "init",
    "update",
    "safe_dump",
    "len",
    "getattr",
    "hasattr",
    "setattr",
    "Namespace",
)


class SettingReadByNobody(AuditRule):
    id = "setting-read-by-nobody"
    family = "design"
    severity = "error"
    also = "warning of an option that one script declares and does not read"
    gain = 0.8
    why = "an arm that sets what nobody reads is the baseline, and its 'effect' is the noise between two equal runs"
    size = "the published BF16 arm is such"
    source = "docs/published.md, A10"
    published = "A10"
    fix = "read the setting, or remove it; refuse unknown names when a configuration is loaded"

    def in_script(self, script: Script) -> Sightings:
        """Options that are declared and never read, where the script alone can know."""
        holder = _holder(script)
        if not holder or _leaves(script, holder):
            return
        read = {node.attr for node in script.nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
        texts = {node.value for node in script.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        flags = {flag for option in script.options for flag in (option.name, f"--{option.name}")}
        for option in script.options:
            used_as_text = any(option.name in text and text not in flags and not re.search(r"\s", text) for text in texts)
            if option.name not in read and not used_as_text and not is_help(option.node):
                yield Sighting(
                    script.at(option.node),
                    f"--{option.name} is declared, and nothing reads {holder}.{option.name}",
                    severity="warning",
                )

    def in_project(self, project: TrainingProject) -> Sightings:
        """What an arm changes, and no script of the project ever names."""
        if not project.scripts:
            return
        known = {word for script in project.scripts for word in script.words}
        known |= {
            part.lower()
            for script in project.scripts
            for node in script.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            for part in re.split(r"[^\w]+", node.value)
        }
        whole = any(_passes_whole(script) for script in project.scripts)
        handed = {path for script in project.scripts for path in _read_paths(script)} if not whole else set()
        for family in project.families if not whole else ():
            for arm in family.arms:
                for change in arm.changes:
                    leaf = change.path.rpartition(".")[2]
                    parts = change.path.split(".")
                    above = {".".join(parts[first:last]) for last in range(len(parts)) for first in range(last)}
                    if leaf not in known and not LABELS.search(change.path) and not leaf.isdigit() and not above & handed:
                        yield Sighting(
                            arm.at(change.path),
                            f"the arm sets {change.path} = {change.after!r}, and no script names '{leaf}'",
                        )


def is_help(call: ast.Call) -> bool:
    return isinstance(action := keyword(call, "action"), ast.Constant) and action.value in ("version", "help")


def _holder(script: Script) -> str:
    """The name that the options are kept under: args."""
    parsers = {"parse_args", "parse_known_args"}
    parsers |= {  # a function of the script that returns them, whatever it is called
        home.name
        for node in script.nodes
        if isinstance(node, ast.Return) and _parsed(node.value, parsers) and (home := script.function(node)) is not None
    }
    return next((name for name, values in script.assignments.items() if any(_parsed(one, parsers) for one in values)), "")


def _parsed(value: ast.AST | None, parsers: set[str]) -> bool:
    return isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] in parsers


def _leaves(script: Script, holder: str) -> bool:
    """Are the options handed to code that is not in this file, by a call or by a return?"""
    own = {node.name for node in script.nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    called = {dotted(call.func) for call in script.calls}
    for node in script.nodes:
        if isinstance(node, ast.Return) and node.value is not None and holder in ast.unparse(node.value).split("."):
            home = script.function(node)
            if home is None or home.name not in called:
                return True
    for call in script.calls:
        end = dotted(call.func).rpartition(".")[2]
        given = [*call.args, *(one.value for one in call.keywords)]
        handed = any(isinstance(one, ast.Name) and one.id in (holder, "args") for one in given)
        spread = any(one.arg is None and "vars(" in ast.unparse(one.value) for one in call.keywords)
        if spread or (handed and end not in own and end not in SINKS):
            return True
    return False


def _passes_whole(script: Script) -> bool:
    """Does it spread a whole table into calls (`**config`), or hand it to a framework? Then names may be read elsewhere.
    A part of it (`instantiate(config.model)`) is that part alone."""
    spread = [one.value for call in script.calls for one in call.keywords if one.arg is None]
    given = [one for call in script.named("instantiate") for one in call.args[:1]]
    return any(not isinstance(one, ast.Attribute | ast.Subscript) for one in (*spread, *given))


def _read_paths(script: Script) -> set[str]:
    """Parts of a configuration that are taken whole, with all that is below them: `config.model`, `config["eval"]`."""
    paths = set[str]()
    for node in script.nodes:
        outer = next(script.around(node), None)
        if isinstance(outer, ast.Attribute | ast.Subscript) and node is outer.value:
            continue  # only a part of it is taken
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            parts = dotted(node).lower().split(".")
            paths |= {".".join(parts[first:]) for first in range(1, len(parts))}
        key = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(node, ast.Call) and dotted(node.func).endswith(".get") and node.args:
            key = node.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            paths.add(key.value.lower())
    return paths
