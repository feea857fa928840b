"""Keep a study's numbers in a folder of a repository, with hashes of every file."""

import contextlib
import json
import random
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import explained, read_regular
from fulcrum.files.sealed import read_sealed, sha256_file, write_sealed
from fulcrum.judge.schema import Provenance, StudyResult
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.edit import explain, quoted
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.run import SCIENCE, System
from fulcrum.studies.arm_cost import COSTS, read_costs
from fulcrum.studies.cell import Cell, Layout, lay_out, measuring
from fulcrum.studies.frozen_plan import folder_of
from fulcrum.studies.kept_cells import (
    CELLS,
    KEPT_HINT,
    KeptCells,
    find_cell,
    is_kept,
    read_kept,
    unpack,
)
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import load
from fulcrum.studies.proof import with_primary
from fulcrum.studies.result import StudyState, assemble_result, provenance
from fulcrum.training.fillers import Trunk
from fulcrum.training.rerun import trained_again
from fulcrum.training.session import Order

# --------------------------------------------------------------------------------------------------
# The files of a kept study by their hashes: what was changed, lost or put there since is named.
#
# Lines and cards bear checksums of their own. This tells of the rest: pictures, plan and costs, a
# study's result where it cannot be judged again, and cells of another study.


CONTENTS = "contents.json"
NAMED = 3  # files that a message names
AGAIN = (
    "take the folder from the repository again; if it was kept before there were such lists:"
    " fulcrum study keep PLAN FOLDER"
)


class ChangedFile(NamedTuple):
    """A file that is not as it was kept."""

    name: str
    what: str  # became of it

    def __str__(self) -> str:
        return f"{self.name} {self.what}"


def write_contents(folder: Path) -> None:
    """After all other files: until then the folder is not as it says."""
    strange = [path for _, path in _files(folder) if not path.is_file()]
    if strange:
        raise BadInput(
            f"{strange[0]} is no plain file", "take it away, and start the same command again"
        )
    write_sealed(
        folder / CONTENTS, {"files": {name: sha256_file(path) for name, path in _files(folder)}}
    )


def changed_files(folder: Path) -> Iterator[ChangedFile]:
    """Which files are not as they were kept."""
    if not (folder / CONTENTS).exists():
        yield ChangedFile(CONTENTS, "is missing")
        return
    kept: dict[str, Any] = read_sealed(folder / CONTENTS, KEPT_HINT, fields={"files": dict})[
        "files"
    ]
    here = dict(_files(folder))
    for name in sorted(kept.keys() | here.keys()):
        if name not in here:
            yield ChangedFile(name, "is missing")
        elif not here[name].is_file():
            yield ChangedFile(name, "is no plain file")
        elif name not in kept:
            yield ChangedFile(name, "was put there since")
        elif sha256_file(here[name]) != kept[name]:
            yield ChangedFile(name, "was changed")


def require_contents(folder: Path, besides: Collection[str] = ()) -> None:
    """All is as it was kept, but for files that are looked at otherwise."""
    lines = [str(changed) for changed in changed_files(folder) if changed.name not in besides]
    if lines:
        more = f", and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
        hint = KEPT_HINT if (folder / CONTENTS).exists() else AGAIN
        raise BadInput(f"{folder} is not as it was kept: {', '.join(lines[:NAMED])}{more}", hint)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Whatever is no folder: a pipe is named, not passed over."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise BadInput(f"{path} is a link, expected a plain file", KEPT_HINT)
        below = path.relative_to(folder)
        # an editor's and a notebook's own
        hidden = any(part.startswith(".") for part in below.parts)
        if not path.is_dir() and not hidden and below.as_posix() != CONTENTS:
            yield below.as_posix(), path


# --------------------------------------------------------------------------------------------------
# A study's numbers in a folder of a repository: written from finished cells, judged again from
# them, rerun to be sure.
#
# Whether what is kept still follows from the cells: fulcrum/studies/verify.py.
#
# plan.toml       the plan as it was written
# kept.json       its hash, the version of the science, how cells were measured, the command
# cells.jsonl     the cells (fulcrum/studies/kept_cells.py)
# costs.json      what the arms' steps took, timed in turns
# result.json     every table and verdict that follows from these
# contents.json   the hashes of all these (fulcrum/studies/kept.py)


