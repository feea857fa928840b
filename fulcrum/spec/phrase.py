"""Phrases: "pocket + muon + tread(drop=0.5)" read into a recipe and levers; typed settings such as "optim.lr=2e-4"."""

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from fulcrum.spec.edit import Change, diff, digest, during, explain, get, inside, put_all
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.record import Filler, Record
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases, require_sound

LONGEST = 2000                                               # characters of a phrase or a value
UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


class Edit(Protocol):
    """What a phrase needs of a lever: its name, and the edit."""

    name: str
    card: Any
    touches: tuple[str, ...]

    def edit(self, run: RunSpec) -> RunSpec: ...
    def needs(self, run: RunSpec) -> str | None: ...
    def cost(self, run: RunSpec) -> Any: ...


class Catalogue(NamedTuple):
    """All that a phrase may name. It is handed over: nothing registers itself."""

    recipes: Mapping[str, Callable[[], RunSpec]]
    levers: Mapping[str, type[Any]]                          # name -> lever class
    fillers: tuple[type[Filler], ...]
    bundles: Mapping[str, type[Any]] = {}                    # name -> bundle class: several levers under one name


class Staged:
    """A lever that is on for a part of the budget: its changes become stages."""

    def __init__(self, lever: Edit, start: float, end: float) -> None:
        self.lever, self.start, self.end = lever, start, end
        self.name, self.card, self.touches = lever.name, lever.card, ("data.stages",)

    def edit(self, run: RunSpec) -> RunSpec:
        edited = self.lever.edit(run)
        if edited.data.stages != run.data.stages:
            raise BadInput(f"'{self.name}' has stages of its own and cannot be limited to one more",
                           f"see its settings: fulcrum levers show {self.name}")
        for path in _seams(diff(run, edited), edited):
            run = during(run, self.start, self.end, path, get(edited, path))
        return run

    def needs(self, run: RunSpec) -> str | None:
        """What is missing in the run as it is while the lever is on."""
        images = run.budget.images
        on = [phase.run for phase in phases(run) if self.start * images < (phase.start + phase.end) / 2 < self.end * images]
        if not on:
            return f"its stage holds no whole batch of {run.budget.batch} images"
        return next((problem for problem in map(self.lever.needs, on) if problem), None)

    def cost(self, run: RunSpec) -> Any:
        """The lever's cost for the share of the budget in which it is on."""
        whole, share = self.lever.cost(run), self.end - self.start
        return type(whole)(**{name: 1 + share * (getattr(whole, name) - 1) for name in type(whole).model_fields})

    def __str__(self) -> str:
        return f"{self.lever} @ ({self.start:g}, {self.end:g})"


def _seams(changes: list[Change], edited: RunSpec) -> list[str]:
    """The paths to write for these changes; a changed filler is written whole, once."""
    filled = {change.path for change in changes if isinstance(get(edited, change.path), Filler)}
    return sorted(filled | {change.path for change in changes
                            if not any(change.path.startswith(path + ".") for path in filled)})


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
        raise BadInput(f"a phrase begins with a recipe, found '{ast.unparse(first)}'", _known("recipes", catalogue.recipes))
    if first.id not in catalogue.recipes:
        raise BadInput(f"no recipe is called '{first.id}'", nearest(first.id, catalogue.recipes))
    base = assign(catalogue.recipes[first.id](), settings, catalogue)
    levers = tuple(lever for node in rest for lever in _levers(node, catalogue))
    return Phrase(first.id, levers, base, apply(base, levers))


def apply(base: RunSpec, levers: tuple[Any, ...]) -> RunSpec:
    """Apply levers; two that write different values to one path are in conflict, whatever their order."""
    run = base
    written: dict[str, tuple[str, Any]] = {}
    names = [lever.name for lever in levers]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"the lever '{name}' is named twice", "write it once, with the settings you want")
    for lever in levers:
        before, changes = digest(base), diff(base, _edited(base, lever))
        if digest(base) != before:
            raise BadInput(f"'{lever.name}' changes the run that it is given", "an edit returns another run: use put")
        if not changes and not _safely(lever, "needs", base):
            raise BadInput(f"'{lever.name}' changes nothing: the run has it already", "leave it out")
        for change in changes:
            if not inside(change.path, lever.touches):
                raise BadInput(f"'{lever.name}' changes {change.path}, which it does not declare",
                               "an effect must belong to one decision: correct the lever's `touches` or its edit")
            other = written.setdefault(change.path, (lever.name, change.after))
            if other[1] != change.after:
                raise BadInput(f"'{other[0]}' and '{lever.name}' both write {change.path}: {other[1]} and {change.after}",
                               "leave one of them out")
            for path, (name, _) in written.items():          # one replaces a filler, the other a setting of it
                nested = path != change.path and (inside(path, (change.path,)) or inside(change.path, (path,)))
                if nested and name != lever.name and not _commute(base, levers[names.index(name)], lever):
                    raise BadInput(f"'{name}' writes {path} and '{lever.name}' writes {change.path}",
                                   "leave one of them out")
        run = _edited(run, lever)
    for lever in levers:
        problem = _safely(lever, "needs", run)
        if problem:
            raise BadInput(f"'{lever.name}' cannot be used here: {problem}")
    require_sound(run)
    return run


def _commute(run: RunSpec, one: Edit, other: Edit) -> bool:
    try:
        return _edited(_edited(run, one), other) == _edited(_edited(run, other), one)
    except BadInput:
        return False


def _edited(run: RunSpec, lever: Edit) -> RunSpec:
    edited = _safely(lever, "edit", run)
    if not isinstance(edited, RunSpec):
        raise BadInput(f"the edit of '{lever.name}' gave {type(edited).__name__}, not a run",
                       "an edit returns the edited run")
    return edited


