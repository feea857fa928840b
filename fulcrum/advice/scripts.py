"""Training scripts as facts: parsed, never run."""

import ast
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.advice.configs import (
    SUFFIXES,
    ConfigFamily,
    ConfigFile,
    Entry,
    Inherited,
    as_float,
    family_of,
    read_config,
)
from fulcrum.files.paths import read_regular
from fulcrum.spec.errors import BadInput
from fulcrum.spec.progress import Tally

# --------------------------------------------------------------------------------------------------
# A foreign training script as facts: parsed, never run. Names are followed through plain
# assignments, no further.


MOST = 4_000_000  # bytes of a script
DEPTH = 6  # assignments that are followed one behind the other
OPTIMIZERS = re.compile(
    r"(?i)^(fused)?_?(paged)?(adam|adamw|sgd|muon|lion|adafactor|prodigy|lamb|rmsprop|shampoo|soap|"
    r"nadam|radam)\w*$"
)
FORMATS = {
    **dict.fromkeys(("bfloat16", "bf16"), "bf16"),
    **dict.fromkeys(("float16", "half", "fp16"), "fp16"),
    **dict.fromkeys(("float32", "float", "fp32"), "fp32"),
    **dict.fromkeys(("uint8", "byte"), "uint8"),
}
LOW = {"bf16", "fp16"}


class CastOf(NamedTuple):
    """A module or tensor that is given another number format."""

    name: str
    formats: frozenset[str]  # that it may get
    node: ast.Call


class Option(NamedTuple):
    """A command-line option that the script declares."""

    name: str
    default: Any
    node: ast.Call


def dotted(node: ast.AST) -> str:
    """`torch.nn.Linear`, `Generator().manual_seed`, `batch[]`: how a name is reached, arguments
    left out."""
    parts = list[str]()  # from the end; chains may be longer than Python's stack is deep
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            part, node = f".{node.attr}", node.value
        elif isinstance(node, ast.Call):
            part, node = "()", node.func
        elif isinstance(node, ast.Subscript):
            part, node = "[]", node.value
        else:
            return "".join(reversed(parts))
        parts.append(part)
    return "".join([node.id, *reversed(parts)])


def called(call: ast.Call) -> str:
    """The last part of the name that is called: `step` of `scaler.step(optimizer)`."""
    return dotted(call.func).rpartition(".")[2]


def arguments(call: ast.Call) -> list[ast.expr]:
    """Positional ones and keyword ones."""
    return [*call.args, *(one.value for one in call.keywords)]


def text_of(node: ast.AST | None) -> str | None:
    """A text that stands there."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def name_of(node: ast.AST) -> str | None:
    """What a name, attribute, argument, function or class is called."""
    names = (getattr(node, field, None) for field in ("id", "attr", "arg", "name"))
    return next((name for name in names if isinstance(name, str)), None)


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of the first of these keyword arguments."""
    return next((one.value for one in call.keywords if one.arg in names), None)


def is_constant(node: ast.AST | None, *values: Any) -> bool:
    return isinstance(node, ast.Constant) and any(
        node.value is value or (node.value == value and type(node.value) is type(value))
        for value in values
    )


def number(node: ast.AST | None) -> float | None:
    """A number that stands there, a sign before it included."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    value = node.value if isinstance(node, ast.Constant) else None
    return (
        as_float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    )


def source_of(node: ast.AST, most: int = 90) -> str:
    """The code, on one line, cut where it is long."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= most else text[: most - 1] + "…"


