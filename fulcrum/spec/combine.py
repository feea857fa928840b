"""Levers put together: edits of one run, conflicts found whatever the order, a lever held to a part of the budget."""

from typing import Any, Protocol

from pydantic import ValidationError

from fulcrum.spec.edit import Change, diff, digest, during, explain, get, inside
from fulcrum.spec.errors import BadInput, OrderDecides
from fulcrum.spec.record import Filler
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases, require_sound
from fulcrum.spec.user_errors import failed, home


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
        on = [phase.run for phase in phases(run) if self.start * images < (phase.start + phase.end) / 2 < self.end * images]
        if not on:
            return f"its stage holds no whole batch of {run.budget.batch} images"
        return next((problem for problem in map(self.lever.needs, on) if problem), None)

    def cost(self, run: RunSpec) -> Any:
        """The lever's cost for the share of the budget in which it is on."""
        whole, share = self.lever.cost(run), self.end - self.start
        return type(whole)(**{name: 1 + share * (getattr(whole, name) - 1) for name in type(whole).model_fields})

    def in_run(self, run: RunSpec) -> str:
        return self.lever.in_run(run)

    def __str__(self) -> str:
        return f"{self.lever} @ ({self.start:g}, {self.end:g})"


def _seams(changes: list[Change], edited: RunSpec) -> list[str]:
    """The paths to write for these changes; a changed filler is written whole, once."""
    filled = {change.path for change in changes if isinstance(get(edited, change.path), Filler)}
    return sorted(
        filled | {change.path for change in changes if not any(change.path.startswith(path + ".") for path in filled)}
    )


def apply(base: RunSpec, levers: tuple[Any, ...]) -> RunSpec:
    """Apply levers; two that write different values to one path are in conflict, whatever their order."""
    run = base
    written: dict[str, tuple[str, Any]] = {}
    names = [lever.name for lever in levers]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"the lever '{name}' is named twice", "write it once, with the settings you want")
    before = digest(base)
    for lever in levers:
        changes = diff(base, edited_by(lever, base))
        if digest(base) != before:
            raise BadInput(
                f"'{lever.name}'{home(lever)} changes the run that it is given", "an edit returns another run: use put"
            )
        if not changes and not ask(lever, "needs", base):
            raise BadInput(f"'{lever.name}' changes nothing: the run has it already", "leave it out")
        for change in changes:
            if not inside(change.path, lever.touches):
                raise BadInput(
                    f"'{lever.name}'{home(lever)} changes {change.path}, which it does not declare",
                    "an effect must belong to one decision: correct the lever's `touches` or its edit",
                )
            other = written.setdefault(change.path, (lever.name, change.after))
            if other[1] != change.after:
                raise BadInput(
                    f"'{other[0]}' and '{lever.name}' both write {change.path}: {other[1]} and {change.after}",
                    "leave one of them out",
                )
            for path, (name, _) in written.items():  # one replaces a filler, the other a setting of it
                nested = path != change.path and (inside(path, (change.path,)) or inside(change.path, (path,)))
                if nested and name != lever.name and not _commute(base, levers[names.index(name)], lever):
                    raise BadInput(
                        f"'{name}' writes {path} and '{lever.name}' writes {change.path}", "leave one of them out"
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
    """A lever that asks for a value which the base has already writes nothing, and another may then overrule it or not."""
    backwards = base
    try:
        for lever in reversed(levers):
            backwards = edited_by(lever, backwards)
    except BadInput:
        return  # nobody gets a run from that order
    if changes := diff(run, backwards):
        path, one, other = changes[0]
        raise OrderDecides(
            f"these levers ask for different values of {path}: {one} or {other}, by the order they are named in",
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
    """Ask a lever; what a user's own file raises becomes a message that names the lever, the file and the line."""
    try:
        return getattr(lever, method)(run)
    except BadInput:
        raise
    except ValidationError as error:
        raise BadInput(f"'{lever.name}' does not fit this run: {explain(error)}") from None
    except Exception as error:
        raise failed(error, f"'{lever.name}' failed in `{method}`") from error