def _safely(lever: Edit, method: str, run: RunSpec) -> Any:
    """Ask a lever; what a user's own file raises becomes a message that names the lever."""
    try:
        return getattr(lever, method)(run)
    except BadInput:
        raise
    except ValidationError as error:
        raise BadInput(f"'{lever.name}' does not fit this run: {explain(error)}") from None
    except Exception as error:
        raise BadInput(f"'{lever.name}' failed in `{method}`: {type(error).__name__}: {error}",
                       "correct the lever's file") from error


def _terms(text: str) -> list[ast.expr]:
    try:
        if len(text) > LONGEST:
            raise ValueError
        node = ast.parse(text.strip(), mode="eval").body
    except UNREADABLE:
        raise BadInput(f"cannot read the phrase '{text[:200]}'",
                       'write a recipe and levers, such as "pocket + muon + tread(drop=0.5)"') from None
    found: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        found.insert(0, node.right)
        node = node.left
    return [node, *found]


def _levers(node: ast.expr, catalogue: Catalogue) -> tuple[Any, ...]:
    """The lever that a part of a phrase names, or the parts of a bundle."""
    call = node.func if isinstance(node, ast.Call) else node
    if isinstance(call, ast.Name) and call.id in catalogue.bundles:
        parts: tuple[Any, ...] = _make(catalogue.bundles[call.id], call.id, node).parts()
        return parts
    return (_lever(node, catalogue),)


def _lever(node: ast.expr, catalogue: Catalogue) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        bounds = _value(node.right)
        if not (isinstance(bounds, tuple) and len(bounds) == 2 and all(type(end) in (int, float) for end in bounds)
                and 0 <= bounds[0] < bounds[1] <= 1):
            raise BadInput(f"a stage is written lever @ (start, end), found '{ast.unparse(node)}'",
                           "start and end are shares of the budget, such as tread @ (0, 0.5)")
        return Staged(_lever(node.left, catalogue), float(bounds[0]), float(bounds[1]))
    call = node.func if isinstance(node, ast.Call) else node
    if not isinstance(call, ast.Name):
        raise BadInput(f"expected the name of a lever, found '{ast.unparse(node)}'", "all levers: fulcrum levers")
    if call.id not in catalogue.levers:
        if call.id in catalogue.bundles:
            raise BadInput(f"'{call.id}' is a bundle of levers and cannot be limited to a stage",
                           "stage its parts one by one")
        raise BadInput(f"no lever is called '{call.id}'",
                       nearest(call.id, [*catalogue.levers, *catalogue.bundles]) + "\n  all levers: fulcrum levers")
    return _make(catalogue.levers[call.id], call.id, node)


def _make(cls: type[Any], name: str, node: ast.expr) -> Any:
    """A lever or filler from `name(setting=value, ...)`."""
    given = {}
    if isinstance(node, ast.Call):
        if node.args:
            raise BadInput(f"settings are written by name, found '{ast.unparse(node)}'",
                           "such as tread(drop=0.5)")
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
    if isinstance(node, ast.Name):                           # a bare word is a word: teacher=world
        return {"true": True, "false": False, "none": None}.get(node.id, node.id)
    try:
        return ast.literal_eval(node)
    except UNREADABLE:
        raise BadInput(f"cannot read the value '{ast.unparse(node)[:200]}'", "numbers, words, true, false, none") from None


def assign(run: RunSpec, settings: Iterable[str], catalogue: Catalogue) -> RunSpec:
    """Typed settings, "path=value", all at once; a seam takes a filler by kind: flow.time=uniform."""
    wanted = [_setting(run, setting, catalogue) for setting in settings]
    return put_all(run, wanted) if wanted else run


def _setting(run: RunSpec, setting: str, catalogue: Catalogue) -> tuple[str, Any]:
    path, equals, text = setting.partition("=")
    if not equals:
        raise BadInput(f"a setting is written path=value, found '{setting}'", "such as --set optim.lr=2e-4")
    path = path.strip()
    old = get(run, path)                                     # names the nearest slots when there is none
    if isinstance(old, str):
        return path, _word(text)
    try:
        if len(text) > LONGEST:
            raise ValueError
        node = ast.parse(text.strip(), mode="eval").body
    except UNREADABLE:
        raise BadInput(f"cannot read the value of {path}: '{text[:200]}'",
                       "paths stand in quotes, such as pretrained_codec(path='/data/vae')") from None
    if isinstance(old, Filler):
        return path, _filler(old, node, catalogue)
    if isinstance(old, tuple) and isinstance(node, ast.Tuple | ast.List):
        return path, tuple(_named(item, catalogue) for item in node.elts)
    if isinstance(old, Record):
        raise BadInput(f"'{path}' is a group of slots, not one", "set one of: "
                       + ", ".join(f"{path}.{name}" for name in type(old).model_fields))
    return path, _value(node)


def _word(text: str) -> str:
    """The value of a slot that takes a word: quoted, or as it stands, so that a path needs no quotes."""
    try:
        value = ast.literal_eval(text.strip()) if len(text) <= LONGEST else None
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
    base = next(cls for cls in type(old).__mro__ if cls.__module__ == "fulcrum.spec.seam")
    kinds = {cls.kind: cls for cls in catalogue.fillers if issubclass(cls, base)}
    call = node.func if isinstance(node, ast.Call) else node
    kind = call.id if isinstance(call, ast.Name) else ast.unparse(call)
    if kind not in kinds:
        raise BadInput(f"no filler of this seam is called '{kind}'", nearest(kind, kinds))
    made: Filler = _make(kinds[kind], kind, node)
    return made


def _known(what: str, names: Iterable[str]) -> str:
    return f"{what}: " + ", ".join(sorted(names))