class Script:
    """One Python file."""

    def __init__(self, path: Path, source: str) -> None:
        self.path, self.source = path, source
        try:
            self.tree = ast.parse(source, filename=str(path))
        except SyntaxError as error:
            raise BadInput(
                f"{path} cannot be parsed: {error.msg} (line {error.lineno})", "is it Python 3?"
            ) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise BadInput(f"{path} cannot be parsed: {error}", "is it Python?") from None
        self.nodes: list[ast.AST] = []
        self._parents: dict[ast.AST, ast.AST] = {}
        waiting: list[ast.AST] = [self.tree]
        while waiting:  # in the order of the source
            node = waiting.pop()
            self.nodes.append(node)
            children = list(ast.iter_child_nodes(node))
            self._parents.update(dict.fromkeys(children, node))
            waiting += reversed(children)

    def at(self, node: ast.AST) -> str:
        return str(getattr(node, "lineno", 1))

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def words(self) -> set[str]:
        """Every name, attribute and argument, in lower case."""
        return {name.lower() for name in map(name_of, self.nodes) if name is not None}

    @cached_property
    def texts(self) -> list[str]:
        """Every text that stands in it."""
        return [text for text in map(text_of, self.nodes) if text is not None]

    def mentions(self, pattern: str) -> bool:
        """Does any name of the script match?"""
        return any(re.search(pattern, word) for word in self.words)

    def named(self, *ends: str) -> list[ast.Call]:
        """Calls whose name is one of these, or ends with it after a dot."""
        return [call for call in self.calls if _ends(dotted(call.func), ends)]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What the node stands in, innermost first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        return next(
            (
                one
                for one in self.around(node)
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            ),
            None,
        )

    def loops(self, node: ast.AST) -> list[ast.For | ast.While]:
        """Loops of the same function that the node stands in the body of."""
        within: list[ast.For | ast.While] = []
        inner = node
        for one in self.around(node):
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                break
            if isinstance(one, ast.While) or (isinstance(one, ast.For) and inner is not one.iter):
                within.append(one)
            inner = one
        return within

    def context(self, node: ast.AST) -> str:
        """Names of the functions and classes that the node stands in, and of what it is assigned
        to."""
        names = [
            one.name
            for one in self.around(node)
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        for one in self.around(node):
            if isinstance(one, ast.Assign):
                names += [dotted(target) for target in one.targets]
        return " ".join(names).lower()

    @cached_property
    def assignments(self) -> dict[str, list[ast.expr]]:
        """Everything that a plain name or attribute is ever assigned, in the order of the file."""
        values: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    _assign(values, target, node.value)
            elif (
                isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr)
                and node.value is not None
            ):
                _assign(values, node.target, node.value)
        return values

    def meanings(self, node: ast.AST, depth: int = DEPTH) -> Iterator[ast.AST]:
        """The expression's parts, and those of what the names in it were assigned, some steps
        back."""
        seen: set[str] = set()
        waiting: list[tuple[ast.AST, int]] = [(node, depth)]
        while waiting:
            one, left = waiting.pop()
            for part in ast.walk(one):
                yield part
                name = dotted(part) if isinstance(part, ast.Name | ast.Attribute) else ""
                if name and left and name not in seen:
                    seen.add(name)
                    waiting += [(value, left - 1) for value in self.assignments.get(name, ())]

    def formats(self, node: ast.AST | None, depth: int = 3) -> frozenset[str]:
        """Number formats that an expression may name: torch.bfloat16, "bf16", a variable that holds
        one."""
        if node is None or depth < 0:
            return frozenset()
        if isinstance(node, ast.Constant):
            return frozenset(
                {FORMATS[node.value]}
                if isinstance(node.value, str) and node.value in FORMATS
                else ()
            )
        if isinstance(node, ast.Attribute) and node.attr in FORMATS:
            return frozenset({FORMATS[node.attr]})
        parts: Sequence[ast.AST] = ()
        if isinstance(node, ast.Name | ast.Attribute):
            parts = self.assignments.get(dotted(node), ())
        elif isinstance(node, ast.IfExp):
            parts = (node.body, node.orelse)
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, ast.Subscript):
            parts = (node.value,)
        elif isinstance(node, ast.Dict):
            parts = node.values
        elif isinstance(node, ast.Call) and _ends(dotted(node.func), ("get", "getattr")):
            parts = (node.func.value,) if isinstance(node.func, ast.Attribute) else node.args[1:2]
        return frozenset().union(*(self.formats(part, depth - 1) for part in parts))

    def cast_formats(self, call: ast.Call) -> frozenset[str]:
        """The formats of `x.to(bf16)`, `x.bfloat16()`, `Net.from_pretrained(...,
        torch_dtype=bf16)`; none of others."""
        end = call.func.attr if isinstance(call.func, ast.Attribute) else dotted(call.func)
        if end in ("bfloat16", "half", "byte") and not call.args:
            return frozenset({FORMATS[end]})
        if end in ("to", "type", "astype"):
            return frozenset().union(
                *(self.formats(one) for one in (*call.args, keyword(call, "dtype")))
            )
        return (
            self.formats(keyword(call, "torch_dtype", "dtype"))
            if end.startswith("from_") or end[:1].isupper()
            else frozenset()
        )

    @cached_property
    def casts(self) -> list[CastOf]:
        """Names that are given a format: by a method on them, or where they are made."""
        casts = []
        for call in self.calls:
            formats = self.cast_formats(call)
            if not formats:
                continue
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            names = [dotted(base)] if isinstance(base, ast.Name | ast.Attribute) else []
            parent = self._chain_end(call)
            if isinstance(parent, ast.Assign):
                names += [dotted(target) for target in parent.targets]
            casts += [CastOf(name, formats, call) for name in dict.fromkeys(names) if name]
        return casts

    def _chain_end(self, call: ast.AST) -> ast.AST | None:
        """The statement that a chain of method calls ends in: `net = Net().to(bf16).train()`."""
        parent = self._parents.get(call)
        while isinstance(parent, ast.Attribute | ast.Call) and (
            not isinstance(parent, ast.Call) or parent.func in self._links(call)
        ):
            call, parent = parent, self._parents.get(parent)
        return parent

    def _links(self, call: ast.AST) -> tuple[ast.AST, ...]:
        return (call, self._parents[call]) if call in self._parents else (call,)

    @cached_property
    def optimizers(self) -> list[ast.Call]:
        """Calls that make an optimizer."""
        made = []
        for call in self.calls:
            end = called(call)
            if (
                OPTIMIZERS.match(end)
                and end[:1].isupper()
                or end in ("optimizer_class", "optimizer_cls")
            ):
                made.append(call)
        return made

    @cached_property
    def trained(self) -> set[tuple[str, ast.AST | None]]:
        """Modules whose parameters are handed to an optimizer: their name, and the function in
        which that is done."""
        names = set[tuple[str, ast.AST | None]]()
        for call in self.optimizers:
            for argument in (
                *call.args[:1],
                *(one.value for one in call.keywords if one.arg in ("params", "model")),
            ):
                for part in self.meanings(argument):
                    if isinstance(part, ast.Call) and _ends(
                        dotted(part.func), ("parameters", "named_parameters")
                    ):
                        names.add((dotted(part.func).rpartition(".")[0], self.function(call)))
        return names

    def is_trained(self, name: str, node: ast.AST) -> bool:
        """Is it, or a part of it, handed to an optimizer in the same function? What is global, or
        an attribute, is one everywhere; `unet = pipe.unet` is a part of `pipe`; a part that is cast
        up again is not what it was."""
        home = self.function(node)
        return any(
            (home is where or home is None or where is None or "." in name)
            and any(
                one == name or one.startswith(f"{name}.") and not names & self.raised
                for one in names
            )
            for own, where in self.trained
            for names in [{own, *(dotted(value) for value in self.assignments.get(own, ()))}]
        )

    @cached_property
    def raised(self) -> set[str]:
        """Names that are cast to fp32 by a method on them."""
        methods = [
            (call, dotted(call.func).rpartition("."))
            for call in self.calls
            if isinstance(call.func, ast.Attribute)
        ]
        return {
            base
            for call, (base, _, end) in methods
            if end == "float" or self.cast_formats(call) == {"fp32"}
        }

    @cached_property
    def options(self) -> list[Option]:
        """Options that argparse is told of, with their defaults."""
        options = []
        for call in self.named("add_argument"):
            flags = [text for text in map(text_of, call.args) if text is not None]
            long = [flag for flag in flags if flag.startswith("--")]
            target = keyword(call, "dest")
            name = (
                target.value
                if isinstance(target, ast.Constant)
                else (long or [""])[0].lstrip("-").replace("-", "_")
            )
            default = keyword(call, "default")
            if name:
                options.append(
                    Option(
                        str(name),
                        default.value if isinstance(default, ast.Constant) else None,
                        call,
                    )
                )
        return options

    @cached_property
    def trains(self) -> bool:
        """Is there a loop that goes backward and steps an optimizer?"""
        return bool(self.named("backward")) and bool(self.named("step"))


