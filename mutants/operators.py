"""Every small change that is made to a file of the package, one at a time: an operator, a number, a
word, a statement.

Left alone are annotations, messages of errors, `assert` (for the type checker here) and text: a
changed letter tells nothing about a promise.
"""

import ast
import re
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
COMPUTED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: (r"\*\*", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
WORDS = {
    "min": "max",
    "max": "min",
    "all": "any",
    "any": "all",
    "minimum": "maximum",
    "maximum": "minimum",
    "sin": "cos",
    "cos": "sin",
    "floor": "ceil",
    "ceil": "floor",
    "mean": "sum",
}


TYPES = ("Annotated", "Literal", "dict", "list", "tuple", "Mapping")


class TextChange(NamedTuple):
    """One mutant of one file."""

    line: int
    column: int
    begin: int  # offsets in the text
    end: int
    before: str
    after: str
    lines: tuple[int, int]  # of the statement in which it stands, or of its head
    inside: bool  # a function; else it acts when the module is imported

    def applied(self, text: str) -> str:
        assert text[self.begin : self.end] == self.before
        return text[: self.begin] + self.after + text[self.end :]


def changes_of(text: str) -> list[TextChange]:
    """All changes of a file, in the order of their places; each gives a text that still
    compiles."""
    changes = sorted(set(_Finder(text).changes), key=lambda one: (one.begin, one.end, one.after))
    return [one for one in changes if _compiles(one.applied(text))]


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Finder(ast.NodeVisitor):
    def __init__(self, text: str) -> None:
        self.text, self.starts, self.changes = text, [0], list[TextChange]()
        for line in text.split("\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.bytes = [line.encode() for line in text.split("\n")]
        self.lines, self.depth = (1, 1), 0
        self.visit(ast.parse(text))

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.bytes[line - 1][:column].decode())

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(
            node.end_lineno, node.end_col_offset
        )

    def add(self, begin: int, end: int, after: str) -> None:
        line = self.text.count("\n", 0, begin) + 1
        column, before = begin - self.starts[line - 1], self.text[begin:end]
        self.changes.append(
            TextChange(line, column, begin, end, before, after, self.lines, self.depth > 0)
        )

    def between(self, left: ast.expr, right: ast.expr, pattern: str, after: str) -> None:
        begin, end = self.span(left)[1], self.span(right)[0]
        found = re.search(pattern, self.text[begin:end])
        if found:
            self.add(begin + found.start(), begin + found.end(), after)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            end = node.body[0].lineno - 1 if getattr(node, "body", None) else node.end_lineno  # type: ignore[attr-defined]
            self.lines = node.lineno, max(node.lineno, end or node.lineno)
        super().visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Children in order; after each statement inside another the lines are those of that other
        again."""
        for child in ast.iter_child_nodes(node):
            before = self.lines
            self.visit(child)
            self.lines = before

    # What is left alone
    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Import(self, node: ast.Import) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Types as Annotated[...] and dict[...]() are no values."""
        if not (isinstance(node.value, ast.Name) and node.value.id in TYPES):
            self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        depth, self.depth = self.depth, 0
        for statement in node.body:
            self.visit(statement)
        self.depth = depth

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for value in (
            *node.args.defaults,
            *(one for one in node.args.kw_defaults if one is not None),
        ):
            self.visit(value)
        self.depth += 1
        for statement in node.body:
            self.visit(statement)
        self.depth -= 1

    # What is changed
    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(*self.span(node), "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add(*self.span(node), "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        begin, end = self.span(node.test)
        if "TYPE_CHECKING" not in self.text[begin:end]:
            (
                self.add(begin, begin, "not ")
                if not isinstance(node.test, ast.BoolOp | ast.NamedExpr | ast.IfExp)
                else None
            )
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            pattern, after = COMPARED[type(operator)]
            self.between(left, right, rf"\b{pattern}\b" if pattern[0].isalpha() else pattern, after)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = isinstance(node.left, ast.JoinedStr) or isinstance(
            getattr(node.left, "value", None), str | bytes
        )
        if type(node.op) in COMPUTED and not text:
            self.between(node.left, node.right, *COMPUTED[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in COMPUTED:
            begin, end = self.span(node.target)[1], self.span(node.value)[0]
            pattern, after = COMPUTED[type(node.op)]
            found = re.search(pattern + "=", self.text[begin:end])
            if found:
                self.add(begin + found.start(), begin + found.end(), after + "=")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub | ast.Not):
            self.add(self.span(node)[0], self.span(node.operand)[0], "")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(left, right, rf"\b{word}\b", other)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add(*self.span(node), str(not value))
        elif isinstance(value, int):
            self.add(*self.span(node), str(value + 1))
        elif isinstance(value, float):
            self.add(*self.span(node), repr(value * 2 if value else 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name in WORDS:
            end = self.span(node.func)[1]
            self.add(end - len(name), end, WORDS[name])
        for keyword in node.keywords:
            if keyword.arg is not None and isinstance(keyword.value, ast.Constant):
                begin, end = self.span(keyword)
                tail = re.match(r"\s*,", self.text[end:])
                self.add(begin, end + (tail.end() if tail else 0), "")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.add(*self.span(node), "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(*self.span(node), "break")
