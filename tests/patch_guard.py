"""A patch of a module of the package must have a reader: a patch that nobody reads proves nothing.

`monkeypatch.setattr(module, "NAME", value)` changes only code that looks `NAME` up in that module
after the patch: a function of the module itself, or code elsewhere that reads `module.NAME` or
imports it, inside a function or where a script begins. When code moves, a patch can lose its
reader, and its test would pass silently. Scripts that tests start assign to modules directly:
`written_patches` finds these in the source.
"""

import ast
import inspect
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dis import get_instructions
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from types import CodeType, ModuleType
from typing import Any

import pytest

PACKAGE = "fulcrum"
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def install_guard() -> None:
    """Check every `setattr` of every MonkeyPatch from now on."""
    plain = pytest.MonkeyPatch.setattr

    def setattr_checked(
        self: pytest.MonkeyPatch, target: Any, name: Any, *value: Any, **options: Any
    ) -> None:
        if isinstance(target, str):
            require_reader(*resolved(target))
        else:
            require_reader(target, name)
        plain(self, target, name, *value, **options)

    pytest.MonkeyPatch.setattr = setattr_checked  # type: ignore[method-assign,assignment]


def resolved(dotted: str) -> tuple[object, str]:
    """Split a dotted target into the object that is patched and the name of its attribute."""
    path, _, name = dotted.rpartition(".")
    parts = path.split(".")
    owner: Any = import_module(parts[0])
    for depth, part in enumerate(parts[1:], start=2):
        if not hasattr(owner, part):
            import_module(".".join(parts[:depth]))
        owner = getattr(owner, part)
    return owner, name


def require_reader(target: object, name: str) -> None:
    """Raise an AssertionError if `target` is a module of the package and no code reads the patched
    name."""
    if not isinstance(target, ModuleType) or target.__name__.split(".")[0] != PACKAGE:
        return
    module = target.__name__
    if name in names_read_in(module) or is_read_elsewhere(module, name):
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "a fixture")
    raise AssertionError(
        f"{test}: the patch of {module}.{name} has no effect: no function of {module} reads the "
        f"global name {name}, and no other module reads it there. Patch the module that reads it."
    )


@cache
def names_read_in(module: str) -> frozenset[str]:
    """Return the global names that functions of a module read when they are called."""
    spec = find_spec(module)
    code = spec.loader.get_code(module) if spec and spec.loader else None  # type: ignore[attr-defined]
    return frozenset(globals_of(code, called_later=False)) if code else frozenset()


def globals_of(code: CodeType, *, called_later: bool) -> Iterator[str]:
    """Yield the globals that are read after import: bodies of modules and classes have run by
    then."""
    if called_later:
        for one in get_instructions(code):
            if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield one.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            is_function = bool(inner.co_flags & inspect.CO_OPTIMIZED)
            is_comprehension = inner.co_name.startswith("<") and inner.co_name != "<lambda>"
            later = called_later or (is_function and not is_comprehension)
            yield from globals_of(inner, called_later=later)


@cache
def is_read_elsewhere(module: str, name: str) -> bool:
    """Return whether code of another module looks the name up in this one when it is called."""
    root = Path(import_module(PACKAGE).__path__[0])
    texts = (path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    return any(reads_attribute(ast.parse(text), module, name) for text in texts if name in text)


def reads_attribute(tree: ast.AST, module: str, name: str) -> bool:
    """Return whether a source imports `name` from `module` inside a function, or reads
    `module.name`."""
    parent, _, own = module.rpartition(".")
    aliases = {module}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {one.asname for one in node.names if one.name == module and one.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == parent:
            aliases |= {one.asname or one.name for one in node.names if one.name == own}
    functions = [
        node for node in ast.walk(tree) if isinstance(node, FUNCTION) or begins_script(node)
    ]
    inner = [node for function in functions for node in ast.walk(function)]
    imported = any(
        isinstance(node, ast.ImportFrom)
        and node.module == module
        and any(one.name == name for one in node.names)
        for node in inner
    )
    return imported or any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value) in aliases
        for node in inner
    )


def written_patches(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield module and name of every patch of the package that a source spells out, also of scripts
    in its strings."""
    modules = imported_modules(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if module := modules.get(ast.unparse(node.value)):
                yield module, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            match node.args:
                case [target, ast.Constant(value=str(name)), *_] if ast.unparse(target) in modules:
                    yield modules[ast.unparse(target)], name
        elif isinstance(node, ast.Constant) and holds_import(node.value):
            with suppress(SyntaxError):  # prose that looks like an import
                yield from written_patches(ast.parse(dedent(node.value)))


def holds_import(value: object) -> bool:
    return isinstance(value, str) and bool(re.search(rf"\b(import|from) {PACKAGE}\b", value))


def imported_modules(tree: ast.AST) -> dict[str, str]:
    """Return the modules of the package that a source imports, by the names it gives them."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            names = {one.asname or one.name: one.name for one in node.names}
        else:
            continue
        found |= {name: module for name, module in names.items() if is_own_module(module)}
    return found


def begins_script(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


@cache
def is_own_module(dotted: str) -> bool:
    if dotted.split(".")[0] != PACKAGE:
        return False
    place = Path(import_module(PACKAGE).__path__[0]).parent.joinpath(*dotted.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()
