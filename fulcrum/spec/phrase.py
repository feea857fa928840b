"""Phrases: read "pocket + muon + tread(drop=0.5)" into a recipe and levers, and apply the levers to
the run."""

import ast
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple, Protocol

from pydantic import PydanticUserError, ValidationError

from fulcrum.spec.edit import diff, digest, during, explain, get, inside, put_all
from fulcrum.spec.errors import BadInput, OrderDecides, nearest
from fulcrum.spec.record import Change, Filler, Record, slot_of
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases, require_sound

# --------------------------------------------------------------------------------------------------
# What a person's own Python file said when its code failed, in one line that names the file and the
# line.
#
# `files.user_code` runs such files, under module names by which they are known here.


PREFIX = "fulcrum_user_"  # of the modules' names: so they are known in a traceback
GUIDE = "__guide__"  # in such a module: the page that says how to write it


def failed(error: BaseException, what: str, guide: str = "") -> BadInput:
    """An error of a person's own code as one that they can act on."""
    guide = guide or guide_of(error)
    hint = (
        f"correct the file: {guide}" if guide else "this is not your file's fault: please report it"
    )
    return BadInput(
        f"{what}: {described(error)}", f"{hint}; FULCRUM_TRACEBACK=1 shows the whole way there"
    )


def described(error: BaseException) -> str:
    """What code said when it failed, in one line, and the line of a person's own file that it came
    from."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    if isinstance(error, ValidationError):
        words = f"the settings of {error.title} are not right: {explain(error)}"
    # most often a lever's fact that is not marked as one
    elif isinstance(error, PydanticUserError):
        words = f"{error.message}".split("\n")[0]
    else:
        words = f"{type(error).__name__}: {getattr(error, 'message', error)}"
    where = place(error)
    return f"{words} ({where})" if where else words


def place(error: BaseException | None) -> str:
    """The line of a person's own file that an error came from, such as "own.py, line 12"; empty
    where none had a part."""
    frame = _frame(error)
    return f"{frame[0].f_code.co_filename}, line {frame[1]}" if frame else ""


def home(value: object) -> str:
    """ " (own.py)" for what a person's own file defines, nothing for ours: it follows a name in a
    message."""
    module = sys.modules.get(getattr(value, "__module__", ""))
    return (
        f" ({module.__file__})" if module is not None and module.__name__.startswith(PREFIX) else ""
    )


def guide_of(error: BaseException) -> str:
    frame = _frame(error)
    return str(frame[0].f_globals.get(GUIDE, "")) if frame else ""


def _frame(error: BaseException | None) -> tuple[FrameType, int] | None:
    """The innermost frame of a person's own code in a traceback, or in that of what caused it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # anybody's `raise a from a` is a circle
        seen.add(id(error))
        frames = [
            (frame, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if str(frame.f_globals.get("__name__", "")).startswith(PREFIX)
        ]
        if frames:
            return frames[-1]
        error = error.__cause__
    return None


# --------------------------------------------------------------------------------------------------
# Levers put together: edits of one run, conflicts found whatever the order, a lever held to a part
# of the budget.


class Edit(Protocol):
    """What is asked of a lever here."""

    @property
    def name(self) -> str: ...
    @property
    def card(self) -> Any: ...
    @property
    def touches(self) -> tuple[str, ...]: ...
    def edit(self, run: RunSpec) -> RunSpec: ...
    def needs(self, run: RunSpec) -> str | None: ...
    def cost(self, run: RunSpec) -> Any: ...
    def in_run(self, run: RunSpec) -> str: ...


class Staged:
    """A lever that is on for a part of the budget: its changes become stages."""

    def __init__(self, lever: Edit, start: float, end: float) -> None:
        self.lever, self.start, self.end = lever, start, end
        self.name, self.card, self.touches = lever.name, lever.card, ("data.stages",)
        self.affects = getattr(lever, "affects", ())

    def edit(self, run: RunSpec) -> RunSpec:
        edited = self.lever.edit(run)
        if edited.data.stages != run.data.stages:
            raise BadInput(
                f"'{self.name}' has stages of its own and cannot be limited to one more",
                f"see its settings: fulcrum levers show {self.name}",
            )
        for path in _seams(diff(run, edited), edited):
            run = during(run, self.start, self.end, path, get(edited, path))
        return run

    def needs(self, run: RunSpec) -> str | None:
        """What is missing in the run as it is while the lever is on."""
        images = run.budget.images
        on = [
            phase.run
            for phase in phases(run)
            if self.start * images < (phase.start + phase.end) / 2 < self.end * images
        ]
        if not on:
            return f"its stage holds no whole batch of {run.budget.batch} images"
        return next((problem for problem in map(self.lever.needs, on) if problem), None)

    def cost(self, run: RunSpec) -> Any:
        """The lever's cost for the share of the budget in which it is on."""
        whole, share = self.lever.cost(run), self.end - self.start
        return type(whole)(
            **{name: 1 + share * (getattr(whole, name) - 1) for name in type(whole).model_fields}
        )

    def in_run(self, run: RunSpec) -> str:
        return self.lever.in_run(run)

    def __str__(self) -> str:
        return f"{self.lever} @ ({self.start:g}, {self.end:g})"


def _seams(changes: list[Change], edited: RunSpec) -> list[str]:
    """The paths to write for these changes; a changed filler is written whole, once."""
    filled = {change.path for change in changes if isinstance(get(edited, change.path), Filler)}
    return sorted(
        filled
        | {
            change.path
            for change in changes
            if not any(change.path.startswith(path + ".") for path in filled)
        }
    )


def apply(base: RunSpec, levers: tuple[Any, ...]) -> RunSpec:
    """Apply levers; two that write different values to one path are in conflict, whatever their
    order."""
    run = base
    written: dict[str, tuple[str, Any]] = {}
    names = [lever.name for lever in levers]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(
                f"the lever '{name}' is named twice", "write it once, with the settings you want"
            )
    before = digest(base)
    for lever in levers:
        changes = diff(base, edited_by(lever, base))
        if digest(base) != before:
            raise BadInput(
                f"'{lever.name}'{home(lever)} changes the run that it is given",
                "an edit returns another run: use put",
            )
        if not changes and not ask(lever, "needs", base):
            raise BadInput(
                f"'{lever.name}' changes nothing: the run has it already", "leave it out"
            )
        for change in changes:
            if not inside(change.path, lever.touches):
                raise BadInput(
                    f"'{lever.name}'{home(lever)} changes {change.path}, which it does not declare",
                    "an effect must belong to one decision: correct the lever's `touches` or its"
                    " edit",
                )
            other = written.setdefault(change.path, (lever.name, change.after))
            if other[1] != change.after:
                raise BadInput(
                    f"'{other[0]}' and '{lever.name}' both write {change.path}: {other[1]} and"
                    f" {change.after}",
                    "leave one of them out",
                )
            # one replaces a filler, the other a setting of it
            for path, (name, _) in written.items():
                nested = path != change.path and (
                    inside(path, (change.path,)) or inside(change.path, (path,))
                )
                if (
                    nested
                    and name != lever.name
                    and not _commute(base, levers[names.index(name)], lever)
                ):
                    raise BadInput(
                        f"'{name}' writes {path} and '{lever.name}' writes {change.path}",
                        "leave one of them out",
                    )
        run = edited_by(lever, run)
    for lever in levers:
        problem = ask(lever, "needs", run)
        if problem:
            raise BadInput(f"'{lever.name}' cannot be used here: {problem}")
    _require_commuting(base, levers, run)
    require_sound(run)
    return run


def _require_commuting(base: RunSpec, levers: tuple[Any, ...], run: RunSpec) -> None:
    """A lever that asks for a value which the base has already writes nothing, and another may then
    overrule it or not."""
    backwards = base
    try:
        for lever in reversed(levers):
            backwards = edited_by(lever, backwards)
    except BadInput:
        return  # nobody gets a run from that order
    if changes := diff(run, backwards):
        path, one, other = changes[0]
        raise OrderDecides(
            f"these levers ask for different values of {path}: {one} or {other}, by the order they"
            " are named in",
            "leave one of them out",
        )


def _commute(run: RunSpec, one: Edit, other: Edit) -> bool:
    try:
        return edited_by(other, edited_by(one, run)) == edited_by(one, edited_by(other, run))
    except BadInput:
        return False


def edited_by(lever: Edit, run: RunSpec) -> RunSpec:
    edited = ask(lever, "edit", run)
    if not isinstance(edited, RunSpec):
        raise BadInput(
            f"the edit of '{lever.name}'{home(lever)} gave {type(edited).__name__}, not a run",
            "an edit returns the edited run",
        )
    return edited


def ask(lever: Edit, method: str, run: RunSpec) -> Any:
    """Ask a lever; what a user's own file raises becomes a message that names the lever, the file
    and the line."""
    try:
        return getattr(lever, method)(run)
    except BadInput:
        raise
    except ValidationError as error:
        raise BadInput(f"'{lever.name}' does not fit this run: {explain(error)}") from None
    except Exception as error:
        raise failed(error, f"'{lever.name}' failed in `{method}`") from error


# --------------------------------------------------------------------------------------------------
# Phrases: "pocket + muon + tread(drop=0.5)" read into a recipe and levers; typed settings such as
# "optim.lr=2e-4".


LONGEST = 2000  # characters of a phrase or a value
UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


class Catalogue(NamedTuple):
    """All that a phrase may name. It is handed over: nothing registers itself."""

    recipes: Mapping[str, Callable[[], RunSpec]]
    levers: Mapping[str, type[Any]]  # name -> lever class
    fillers: tuple[type[Filler], ...]
    bundles: Mapping[str, type[Any]] = {}  # name -> bundle class: several levers under one name

    def recipe(self, name: str) -> RunSpec:
        """The run that a recipe returns; a person's own may be marked `-> RunSpec` and return
        something else."""
        if name not in self.recipes:
            raise BadInput(f"no recipe is called '{name}'", nearest(name, self.recipes))
        run: object = self.recipes[name]()
        if not isinstance(run, RunSpec):
            raise BadInput(
                f"the recipe '{name}'{home(self.recipes[name])} gave {type(run).__name__}, not"
                " a run",
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
    """Read a phrase; refuse unknown names, wrong settings, doubled or conflicting levers before
    anything is built.

    `settings` change the recipe itself, so every arm of a study that shares them shares its
    baseline.
    """
    first, *rest = _terms(text)
    if not isinstance(first, ast.Name):
        raise BadInput(
            f"a phrase begins with a recipe, found '{ast.unparse(first)}'",
            'levers are added with +, as in "spark + muon";'
            f" {_known('recipes', catalogue.recipes)}",
        )
    base = assign(catalogue.recipe(first.id), settings, catalogue)
    named = [_named_part(node, catalogue) for node in rest]
    levers = tuple(
        lever
        for one in named
        for lever in (one.parts() if type(one) in catalogue.bundles.values() else (one,))
    )
    run = apply(base, levers)
    for one in named:
        if type(one) in catalogue.bundles.values() and (problem := one.needs(run)):
            raise BadInput(f"'{one.name}' cannot be used here: {problem}")
    return Phrase(first.id, levers, base, run)


def read_lever(text: str, catalogue: Catalogue) -> Any:
    """The lever that one part of a phrase names, with its settings, put on no run yet."""
    return _lever(
        _read(text, "the lever", "write its name and settings, such as tread(drop=0.5)"), catalogue
    )


def _read(text: str, what: str, hint: str) -> ast.expr:
    """One expression, read and not run."""
    try:
        if len(text) > LONGEST:
            raise ValueError
        node = _parsed(text)
        ast.unparse(node)  # a message writes it out: what is too deep for that is refused here
        return node
    except UNREADABLE:
        raise BadInput(f"cannot read {what} '{text[:200]}'", hint) from None


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        # Python warns of "0.5in", which is refused in our words or is a path
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval").body


def _terms(text: str) -> list[ast.expr]:
    node = _read(
        text, "the phrase", 'write a recipe and levers, such as "pocket + muon + tread(drop=0.5)"'
    )
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
        raise BadInput(
            f"expected the name of a lever, found '{ast.unparse(node)}'",
            "all levers: fulcrum levers",
        )
    if call.id not in catalogue.levers:
        if call.id in catalogue.bundles:
            raise BadInput(
                f"'{call.id}' is a bundle of levers and cannot be limited to a stage",
                "stage its parts one by one",
            )
        raise BadInput(
            f"no lever is called '{call.id}'",
            nearest(call.id, [*catalogue.levers, *catalogue.bundles])
            + "\n  all levers: fulcrum levers",
        )
    return _make(catalogue.levers[call.id], call.id, node)


def _make(cls: type[Any], name: str, node: ast.expr) -> Any:
    """A lever or filler from `name(setting=value, ...)`."""
    given = {}
    if isinstance(node, ast.Call):
        if node.args:
            raise BadInput(
                f"settings are written by name, found '{ast.unparse(node)}'",
                "such as tread(drop=0.5)",
            )
        names = [str(word.arg) for word in node.keywords]
        if len(set(names)) < len(names):
            raise BadInput(f"a setting is given twice in '{ast.unparse(node)}'", "write each once")
        given = {str(word.arg): _value(word.value) for word in node.keywords}
    unknown = [word for word in given if word not in cls.model_fields]
    if unknown:
        raise BadInput(
            f"'{name}' has no setting '{unknown[0]}'", nearest(unknown[0], cls.model_fields)
        )
    try:
        return cls(**given)
    except ValidationError as error:
        where = (
            ", ".join(cls.model_fields)
            if issubclass(cls, Filler)
            else f"fulcrum levers show {name}"
        )
        raise BadInput(f"'{name}': {explain(error)}", f"its settings: {where}") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):  # a bare word is a word: teacher=world
        return {"true": True, "false": False, "none": None}.get(node.id, node.id)
    if isinstance(node, ast.Tuple | ast.List) and any(
        isinstance(item, ast.Name) for item in node.elts
    ):
        return tuple(_value(item) for item in node.elts)  # bare words: targets=[attention_in, text]
    try:
        return ast.literal_eval(node)
    except UNREADABLE:
        raise BadInput(
            f"cannot read the value '{ast.unparse(node)[:200]}'",
            "numbers, words, true, false, none",
        ) from None


def overridden(settings: Iterable[str]) -> Iterator[str]:
    """A sentence for each setting that another one after it undoes: scripts append what they
    change, and people forget."""
    paths: list[str] = []
    for path in (setting.partition("=")[0].strip() for setting in settings):
        if path in paths:
            yield f"the slot '{path}' is set twice: the last setting counts"
        yield from (
            f"'{one}' is set, and then all of '{path}': the first is lost"
            for one in paths
            if one.startswith(f"{path}.")
        )
        paths.append(path)


def assign(run: RunSpec, settings: Iterable[str], catalogue: Catalogue) -> RunSpec:
    """Typed settings, "path=value", all at once; a seam takes a filler by kind:
    flow.time=uniform."""
    wanted = [_setting(run, setting, catalogue) for setting in settings]
    return put_all(run, wanted) if wanted else run


def _setting(run: RunSpec, setting: str, catalogue: Catalogue) -> tuple[str, Any]:
    path, equals, text = setting.partition("=")
    if not equals:
        raise BadInput(
            f"a setting is written path=value, found '{setting}'", "such as --set optim.lr=2e-4"
        )
    path = path.strip()
    old = get(run, path)  # names the nearest slots when there is none
    if isinstance(old, str):
        return path, _word(text)
    node = _read(
        text,
        f"the value of {path}:",
        "paths stand in quotes, such as pretrained_codec(path='/data/vae')",
    )
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
    """The value of a slot that takes a word: quoted, or as it stands, so that a path needs no
    quotes."""
    try:
        value = ast.literal_eval(_parsed(text)) if len(text) <= LONGEST else None
    except UNREADABLE:
        value = None
    return value if isinstance(value, str) else text.strip()


def _named(node: ast.expr, catalogue: Catalogue) -> Any:
    """One member of a set of fillers, such as encode.teachers=[pretrained_teacher(name='dino',
    path='/data/dino')]."""
    kinds = {cls.kind: cls for cls in catalogue.fillers}
    call = node.func if isinstance(node, ast.Call) else node
    if not (isinstance(call, ast.Name) and call.id in kinds):
        return _value(node)
    return _make(kinds[call.id], call.id, node)


def _filler(old: Filler, node: ast.expr, catalogue: Catalogue) -> Filler:
    """A filler of the same seam as `old`, by its kind."""
    base = slot_of(old)
    kinds = {cls.kind: cls for cls in catalogue.fillers if issubclass(cls, base)}
    call = node.func if isinstance(node, ast.Call) else node
    kind = call.id if isinstance(call, ast.Name) else ast.unparse(call)
    if kind not in kinds:
        raise BadInput(f"no filler of this seam is called '{kind}'", nearest(kind, kinds))
    made: Filler = _make(kinds[kind], kind, node)
    return made


def _known(what: str, names: Iterable[str]) -> str:
    return f"{what}: " + ", ".join(sorted(names))
