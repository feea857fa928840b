"""The plan as it was when its study began: kept in the study's folder, and held against the plan
that is asked for."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from fulcrum.files.atomic import write_json
from fulcrum.files.paths import explained, open_regular
from fulcrum.files.sealed import read_json
from fulcrum.judge.looks import error_by_hand
from fulcrum.spec.edit import digest
from fulcrum.spec.errors import BadInput
from fulcrum.spec.remark import Remark, remark
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import from_plain

NAME = "plan.json"
HEAD = 1 << 16  # bytes of a result in which its state stands
FINISHED = b'\n "state": "finished",'  # there: a title in JSON has no line break


def freeze(plan: Plan, out: Path, user_files: Mapping[str, str] | None = None) -> Path:
    """The folder of the study, named by the hash of its plan and the user's files; the plan in it
    must be this one.

    A plan under another version of the science is another study: the page, proof and costs of the
    old one stay as they are.
    """
    folder = folder_of(plan, out, user_files)
    with explained("write to", out, hint="choose another place with --out", kind=BadInput):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / NAME).exists():
            write_json(folder / NAME, plan.frozen)
    require_plan(plan, folder)
    return folder


def folder_of(plan: Plan, out: Path, user_files: Mapping[str, str] | None = None) -> Path:
    """Where `freeze` will put the study."""
    name = digest([plan.frozen, dict(user_files)])[:16] if user_files else plan.hash
    return out / f"study-{name if SCIENCE == FIRST_SCIENCE else digest([name, SCIENCE])[:16]}"


def require_plan(plan: Plan, folder: Path) -> None:
    """Refuse a study's folder in which another plan lies than this one."""
    path = folder / NAME
    if path.exists() and not _holds(path, plan):
        raise BadInput(
            f"{path} holds another plan than its name says",
            f"it was edited by hand: remove {folder}; its cells lie beside it and are kept",
        )


def _holds(path: Path, plan: Plan) -> bool:
    try:
        return (
            from_plain(read_json(path, "remove the file: it is written again from the plan")).frozen
            == plan.frozen
        )
    except ValidationError:
        return False


def changed_since(plan: Plan, folder: Path) -> str | None:
    """What differs from the newest other plan of the same title under the same `out`, in words."""
    others = sorted(folder.parent.glob(f"study-*/{NAME}"), key=lambda path: path.stat().st_mtime)
    for path in reversed([path for path in others if path.parent != folder]):
        with contextlib.suppress(Exception):  # another version's plan says nothing about this one
            other = from_plain(read_json(path, ""))
            if other.title == plan.title:
                fields = [
                    name
                    for name in Plan.model_fields
                    if other.frozen.get(name) != plan.frozen.get(name)
                ]
                changed = ", ".join(fields) or "the version of the science"
                return (
                    f"this plan is not that of {path.parent.name}: {changed} changed; it has a page"
                    " of its own"
                )
    return None


def same_but_threads(plan: Plan, out: Path) -> Path | None:
    """The newest study of this plan that was run with another number of threads or judged by a
    metric chosen for it."""
    free = {"threads", "primary"}
    asked = {name: value for name, value in plan.frozen.items() if name not in free}
    for path in sorted(
        out.glob(f"study-*/{NAME}"), key=lambda path: path.stat().st_mtime, reverse=True
    ):
        with contextlib.suppress(Exception):  # another version's plan says nothing about this one
            frozen = from_plain(read_json(path, "")).frozen
            if {name: value for name, value in frozen.items() if name not in free} == asked:
                return path.parent
    return None


def added_seeds(plan: Plan, out: Path) -> Remark | None:
    """What it does to the error that this plan was judged before with fewer of its seeds; None: it
    was not.

    Only finished studies count: one that was stopped has shown no verdict to be unhappy with.
    """
    earlier = sorted(
        {len(other.seeds) for other in _finished_plans(out) if _same_but_seeds(plan, other)}
    )
    if not earlier:
        return None
    looked = [*earlier, len(plan.seeds)]
    times = f"{', '.join(map(str, looked[:-1]))} and {looked[-1]}"
    before = f"These arms were judged before, on {' and '.join(map(str, earlier))} of these seeds. "
    if plan.looks:
        text = (
            before
            + "The levels of this plan's looks do not know of that: its errors are more likely than"
            " they say."
        )
        return remark("looks-after-verdict", text, earlier=earlier)
    error = error_by_hand(looked, plan.alpha)
    text = (
        f"{before}Seeds that are added because an answer was open make errors more likely: where"
        f" nothing is true, one arm looked at with {times} pairs gets a verdict in {error:.0%} of"
        f" studies, not in {plan.alpha:.0%}. A plan that looks several times by rule keeps its"
        " error: seeds = {first = 8, step = 4, most = 16}."
    )
    return remark("seeds-added-after-verdict", text, earlier=earlier, error=error)


def _finished_plans(out: Path) -> Iterator[Plan]:
    for path in sorted(out.glob(f"study-*/{NAME}")):
        result = path.with_name("report.json")
        with (
            contextlib.suppress(Exception),
            open(open_regular(result, follow=True), "rb") as stream,
        ):
            # what cannot be read, or is another version's, says nothing about this plan
            if FINISHED in stream.read(HEAD):
                yield from_plain(read_json(path, ""))


def _same_but_seeds(plan: Plan, other: Plan) -> bool:
    """Does another plan ask the same of fewer of the seeds?"""
    free = {"title", "seeds", "looks"}
    asked, frozen = (
        {name: one.frozen[name] for name in one.frozen if name not in free} for one in (plan, other)
    )
    return asked == frozen and set(other.seeds) < set(plan.seeds)