def read_script(path: Path) -> Script:
    try:
        data = read_regular(path, limit=MOST)
        return Script(path, data.decode("utf-8-sig"))
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}", "expected a Python file"
        ) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text in UTF-8", "save it with the encoding UTF-8") from None


def _ends(name: str, ends: Sequence[str]) -> bool:
    return any(name == end or name.endswith(f".{end}") for end in ends)


def _assign(values: dict[str, list[ast.expr]], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Tuple | ast.List):
        parts: Sequence[ast.expr] = value.elts if isinstance(value, ast.Tuple | ast.List) else ()
        if len(parts) == len(target.elts):
            for one, own in zip(target.elts, parts, strict=True):
                _assign(values, one, own)
        else:
            for one in target.elts:
                _assign(values, one, value)
    elif name := dotted(target):
        values.setdefault(name, []).append(value)


# --------------------------------------------------------------------------------------------------
# How many tokens of a text reach the model: limits that a script or configuration states, in
# training and in judging.


# Parts of a path, or of a function's name, that say: here pictures are drawn to be looked at.
JUDGED = re.compile(
    r"(?i)(^|[._"
    r" ])(eval\w*|val|valid[a-z]*|previews?|samples?|sampling|test|infer[a-z]*|generat[a-z]*|"
    r"prompts)($|[._ ])"
)
DRAWS = re.compile(r"(^|[._ ])(eval[a-z]*|val|valid[a-z]*|previews?|infer[a-z]*)($|[._ ])")
# A limit says so in its own name (`max_text_tokens`, `t5_max_length`), or plainly below something
# that reads text.
NAMES_TEXT = re.compile(
    r"(text|token|caption|prompt|seq|t5|context)\w*_?(len|length|limit)$|max\w*_?tokens?$"
)
PLAIN = re.compile(r"^(max_?)?(len|length|tokens)$")
READS_TEXT = re.compile(r"text|t5|caption|prompt|tokeni[sz]er|valid|eval|preview|sampl")
OTHER = re.compile(
    r"image|img|visual|latent|frame|video|total|num_|per_|batch|new_|min_|stat|hist|measured"
)
SIDE = re.compile(
    r"^(train|training|eval|val|valid|validation|test|sample|sampling|preview|inference)_"
)


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
            bool(
                JUDGED.search(entry.path.rpartition(".")[0])
                or JUDGED.match(entry.leaf.partition("_")[0])
            ),
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
    return bool(
        NAMES_TEXT.search(entry.leaf) or (PLAIN.search(entry.leaf) and READS_TEXT.search(folder))
    )


