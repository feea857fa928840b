"""Cells of one plan that several machines ran, joined into one study and judged; nothing is trained
here."""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import explained, read_regular
from fulcrum.judge.page import beating, write
from fulcrum.judge.schema import StudyResult
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE
from fulcrum.studies.arm_cost import COSTS, read_costs, write_costs
from fulcrum.studies.cell import Cell, Layout, lay_out, measuring
from fulcrum.studies.frozen_plan import folder_of, freeze
from fulcrum.studies.kept import read_facts
from fulcrum.studies.kept_cells import CellFiles, copy_cell, find_cell, is_kept, read_kept, unpack
from fulcrum.studies.plan import Plan
from fulcrum.studies.proof import with_primary
from fulcrum.studies.result import StudyState, assemble_result
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.trained_run import KEY

NAMED = 6  # cells that were left out or are missing, and are named
OTHERWISE = "measured in another way"
MEASURE = "run this plan there with this version first: what is trained is only measured anew"
Say = Callable[[str], None]


class Joined(NamedTuple):
    """What became of the cells that other folders had."""

    copied: dict[str, int]  # folder -> cells taken from it
    present: int = 0  # there already, with the same numbers
    left_out: tuple[str, ...] = ()  # cells that were not taken, and why
    others: int = 0  # runs that are not of this plan
    older: int = 0  # of them: this plan's, trained by another version of the science


def merge(
    plan: Plan,
    catalogue: Catalogue,
    folders: Sequence[Path],
    out: Path,
    command: str,
    say: Say,
    *,
    user_files: dict[str, str] | None = None,
    weights: bool = True,
) -> tuple[StudyResult, Path, Joined]:
    """Join the finished and failed cells of a plan from other folders of runs into `out`, and write
    the page of what is there. What `out` has stays as it is; `command` is what runs the cells that
    are missing."""
    user_files = user_files or {}
    with contextlib.ExitStack() as unpacked:
        runs = [_as_runs(folder, plan, user_files, unpacked) for folder in folders]
        result, page, joined = _merged(
            plan, catalogue, runs, out, command, say, user_files, weights, folders
        )
    return result, page, joined


def _as_runs(
    folder: Path, plan: Plan, user_files: dict[str, str], unpacked: contextlib.ExitStack
) -> Path:
    """The folder itself, or, where a study is kept in it, its cells and costs laid out as runs."""
    if not is_kept(folder):
        return folder
    runs = Path(unpacked.enter_context(tempfile.TemporaryDirectory(prefix="fulcrum-kept-")))
    unpack(read_kept(folder), read_facts(folder)["how"], runs)
    if (folder / COSTS).is_file():
        study = folder_of(plan, runs, user_files)
        study.mkdir()
        write_atomic(study / COSTS, read_regular(folder / COSTS), flush=False)
    return runs


def _merged(
    plan: Plan,
    catalogue: Catalogue,
    folders: Sequence[Path],
    out: Path,
    command: str,
    say: Say,
    user_files: dict[str, str],
    weights: bool,
    names: Sequence[Path],
) -> tuple[StudyResult, Path, Joined]:
    """`names` are what a person calls the folders."""
    for folder in folders:
        _require_runs(folder, out)
    layout = lay_out(plan, catalogue, user_files, out)
    plan = with_primary(plan, layout.arms[0].run)
    study = freeze(plan, out, user_files)
    with beating(study):
        joined = _join(plan, catalogue, user_files, folders, out, weights)
        joined = joined._replace(
            copied=dict(zip(map(str, names), joined.copied.values(), strict=True))
        )
        for line in _words(joined):
            say(line)
        layout = lay_out(plan, catalogue, user_files, out)
        _take_costs(plan, layout, user_files, folders, out, study)
        costs = read_costs(study, layout.arms)
        if not any(find_cell(out, cell, measuring(plan).how, ()) for cell in layout.cells):
            reason = f": {joined.left_out[0]}" if joined.left_out else ""
            raise BadInput(
                f"no finished cell of this plan was found in {', '.join(map(str, names))}{reason}",
                MEASURE,
            )
        result = assemble_result(plan, layout, out, command, StudyState(costs=costs, ended=True))
        with explained(
            "write", study, message="could not write the page", then="start the same command again"
        ):
            write(result, study)
        say(_missing(result))
    return result, study / "report.html", joined


def _require_runs(folder: Path, out: Path) -> None:
    if not folder.is_dir():
        raise BadInput(
            f"{folder} is no folder", "name the --out folder that the other machine wrote to"
        )
    if folder.resolve() == out.resolve():
        raise BadInput(
            f"{folder} is the folder that cells are joined into",
            "leave it out: what it has is kept",
        )
    if not _runs(folder):
        inside = (folder / "plan.json").is_file() or KEY.fullmatch(folder.resolve().name)
        raise BadInput(
            f"{folder} holds no runs",
            "name the folder that it lies in"
            if inside
            else "name the --out folder that the other machine wrote to",
        )


def _runs(folder: Path) -> list[Path]:
    """Folders that are called like a run."""
    return [path for path in sorted(folder.iterdir()) if KEY.fullmatch(path.name) and path.is_dir()]


