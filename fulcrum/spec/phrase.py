"""Phrases: "pocket + muon + tread(drop=0.5)" read into a recipe and levers; typed settings such as "optim.lr=2e-4"."""

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from fulcrum.spec.combine import Staged, apply
from fulcrum.spec.edit import explain, get, put_all
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.record import Filler, Record, seam_of
from fulcrum.spec.run import RunSpec
from fulcrum.spec.user_errors import home

LONGEST = 2000  # characters of a phrase or a value
DEEPEST = 200  # expressions inside each other: a sum of levers is as deep as it is long
UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


class Catalogue(NamedTuple):
    """All that a phrase may name. It is handed over: nothing registers itself."""

    recipes: Mapping[str, Callable[[], RunSpec]]
    levers: Mapping[str, type[Any]]  # name -> lever class
    fillers: tuple[type[Filler], ...]
    bundles: Mapping[str, type[Any]] = {}  # name -> bundle class: several levers under one name

    def recipe(self, name: str) -> RunSpec:
        """The run that a recipe returns; a person's own may be marked `-> RunSpec` and return something else."""
        if name not in self.recipes:
            raise BadInput(f"no recipe is called '{name}'", nearest(name, self.recipes))
        run: object = self.recipes[name]()
        if not isinstance(run, RunSpec):
            raise BadInput(
                f"the recipe '{name}'{home(self.recipes[name])} gave {type(run).__name__}, not a run",
                "return a RunSpec, such as fulcrum.phrase(...) gives: see docs/write-a-lever.md",
            )
        return run


class Phrase(NamedTuple):
    recipe: str
    levers: tuple[Any, ...]
    base: RunSpec
    run: RunSpec

    def __str__(self) -> str:
        return " + ".join([self.recipe, *map(str, self.levers)])


def parse(text: str, catalogue: Catalogue, settings: Iterable[str] = ()) -> Phrase:
    """Read a phrase; refuse unknown names, wrong settings, doubled or conflicting levers before anything is built.

    `settings` change the recipe itself, so every arm of a study that shares them shares its baseline.
    """
    first, *rest = _terms(text)
    if not isinstance(first, ast.Name):
        raise BadInput(
            f"a phrase begins with a recipe, found '{ast.unparse(first)}'",
            f'levers are added with +, as in "spark + muon"; {_known("recipes", catalogue.recipes)}',
        )
    base = assign(catalogue.recipe(first.id), settings, catalogue)
    named = [_named_part(node, catalogue) for node in rest]
    levers = tuple(lever for one in named for lever in (one.parts() if type(one) in catalogue.bundles.values() else (one,)))
    run = apply(base, levers)
    for one in named:
        if type(one) in catalogue.bundles.values() and (problem := one.needs(run)):
            raise BadInput(f"'{one.name}' cannot be used here: {problem}")
    return Phrase(first.id, levers, base, run)


def read_lever(text: str, catalogue: Catalogue) -> Any:
    """The lever that one part of a phrase names, with its settings, put on no run yet."""
    return _lever(_read(text, "the lever", "write its name and settings, such as tread(drop=0.5)"), catalogue)


def _read(text: str, what: str, hint: str) -> ast.expr:
    """One expression, read and not run."""
    try:
        if len(text) > LONGEST:
            raise ValueError
        node = _parsed(text)
        if _nested_too_deep(node):  # what is read well may still be too deep to be written out in a message
            raise ValueError
        return node
    except UNREADABLE:
        raise BadInput(f"cannot read {what} '{text[:200]}'", hint) from None


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of "0.5in", which is refused in our words or is a path
        return ast.parse(text.strip(), mode="eval").body


def _nested_too_deep(node: ast.expr) -> bool:
    nodes: list[ast.AST] = [node]
    for _ in range(DEEPEST):
        nodes = [child for one in nodes for child in ast.iter_child_nodes(one)]
        if not nodes:
            return False
    return True


def _terms(text: str) -> list[ast.expr]:
    node = _read(text, "the phrase", 'write a recipe and levers, such as "pocket + muon + tread(drop=0.5)"')
    later: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        later.insert(0, node.right)
        node = node.left
    return [node, *later]


def _named_part(node: ast.expr, catalogue: Catalogue) -> Any:
    """The lever or the bundle that a part of a phrase names."""
    call = node.func if isinstance(node, ast.Call) else node
    if isinstance(call, ast.Name) and call.id in catalogue.bundles:
        return _make(catalogue.bundles[call.id], call.id, node)
    return _lever(node, catalogue)


def _lever(node: ast.expr, catalogue: Catalogue) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        bounds = _value(node.right)
        if not (
            isinstance(bounds, tuple)
            and len(bounds) == 2
            and all(type(end) in (int, float) for end in bounds)
            and 0 <= bounds[0] < bounds[1] <= 1
        ):
            raise BadInput(
                f"a stage is written lever @ (start, end), found '{ast.unparse(node)}'",
                "start and end are shares of the budget, such as tread @ (0, 0.5)",
            )
        return Staged(_lever(node.left, catalogue), float(bounds[0]), float(bounds[1]))
    call = node.func if isinstance(node, ast.Call) else node
    if not isinstance(call, ast.Name):
        raise BadInput(f"expected the name of a lever, found '{ast.unparse(node)}'", "all levers: fulcrum levers")
    if call.id not in catalogue.levers:
        if call.id in catalogue.bundles:
            raise BadInput(
                f"'{call.id}' is a bundle of levers and cannot be limited to a stage", "stage its parts one by one"
            )
        raise BadInput(
            f"no lever is called '{call.id}'",
            nearest(call.id, [*catalogue.levers, *catalogue.bundles]) + "\n  all levers: fulcrum levers",
        )
    return _make(catalogue.levers[call.id], call.id, node)