def limits_in_script(script: Script) -> list[TextLimit]:
    """Arguments `max_sequence_length` of pipelines and encoders, and `max_length` of calls of the
    same tokenizer."""
    limits = []
    for call in script.calls:
        name = called(call)
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
    options = [
        one for one in script.options if isinstance(node, ast.Attribute) and one.name == node.attr
    ]
    defaults = [one.default for one in options]
    return float(defaults[0]) if len(defaults) == 1 and type(defaults[0]) in (int, float) else None


def _draws(script: Script, call: ast.Call) -> bool:
    """Does it draw pictures: `pipe(...).images`, or within a function that says so?"""
    parent = next(script.around(call), None)
    pictures = isinstance(parent, ast.Attribute) and parent.attr == "images"
    return pictures or bool(DRAWS.search(script.context(call)))


# --------------------------------------------------------------------------------------------------
# An average of weights that a script keeps by hand: `ema[name].mul_(0.9999).add_(weight,
# alpha=0.0001)`.


AVERAGE = re.compile(r"(?i)(^|[^a-z])(ema|shadow|averaged?|avg)($|[^a-z])")
LOWEST = 0.5  # below it is no decay of an average of weights


def hand_made(script: Script) -> Iterator[tuple[ast.Call, float]]:
    """Updates of an average, with their decay where it stands there or has one name."""
    for call in script.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name not in ("mul_", "lerp_") or not call.args or not _is_average(script, call):
            continue
        given = constant_of(script, call.args[-1])
        if given is None and isinstance(call.args[-1], ast.BinOp):  # lerp_(weight, 1 - decay)
            left, right = (
                constant_of(script, one) for one in (call.args[-1].left, call.args[-1].right)
            )
            given = left - right if left is not None and right is not None else None
        decay = given if name == "mul_" or given is None else 1.0 - given
        if decay is not None and LOWEST < decay < 1.0:
            yield call, decay