PLAN, FACTS, RESULT = "plan.toml", "kept.json", "result.json"
HOW = re.compile("[0-9a-f]{12}")  # a hash, and a part of files' names
Say = Callable[[str], None]


class Kept(NamedTuple):
    """What a folder holds, laid out as runs: valid while `opened` is open."""

    plan: Plan
    layout: Layout
    runs: Path
    facts: dict[str, Any]
    cells: KeptCells


def keep(
    plan_file: Path,
    catalogue: Catalogue,
    out: Path,
    folder: Path,
    command: str,
    user_files: Mapping[str, str] | None = None,
) -> tuple[StudyResult, int]:
    """Write the finished cells of a plan under `out` into `folder`, beside those that it keeps
    already; returns what follows from all of them, and how many are new."""
    user_files, asked = user_files or {}, load(plan_file)
    require_same_plan(asked, folder)
    kept, how, new = read_kept(folder), measuring(asked).how, 0
    layout = lay_out(asked, catalogue, user_files, out)
    shown = set[str]()
    for cell in (*layout.before, *layout.cells):
        files = find_cell(out, cell, how, asked.evaluations)
        if files is None:
            continue
        new += kept.add(cell, files, how, asked.evaluations)
        # seed by seed: the first is the lowest
        if "metrics" in files.outcome and cell.arm not in shown:
            shown.add(cell.arm)
            kept.add_pictures(out, cell.key, how)
    if not kept.lines:
        raise BadInput(
            f"no cell of this plan is finished under {out}",
            f"run some: fulcrum study run {plan_file}",
        )
    with explained(
        "write", folder, message="could not keep the study", then="start the same command again"
    ):
        folder.mkdir(parents=True, exist_ok=True)
        kept.write(folder)
        write_atomic(folder / PLAN, read_regular(plan_file))
        # not one named for nothing
        own = dict(user_files) if user_files and not needs_no_files(asked, folder) else {}
        facts = {"plan": asked.hash, "science": SCIENCE, "how": how, "user_files": own}
        write_sealed(folder / FACTS, {**facts, "made": provenance(command).model_dump()})
        costs = folder_of(with_primary(asked, layout.arms[0].run), out, user_files) / COSTS
        if costs.is_file():
            write_atomic(folder / COSTS, read_regular(costs))
        result = judged_again(folder, catalogue, own)
        write_atomic(folder / RESULT, result_text(result))
        write_contents(folder)
    return result, new


def judged_again(
    folder: Path, catalogue: Catalogue, user_files: Mapping[str, str] | None = None
) -> StudyResult:
    """The result of a kept study, from its cells."""
    with opened(folder, catalogue, user_files) as kept:
        costs = read_costs(folder, kept.layout.arms)
        made = Provenance(**kept.facts["made"])
        result = assemble_result(
            kept.plan, kept.layout, kept.runs, made.command, StudyState(costs=costs, ended=True)
        )
        return result.model_copy(update={"made": made})


def read_facts(folder: Path) -> dict[str, Any]:
    """How a kept study was run: {plan, science, how, user_files, made}."""
    path, fields = (
        folder / FACTS,
        {"plan": str, "science": int, "how": str, "user_files": dict, "made": dict},
    )
    facts = read_sealed(path, KEPT_HINT, fields=fields)
    if not HOW.fullmatch(facts["how"]):
        raise BadInput(
            f"{path} does not say how cells were measured: expected a hash, found"
            f" {quoted(facts['how'])}",
            KEPT_HINT,
        )
    if strange := [value for value in facts["user_files"].values() if not isinstance(value, str)]:
        raise BadInput(
            f"{path} names files of one's own: expected a hash of each, found {quoted(strange[0])}",
            KEPT_HINT,
        )
    try:
        Provenance.model_validate(facts["made"])
    except ValidationError as error:
        raise BadInput(
            f"{path} does not say how the study was made: {explain(error)}", KEPT_HINT
        ) from None
    return facts


def needs_no_files(plan: Plan, folder: Path) -> bool:
    """Are its recipe and all its levers ours? Then no file of one's own has any part in it."""
    try:
        lay_out(plan, CATALOG, {}, folder)
    except FulcrumError:
        return False
    return True