def _join(
    plan: Plan,
    catalogue: Catalogue,
    user_files: dict[str, str],
    folders: Sequence[Path],
    out: Path,
    weights: bool,
) -> Joined:
    """Trunks and tries of rates first: the cells that depend on them are known then."""
    joined = Joined(dict.fromkeys(map(str, folders), 0))
    seen = set[str]()
    while True:
        layout = lay_out(plan, catalogue, user_files, out)
        new = [
            cell for cell in (*layout.before, *layout.cells) if cell.known and cell.key not in seen
        ]
        if not new:
            return _with_others(joined, layout, folders)
        seen |= {cell.key for cell in new}
        joined = _join_cells(plan, new, folders, out, weights, joined)


def _join_cells(
    plan: Plan,
    cells: Iterable[Cell],
    folders: Sequence[Path],
    out: Path,
    weights: bool,
    joined: Joined,
) -> Joined:
    """All are looked at before the first is copied: two that contradict each other on one kind of
    machine are refused."""
    how, taken = measuring(plan).how, list[tuple[Cell, CellFiles, Path]]()
    present, left_out = joined.present, list(joined.left_out)
    for cell in cells:
        own = find_cell(out, cell, how, plan.evaluations)
        first = own
        if own is None and (out / cell.key).exists():
            left_out.append(
                f"{_name(cell)}: {out} has begun it itself; go on there, or remove it with 'fulcrum"
                " runs rm'"
            )
            continue
        for folder in folders:
            try:
                files = find_cell(folder, cell, how, plan.evaluations)
            except FulcrumError as error:
                left_out.append(f"{_name(cell)}: {error.message}")
                continue
            if files is None:
                left_out += _unfit(cell, folder)
                continue
            if first is None:
                first = files
                taken.append((cell, files, folder))
            elif not files.contradicts(first):
                present += 1
            elif files.ran_alike(first):
                raise BadInput(
                    f"{_name(cell)} was found with other numbers in {files.place} than in"
                    f" {first.place}, on the same kind of machine; nothing was joined",
                    "one of them was edited or trained by other code: leave its folder out",
                )
            else:
                left_out.append(
                    f"{_name(cell)}: {files.place} has other numbers than {first.place}, which is"
                    " kept"
                )
    copied = dict(joined.copied)
    for cell, files, folder in taken:
        try:
            copy_cell(files, cell, out, weights)
            copied[str(folder)] += 1
        except BadInput as error:
            left_out.append(f"{_name(cell)}: {error.message}")
    return joined._replace(copied=copied, present=present, left_out=tuple(left_out))


def _unfit(cell: Cell, folder: Path) -> list[str]:
    """Why a folder that has a cell gives nothing of it."""
    place = folder / cell.key
    if not place.is_dir():
        return []
    measured = any(place.glob("measured-*.json"))
    why = f"was {OTHERWISE} than this plan and version do" if measured else "is not finished"
    return [f"{_name(cell)}: {place} {why}"]


def _with_others(joined: Joined, layout: Layout, folders: Sequence[Path]) -> Joined:
    own = {cell.key for cell in (*layout.before, *layout.cells)}
    others = [path for folder in folders for path in _runs(folder) if path.name not in own]
    asked = {(cell.phrase, cell.seed) for cell in layout.cells}
    older = 0
    for path in others:
        try:
            about = RunFolder(path).about()
        except FulcrumError:
            continue
        older += (about.get("phrase"), about.get("seed")) in asked and about.get(
            "science", FIRST_SCIENCE
        ) != SCIENCE
    return joined._replace(others=len(others), older=older)


def _take_costs(
    plan: Plan,
    layout: Layout,
    user_files: dict[str, str],
    folders: Sequence[Path],
    out: Path,
    study: Path,
) -> None:
    """Time ratios come from one machine that took all arms' steps in turns: of the first folder
    that has them."""
    for folder in folders:
        if read_costs(study, layout.arms) is not None:
            return
        costs = read_costs(folder_of(plan, folder, user_files), layout.arms)
        if costs is not None:
            write_costs(study, costs)


def _name(cell: Cell) -> str:
    return f"{cell.arm}, seed {cell.seed}" + (
        f", {cell.rate:g} x rate" if cell.kind == "rate" else ""
    )


def _words(joined: Joined) -> Iterable[str]:
    yield "joined " + ", ".join(f"{count} from {folder}" for folder, count in joined.copied.items())
    if joined.present:
        yield f"{joined.present} were there already, with the same numbers"
    yield from (f"left out: {line}" for line in joined.left_out[:NAMED])
    if len(joined.left_out) > NAMED:
        yield f"left out: {len(joined.left_out) - NAMED} more"
    if any(OTHERWISE in line for line in joined.left_out):
        yield MEASURE
    if joined.others:
        version = (
            f"; {joined.older} of them are this plan's by another version of the science, which is"
            f" {SCIENCE} here"
        )
        yield f"{joined.others} runs are not of this plan{version if joined.older else ''}"


def _missing(result: StudyResult) -> str:
    lacking = [
        f"{arm.name}, seed {cell.seed}"
        for arm in result.arms
        for cell in arm.cells
        if cell.state == "waiting"
    ]
    total = result.progress.total
    if not lacking:
        return f"all {total} cells are there"
    named = "; ".join(lacking[:NAMED]) + (
        f"; and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
    )
    return (
        f"{len(lacking)} of {total} cells are missing: {named}\n  run them with:"
        f" {result.made.command}"
    )