def _is_average(script: Script, call: ast.Call) -> bool:
    """By its own name, or by what the loop around it takes it from: `for a, b in
    zip(ema.parameters(), ...)`."""
    base = call.func.value if isinstance(call.func, ast.Attribute) else call
    if AVERAGE.search(dotted(base)):
        return True
    own = dotted(base).partition(".")[0]
    for loop in script.loops(call):
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Tuple):
            continue
        names = [dotted(one) for one in loop.target.elts]
        sources = (
            loop.iter.args
            if isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "zip"
            else []
        )
        if own in names and len(sources) == len(names):
            return bool(AVERAGE.search(dotted(sources[names.index(own)])))
    return False


# --------------------------------------------------------------------------------------------------
# The loop of a script that goes backward and steps, and how many steps it makes, where the script
# says so.


Loop = ast.For | ast.While
STEPS = (
    "max_train_steps",
    "max_steps",
    "num_train_steps",
    "train_steps",
    "total_steps",
    "steps",
    "num_steps",
)
COUNTER = re.compile(r"(?i)(^|[._])(\w*step|\w*iter(ation)?)$")
ENDS = (ast.Break, ast.Return, ast.Raise)


class OptimizerStep(NamedTuple):
    """A step of an optimizer that the script makes itself, in a loop that goes backward too."""

    optimizer: str  # the name that it has
    call: ast.Call
    loop: Loop  # the innermost that both stand in


def optimizer_steps(script: Script) -> list[OptimizerStep]:
    made = {
        name
        for name, values in script.assignments.items()
        if any(value in script.optimizers for value in values)
    }
    steps = []
    for call in script.named("step"):
        name = dotted(call.func).rpartition(".")[0]
        # scaler.step(optimizer)
        if name not in made and call.args and dotted(call.args[0]) in made:
            name = dotted(call.args[0])
        within = script.loops(call)
        both = [
            loop
            for loop in within
            for back in script.named("backward")
            if loop in script.loops(back)
        ]
        if name in made and both:
            steps.append(OptimizerStep(name, call, both[0]))
    return steps


def trained_steps(script: Script) -> float | None:
    """How many: an option's default, the range of the loop that no other loop repeats, or a count
    at which it is left."""
    loops = {step.loop for step in optimizer_steps(script)}
    for loop in loops:
        if not script.loops(loop) and (bound := _range(script, loop)) is not None:
            return bound
        for outer in (loop, *script.loops(loop)):
            exits = [
                one
                for one in ast.walk(outer)
                if isinstance(one, ast.If) and any(isinstance(end, ENDS) for end in one.body)
            ]
            for one in exits:
                if (bound := _limit(script, one.test, (ast.Eq, ast.GtE, ast.Gt))) is not None:
                    return bound
            if (
                isinstance(outer, ast.While)
                and (bound := _limit(script, outer.test, (ast.Lt, ast.LtE))) is not None
            ):
                return bound
    declared = [
        one.default for one in script.options if one.name in STEPS and type(one.default) is int
    ]
    return float(declared[0]) if declared else None


