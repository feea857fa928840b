"""How many tokens of a text reach the model: limits that a script or configuration states, in training and in judging."""

import ast
import re
from typing import NamedTuple

from fulcrum.advise.subjects.config_file import ConfigFile, Entry
from fulcrum.advise.subjects.python_script import Script, dotted, number

# Parts of a path, or of a function's name, that say: here pictures are drawn to be looked at.
JUDGED = re.compile(
    r"(?i)(^|[._ ])(eval\w*|val|valid[a-z]*|previews?|samples?|sampling|test|infer[a-z]*|generat[a-z]*|prompts)($|[._ ])"
)
DRAWS = re.compile(r"(^|[._ ])(eval[a-z]*|val|valid[a-z]*|previews?|infer[a-z]*)($|[._ ])")
# A limit says so in its own name (`max_text_tokens`, `t5_max_length`), or plainly below something that reads text.
NAMES_TEXT = re.compile(r"(text|token|caption|prompt|seq|t5|context)\w*_?(len|length|limit)$|max\w*_?tokens?$")
PLAIN = re.compile(r"^(max_?)?(len|length|tokens)$")
READS_TEXT = re.compile(r"text|t5|caption|prompt|tokeni[sz]er|valid|eval|preview|sampl")
OTHER = re.compile(r"image|img|visual|latent|frame|video|total|num_|per_|batch|new_|min_|stat|hist|measured")
SIDE = re.compile(r"^(train|training|eval|val|valid|validation|test|sample|sampling|preview|inference)_")


class TextLimit(NamedTuple):
    """A number of tokens, what it is a limit of, and where it stands."""

    reader: str  # limits of one reader can be compared
    tokens: float
    judged: bool  # does it hold where pictures are drawn and judged, not where they are trained on?
    place: str
    seen: str


def limits_in_config(config: ConfigFile) -> list[TextLimit]:
    return [
        TextLimit(
            SIDE.sub("", entry.leaf),
            entry.number,
            bool(JUDGED.search(entry.path.rpartition(".")[0]) or JUDGED.match(entry.leaf.partition("_")[0])),
            config.at(entry),
            f"{entry.path} = {entry.value}",
        )
        for entry in config.entries
        if entry.number is not None and entry.number >= 8 and _is_limit(entry)
    ]


def _is_limit(entry: Entry) -> bool:
    if OTHER.search(entry.path):
        return False
    folder = entry.path.rpartition(".")[0]
    return bool(NAMES_TEXT.search(entry.leaf) or (PLAIN.search(entry.leaf) and READS_TEXT.search(folder)))


def limits_in_script(script: Script) -> list[TextLimit]:
    """Arguments `max_sequence_length` of pipelines and encoders, and `max_length` of calls of the same tokenizer."""
    limits = []
    for call in script.calls:
        name = dotted(call.func).rpartition(".")[2]
        for argument in call.keywords:
            reads = argument.arg == "max_length" and re.match(r"(?i)tok(eni[sz]er)?(_|\d|$)", name)
            if not (reads or argument.arg == "max_sequence_length"):
                continue
            tokens = constant_of(script, argument.value)
            if tokens is not None:
                limits.append(
                    TextLimit(
                        name if reads else "max_sequence_length",
                        tokens,
                        _draws(script, call),
                        script.at(argument.value),
                        f"{name}({argument.arg}={ast.unparse(argument.value)})",
                    )
                )
    return limits


def constant_of(script: Script, node: ast.AST) -> float | None:
    """A number that stands there, that a name was given once, or that an option has by default."""
    own = number(node)
    if own is not None or not isinstance(node, ast.Name | ast.Attribute):
        return own
    given = script.assignments.get(dotted(node), [])
    if len(given) == 1:
        return number(given[0])
    options = [one for one in script.options if isinstance(node, ast.Attribute) and one.name == node.attr]
    defaults = [one.default for one in options]
    return float(defaults[0]) if len(defaults) == 1 and type(defaults[0]) in (int, float) else None


def _draws(script: Script, call: ast.Call) -> bool:
    """Does it draw pictures: `pipe(...).images`, or within a function that says so?"""
    parent = next(script.around(call), None)
    pictures = isinstance(parent, ast.Attribute) and parent.attr == "images"
    return pictures or bool(DRAWS.search(script.context(call)))