@contextlib.contextmanager
def opened(
    folder: Path, catalogue: Catalogue, user_files: Mapping[str, str] | None = None
) -> Iterator[Kept]:
    """A kept study as a folder of runs, for as long as the block lasts."""
    require_kept(folder)
    facts, cells = read_facts(folder), read_kept(folder)
    asked, user_files = load(folder / PLAN), user_files or {}
    if facts["science"] != SCIENCE:
        raise BadInput(
            f"{folder} was trained by version {facts['science']} of the science, this is version"
            f" {SCIENCE}",
            "judge it with the release that kept it, or run its plan anew",
        )
    if facts["user_files"] != dict(user_files):
        raise BadInput(
            f"{folder} was run with other files of one's own", "name the same ones: --with FILE"
        )
    require_same_plan(asked, folder)
    with tempfile.TemporaryDirectory(prefix="fulcrum-kept-") as place:
        runs = Path(place)
        unpack(cells, facts["how"], runs)
        layout = lay_out(asked, catalogue, user_files, runs)
        yield Kept(with_primary(asked, layout.arms[0].run), layout, runs, facts, cells)


def rerun(
    folder: Path,
    catalogue: Catalogue,
    count: int,
    say: Say,
    user_files: Mapping[str, str] | None = None,
    *,
    compile_blocks: bool = True,
    seed: int = 0,
) -> list[tuple[Cell, str, str]]:
    """Train some cells anew, from their descriptions alone: (cell, the weights' hash as kept, as it
    came out).

    Which ones is drawn by `seed`; cells that begin from a trunk are passed over, since its weights
    are not kept.
    """
    with (
        opened(folder, catalogue, user_files) as kept,
        tempfile.TemporaryDirectory(prefix="fulcrum-rerun-") as place,
    ):
        whole = [cell for cell in kept.layout.cells if _rerunnable(cell, kept.cells)]
        plan, system = kept.plan, System(device=kept.plan.device, threads=kept.plan.threads)
        system = system.model_copy(update={"compile": plan.compile and compile_blocks})
        answers = list[tuple[Cell, str, str]]()
        for cell in random.Random(seed).sample(whole, min(count, len(whole))):
            say(f"training {cell.arm}, seed {cell.seed} ({cell.key}) anew")
            order = Order(
                cell.run, cell.seed, cell.phrase, Path(place), system, cell.user_files, quiet=True
            )
            answers.append(
                (
                    cell,
                    kept.cells.lines[cell.key]["result"]["weights_sha256"],
                    trained_again(order, say),
                )
            )
        return answers


def kept_studies(folder: Path) -> list[Path]:
    """A kept study itself, or all that lie in a folder."""
    if bears_study(folder):
        return [folder]
    studies = (
        sorted(path for path in folder.iterdir() if bears_study(path)) if folder.is_dir() else []
    )
    if not studies:
        raise BadInput(
            f"{folder} keeps no study",
            "name a folder that 'fulcrum study keep' wrote: docs/evidence has some",
        )
    return studies


def bears_study(folder: Path) -> bool:
    """Is a study kept here? One that has lost its cells is still one, and is told as that."""
    return any((folder / name).exists() for name in (CELLS, FACTS, CONTENTS))


def require_kept(folder: Path) -> None:
    if not is_kept(folder) and bears_study(folder):
        raise BadInput(f"{folder} has lost its {CELLS}", KEPT_HINT)
    if not is_kept(folder):
        raise BadInput(
            f"{folder} keeps no study",
            "name a folder that 'fulcrum study keep' wrote: docs/evidence has some",
        )


def require_same_plan(asked: Plan, folder: Path) -> None:
    if (folder / FACTS).exists() and read_facts(folder)["plan"] != asked.hash:
        raise BadInput(
            f"{folder} keeps another plan",
            "a plan that was changed is another study: choose another folder",
        )


def record_of(result: StudyResult) -> dict[str, Any]:
    """A result as it is kept: without what stands beside it (cells, pictures) and when and where it
    was written."""
    arms = tuple(arm.model_copy(update={"cells": ()}) for arm in result.arms)
    combinations = tuple(arm.model_copy(update={"cells": ()}) for arm in result.combinations)
    bare = {"arms": arms, "combinations": combinations, "grids": None, "probes": None}
    return result.model_copy(update=bare).model_dump(mode="json", exclude={"made"})


def result_text(result: StudyResult) -> str:
    return json.dumps(record_of(result), indent=1) + "\n"


def _rerunnable(cell: Cell, kept: KeptCells) -> bool:
    return "result" in kept.lines.get(cell.key, {}) and not isinstance(cell.run.start, Trunk)