def _range(script: Script, loop: Loop) -> float | None:
    """Of `for step in range(3000)`, with an enumerate or a progress bar around it."""
    for part in ast.walk(loop.iter) if isinstance(loop, ast.For) else ():
        if (
            isinstance(part, ast.Call)
            and dotted(part.func) in ("range", "trange")
            and len(part.args) == 1
        ):
            return constant_of(script, part.args[0])
    return None


def _limit(
    script: Script, test: ast.expr, comparisons: tuple[type[ast.cmpop], ...]
) -> float | None:
    """The number that a counter of steps is held against; other counters (of epochs without
    progress) are none."""
    if (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], comparisons)
        and COUNTER.search(dotted(test.left))
        and len(test.ops) == 1
    ):
        return constant_of(script, test.comparators[0])
    return None


# --------------------------------------------------------------------------------------------------
# Scripts and configurations that lie in one folder and belong together; what cannot be read is
# named, the rest is kept.


MOST_FILES = 2_000
SKIPPED = {"__pycache__", "node_modules", "site-packages", "wandb", "build", "dist"}
NOT_CONFIGS = {
    "package.json",
    "package-lock.json",
    "pyproject.toml",
    "tsconfig.json",
    "tokenizer.json",
    "vocab.json",
}


class Unread(NamedTuple):
    """A file that could not be looked at, and why."""

    path: Path
    why: str


class TrainingProject:
    def __init__(
        self, folder: Path, scripts: list[Script], configs: list[ConfigFile], unread: list[Unread]
    ) -> None:
        self.folder, self.scripts, self.configs, self.unread = folder, scripts, configs, unread

    @cached_property
    def inherited(self) -> Inherited:
        return Inherited(self.folder, self.configs)

    @cached_property
    def families(self) -> list[ConfigFamily]:
        """Comparisons: the configurations of each folder that has a baseline, in it or where they
        say."""
        folders: dict[Path, list[ConfigFile]] = {}
        for config in self.configs:
            folders.setdefault(config.path.parent, []).append(config)
        families = (family_of(configs, self.inherited) for configs in folders.values())
        return [family for family in families if family is not None]

    @property
    def orphans(self) -> int:
        """Files that inherit from one that is not here: they are held against nothing."""
        return sum(self.inherited.misses(config) for config in self.configs)


def project_files(folder: Path) -> list[Path]:
    """Scripts and configurations below a folder, sorted; hidden ones, links and what tools left
    behind are passed over."""
    files: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in SKIPPED
        )
        for name in sorted(names):
            path = Path(place) / name
            if (
                path.suffix.lower() in (".py", *SUFFIXES)
                and name not in NOT_CONFIGS
                and not name.startswith(".")
                and not path.is_symlink()
            ):
                files.append(path)
        if len(files) > MOST_FILES:
            raise BadInput(
                f"{folder} holds more than {MOST_FILES:,} scripts and configurations",
                "name a folder within it",
            )
    return files


def read_project(
    folder: Path, files: list[Path], say: Callable[[str], None] | None = None
) -> TrainingProject:
    scripts, configs, unread = list[Script](), list[ConfigFile](), list[Unread]()
    tally = Tally("read", len(files), say, "files")
    for number, path in enumerate(files):
        tally.tell(number)
        try:
            if path.suffix.lower() == ".py":
                scripts.append(read_script(path))
            else:
                configs.append(read_config(path))
        except BadInput as error:
            unread.append(
                Unread(path, f"{error.message} ({error.hint})" if error.hint else error.message)
            )
    return TrainingProject(folder, scripts, configs, unread)
