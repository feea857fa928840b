"""A foreign training script as facts: parsed, never run. Names are followed through plain assignments, no further."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.advise.subjects.plain_number import as_float
from fulcrum.files.paths import read_regular
from fulcrum.spec.errors import BadInput

MOST = 4_000_000  # bytes of a script
DEPTH = 6  # assignments that are followed one behind the other
OPTIMIZERS = re.compile(
    r"(?i)^(fused)?_?(paged)?(adam|adamw|sgd|muon|lion|adafactor|prodigy|lamb|rmsprop|shampoo|soap|nadam|radam)\w*$"
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
    """`torch.nn.Linear`, `Generator().manual_seed`, `batch[]`: how a name is reached, arguments left out."""
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


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of the first of these keyword arguments."""
    return next((one.value for one in call.keywords if one.arg in names), None)


def is_constant(node: ast.AST | None, *values: Any) -> bool:
    return isinstance(node, ast.Constant) and any(
        node.value is value or (node.value == value and type(node.value) is type(value)) for value in values
    )


def number(node: ast.AST | None) -> float | None:
    """A number that stands there, a sign before it included."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    value = node.value if isinstance(node, ast.Constant) else None
    return as_float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


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
            raise BadInput(f"{path} cannot be parsed: {error.msg} (line {error.lineno})", "is it Python 3?") from None
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
        names = (
            getattr(node, "id", getattr(node, "attr", getattr(node, "arg", getattr(node, "name", None))))
            for node in self.nodes
        )
        return {name.lower() for name in names if isinstance(name, str)}

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
        return next((one for one in self.around(node) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)), None)

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
        """Names of the functions and classes that the node stands in, and of what it is assigned to."""
        names = [
            one.name for one in self.around(node) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
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
            elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
                _assign(values, node.target, node.value)
        return values

    def meanings(self, node: ast.AST, depth: int = DEPTH) -> Iterator[ast.AST]:
        """The expression's parts, and those of what the names in it were assigned, some steps back."""
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
        """Number formats that an expression may name: torch.bfloat16, "bf16", a variable that holds one."""
        if node is None or depth < 0:
            return frozenset()
        if isinstance(node, ast.Constant):
            return frozenset({FORMATS[node.value]} if isinstance(node.value, str) and node.value in FORMATS else ())
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
        """The formats of `x.to(bf16)`, `x.bfloat16()`, `Net.from_pretrained(..., torch_dtype=bf16)`; none of others."""
        end = call.func.attr if isinstance(call.func, ast.Attribute) else dotted(call.func)
        if end in ("bfloat16", "half", "byte") and not call.args:
            return frozenset({FORMATS[end]})
        if end in ("to", "type", "astype"):
            return frozenset().union(*(self.formats(one) for one in (*call.args, keyword(call, "dtype"))))
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
            end = dotted(call.func).rpartition(".")[2]
            if OPTIMIZERS.match(end) and end[:1].isupper() or end in ("optimizer_class", "optimizer_cls"):
                made.append(call)
        return made

    @cached_property
    def trained(self) -> set[tuple[str, ast.AST | None]]:
        """Modules whose parameters are handed to an optimizer: their name, and the function in which that is done."""
        names = set[tuple[str, ast.AST | None]]()
        for call in self.optimizers:
            for argument in (*call.args[:1], *(one.value for one in call.keywords if one.arg in ("params", "model"))):
                for part in self.meanings(argument):
                    if isinstance(part, ast.Call) and _ends(dotted(part.func), ("parameters", "named_parameters")):
                        names.add((dotted(part.func).rpartition(".")[0], self.function(call)))
        return names

    def is_trained(self, name: str, node: ast.AST) -> bool:
        """Is it, or a part of it, handed to an optimizer in the same function? What is global, or an attribute, is one
        everywhere; `unet = pipe.unet` is a part of `pipe`; a part that is cast up again is not what it was."""
        home = self.function(node)
        return any(
            (home is where or home is None or where is None or "." in name)
            and any(one == name or one.startswith(f"{name}.") and not names & self.raised for one in names)
            for own, where in self.trained
            for names in [{own, *(dotted(value) for value in self.assignments.get(own, ()))}]
        )

    @cached_property
    def raised(self) -> set[str]:
        """Names that are cast to fp32 by a method on them."""
        methods = [(call, dotted(call.func).rpartition(".")) for call in self.calls if isinstance(call.func, ast.Attribute)]
        return {base for call, (base, _, end) in methods if end == "float" or self.cast_formats(call) == {"fp32"}}

    @cached_property
    def options(self) -> list[Option]:
        """Options that argparse is told of, with their defaults."""
        options = []
        for call in self.named("add_argument"):
            flags = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            long = [flag for flag in flags if flag.startswith("--")]
            target = keyword(call, "dest")
            name = target.value if isinstance(target, ast.Constant) else (long or [""])[0].lstrip("-").replace("-", "_")
            default = keyword(call, "default")
            if name:
                options.append(Option(str(name), default.value if isinstance(default, ast.Constant) else None, call))
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
        raise BadInput(f"{path} cannot be read: {error.strerror}", "expected a Python file") from None
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