def _make(cls: type[Any], name: str, node: ast.expr) -> Any:
    """A lever or filler from `name(setting=value, ...)`."""
    given = {}
    if isinstance(node, ast.Call):
        if node.args:
            raise BadInput(f"settings are written by name, found '{ast.unparse(node)}'", "such as tread(drop=0.5)")
        names = [str(word.arg) for word in node.keywords]
        if len(set(names)) < len(names):
            raise BadInput(f"a setting is given twice in '{ast.unparse(node)}'", "write each once")
        given = {str(word.arg): _value(word.value) for word in node.keywords}
    unknown = [word for word in given if word not in cls.model_fields]
    if unknown:
        raise BadInput(f"'{name}' has no setting '{unknown[0]}'", nearest(unknown[0], cls.model_fields))
    try:
        return cls(**given)
    except ValidationError as error:
        where = ", ".join(cls.model_fields) if issubclass(cls, Filler) else f"fulcrum levers show {name}"
        raise BadInput(f"'{name}': {explain(error)}", f"its settings: {where}") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):  # a bare word is a word: teacher=world
        return {"true": True, "false": False, "none": None}.get(node.id, node.id)
    if isinstance(node, ast.Tuple | ast.List) and any(isinstance(item, ast.Name) for item in node.elts):
        return tuple(_value(item) for item in node.elts)  # bare words: targets=[attention_in, text]
    try:
        return ast.literal_eval(node)
    except UNREADABLE:
        raise BadInput(f"cannot read the value '{ast.unparse(node)[:200]}'", "numbers, words, true, false, none") from None


def overridden(settings: Iterable[str]) -> Iterator[str]:
    """A sentence for each setting that another one after it undoes: scripts append what they change, and people forget."""
    paths: list[str] = []
    for path in (setting.partition("=")[0].strip() for setting in settings):
        if path in paths:
            yield f"the slot '{path}' is set twice: the last setting counts"
        yield from (
            f"'{one}' is set, and then all of '{path}': the first is lost" for one in paths if one.startswith(f"{path}.")
        )
        paths.append(path)


def assign(run: RunSpec, settings: Iterable[str], catalogue: Catalogue) -> RunSpec:
    """Typed settings, "path=value", all at once; a seam takes a filler by kind: flow.time=uniform."""
    wanted = [_setting(run, setting, catalogue) for setting in settings]
    return put_all(run, wanted) if wanted else run


def _setting(run: RunSpec, setting: str, catalogue: Catalogue) -> tuple[str, Any]:
    path, equals, text = setting.partition("=")
    if not equals:
        raise BadInput(f"a setting is written path=value, found '{setting}'", "such as --set optim.lr=2e-4")
    path = path.strip()
    old = get(run, path)  # names the nearest slots when there is none
    if isinstance(old, str):
        return path, _word(text)
    node = _read(text, f"the value of {path}:", "paths stand in quotes, such as pretrained_codec(path='/data/vae')")
    if isinstance(old, Filler):
        return path, _filler(old, node, catalogue)
    if isinstance(old, tuple) and isinstance(node, ast.Tuple | ast.List):
        return path, tuple(_named(item, catalogue) for item in node.elts)
    if isinstance(old, Record):
        raise BadInput(
            f"'{path}' is a group of slots, not one",
            "set one of: " + ", ".join(f"{path}.{name}" for name in type(old).model_fields),
        )
    return path, _value(node)


def _word(text: str) -> str:
    """The value of a slot that takes a word: quoted, or as it stands, so that a path needs no quotes."""
    try:
        value = ast.literal_eval(_parsed(text)) if len(text) <= LONGEST else None
    except UNREADABLE:
        value = None
    return value if isinstance(value, str) else text.strip()


def _named(node: ast.expr, catalogue: Catalogue) -> Any:
    """One member of a set of fillers, such as encode.teachers=[pretrained_teacher(name='dino', path='/data/dino')]."""
    kinds = {cls.kind: cls for cls in catalogue.fillers}
    call = node.func if isinstance(node, ast.Call) else node
    if not (isinstance(call, ast.Name) and call.id in kinds):
        return _value(node)
    return _make(kinds[call.id], call.id, node)


def _filler(old: Filler, node: ast.expr, catalogue: Catalogue) -> Filler:
    """A filler of the same seam as `old`, by its kind."""
    base = seam_of(old)
    kinds = {cls.kind: cls for cls in catalogue.fillers if issubclass(cls, base)}
    call = node.func if isinstance(node, ast.Call) else node
    kind = call.id if isinstance(call, ast.Name) else ast.unparse(call)
    if kind not in kinds:
        raise BadInput(f"no filler of this seam is called '{kind}'", nearest(kind, kinds))
    made: Filler = _make(kinds[kind], kind, node)
    return made


def _known(what: str, names: Iterable[str]) -> str:
    return f"{what}: " + ", ".join(sorted(names))
