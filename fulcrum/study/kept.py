"""A study's numbers in a folder of a repository: written from finished cells, judged again from them, rerun to be sure.

plan.toml       the plan as it was written
kept.json       its hash, the version of the science, how cells were measured, the command
cells.jsonl     the cells (fulcrum/study/run/kept_cells.py)
costs.json      what the arms' steps took, timed in turns
result.json     every table and verdict that follows from these: `verify` finds them again
contents.json   the hashes of all these (fulcrum/study/kept_contents.py)
"""

import contextlib
import json
import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fulcrum.dist.machine.machine_facts import machine_words
from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import read_regular
from fulcrum.files.refusals import explained
from fulcrum.files.sealed import read_json, read_sealed, write_sealed
from fulcrum.report.schema import Provenance, StudyResult
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.system import System
from fulcrum.spec.user_errors import PREFIX
from fulcrum.spec.version import SCIENCE
from fulcrum.study.judge.result import StudyState, assemble_result, provenance
from fulcrum.study.kept_contents import changed_files, require_contents, write_contents
from fulcrum.study.kept_means import mean_differences
from fulcrum.study.plan.frozen_plan import folder_of
from fulcrum.study.plan.plan import Plan
from fulcrum.study.plan.plan_file import load
from fulcrum.study.plan.requirements import with_primary
from fulcrum.study.run.arm_cost import COSTS, read_costs
from fulcrum.study.run.cell import Cell
from fulcrum.study.run.cell_copy import find_cell
from fulcrum.study.run.kept_cells import CELLS, HINT, KeptCells, is_kept, read_kept, unpack
from fulcrum.study.run.layout import Layout, lay_out, measuring
from fulcrum.train.fillers import Trunk
from fulcrum.train.rerun import trained_again
from fulcrum.train.session import Order

PLAN, FACTS, RESULT = "plan.toml", "kept.json", "result.json"
CLOSE = 1e-6  # relative: another machine's last bits move no verdict
NAMED = 6  # differences that are named
Say = Callable[[str], None]


class Kept(NamedTuple):
    """What a folder holds, laid out as runs: valid while `opened` is open."""

    plan: Plan
    layout: Layout
    runs: Path
    facts: dict[str, Any]
    cells: KeptCells


class Verified(NamedTuple):
    """A study judged again from its cells."""

    result: StudyResult
    cells: int
    effects: int
    differences: tuple[str, ...]  # from what was kept, each in a line; none: all is as it was
    whole: bool = True  # False: without the files that it was run with, so only means were computed again


def keep(
    plan_file: Path,
    catalogue: Catalogue,
    out: Path,
    folder: Path,
    command: str,
    user_files: Mapping[str, str] | None = None,
) -> tuple[StudyResult, int]:
    """Write the finished cells of a plan under `out` into `folder`, beside those that it keeps already; returns what
    follows from all of them, and how many are new."""
    user_files, asked = user_files or {}, load(plan_file)
    _require_same_plan(asked, folder)
    kept, how, new = read_kept(folder), measuring(asked).how, 0
    layout = lay_out(asked, catalogue, user_files, out)
    shown = set[str]()
    for cell in (*layout.before, *layout.cells):
        files = find_cell(out, cell, how, asked.evaluations)
        if files is None:
            continue
        new += kept.add(cell, files, how, asked.evaluations)
        if "metrics" in files.outcome and cell.arm not in shown:  # seed by seed: the first is the lowest
            shown.add(cell.arm)
            kept.add_pictures(out, cell.key, how)
    if not kept.lines:
        raise BadInput(f"no cell of this plan is finished under {out}", f"run some: fulcrum study run {plan_file}")
    with explained("write", folder, message="could not keep the study", then="start the same command again"):
        folder.mkdir(parents=True, exist_ok=True)
        kept.write(folder)
        write_atomic(folder / PLAN, read_regular(plan_file))
        facts = {"plan": asked.hash, "science": SCIENCE, "how": how, "user_files": dict(user_files)}
        write_sealed(folder / FACTS, {**facts, "made": provenance(command).model_dump()})
        costs = folder_of(with_primary(asked, layout.arms[0].run), out, user_files) / COSTS
        if costs.is_file():
            write_atomic(folder / COSTS, read_regular(costs))
        result = judged_again(folder, catalogue, user_files)
        write_atomic(folder / RESULT, json.dumps(_record(result), indent=1) + "\n")
        write_contents(folder)
    return result, new


def judged_again(folder: Path, catalogue: Catalogue, user_files: Mapping[str, str] | None = None) -> StudyResult:
    """The result of a kept study, from its cells."""
    with opened(folder, catalogue, user_files) as kept:
        costs = read_costs(folder, kept.layout.arms)
        made = Provenance(**kept.facts["made"])
        result = assemble_result(kept.plan, kept.layout, kept.runs, made.command, StudyState(costs=costs, ended=True))
        return result.model_copy(update={"made": made})


def require_asked(folders: Sequence[Path], user_files: Mapping[str, str]) -> None:
    """Files of one's own that no study was run with would be ignored."""
    asked = {name for folder in folders for name in read_facts(folder)["user_files"]}
    if strange := sorted(user_files.keys() - asked):
        raise BadInput(
            f"no study here was run with {_file_names(strange)}",
            f"leave it out; they were run with {_file_names(sorted(asked)) or 'no file of one’s own'}",
        )


def _file_names(modules: Sequence[str]) -> str:
    """'my_lever.py' of fulcrum_user_my_lever_0123456789ab."""
    return ", ".join(f"{name.removeprefix(PREFIX).rpartition('_')[0]}.py" for name in modules)


def verify(folder: Path, catalogue: Catalogue, user_files: Mapping[str, str] | None = None) -> Verified:
    """Judge a kept study again, and hold every number and verdict of it against what was kept. Of one that was run with
    files of one's own which are not named, only the means of its cells."""
    _require_kept(folder)
    read_kept(folder)  # a line that was changed is told as that line
    needed, given = read_facts(folder)["user_files"], user_files or {}
    require_contents(folder, besides=(RESULT,))
    if not needed.keys() <= given.keys():
        return _means_verified(folder)
    result = judged_again(folder, catalogue, {name: given[name] for name in needed})
    changed = tuple(
        differences(_without_card_words(read_json(folder / RESULT, HINT)), _without_card_words(_record(result)))
    )
    return Verified(result, len(read_kept(folder).lines), len(result.effects), changed)


def _means_verified(folder: Path) -> Verified:
    result, cells = _as_kept(folder), read_kept(folder)
    rows = list(mean_differences(result, cells))
    means = [line for name, before, after in rows for line in differences(before, after, name)]
    return Verified(result, len(cells.lines), len(rows), (*changed_files(folder), *means), whole=False)


def results(folder: Path, catalogue: Catalogue) -> dict[str, StudyResult]:
    """The studies that lie in a folder, by name, judged again; one that was run with files of one's own, or on pictures
    that are not here, as it was kept."""
    return {study.name: _judged_or_kept(study, catalogue) for study in kept_studies(folder)}


def read_facts(folder: Path) -> dict[str, Any]:
    """How a kept study was run: {plan, science, how, user_files, made}."""
    fields = {"plan": str, "science": int, "how": str, "user_files": dict, "made": dict}
    return read_sealed(folder / FACTS, HINT, fields=fields)


def _judged_or_kept(folder: Path, catalogue: Catalogue) -> StudyResult:
    _require_kept(folder)
    alone = not read_facts(folder)["user_files"]
    require_contents(folder, besides=(RESULT,) if alone else ())
    return judged_again(folder, catalogue) if alone else _as_kept(folder)


def _as_kept(folder: Path) -> StudyResult:
    """As it was judged where it was kept: without its cells and pictures."""
    record, made = read_json(folder / RESULT, HINT), read_facts(folder)["made"]
    machines = Counter(filter(None, (machine_words(line["outcome"]) for line in read_kept(folder).lines.values())))
    words = [f"{machine} ({count} cell{'s' * (count > 1)})" for machine, count in machines.items()]
    try:
        return StudyResult.model_validate({**record, "made": made | ({"machine": words[0]} if len(words) == 1 else {})})
    except (TypeError, ValidationError):
        raise BadInput(f"{folder / RESULT} is not the result of a study", HINT) from None


@contextlib.contextmanager
def opened(folder: Path, catalogue: Catalogue, user_files: Mapping[str, str] | None = None) -> Iterator[Kept]:
    """A kept study as a folder of runs, for as long as the block lasts."""
    _require_kept(folder)
    facts, cells = read_facts(folder), read_kept(folder)
    asked, user_files = load(folder / PLAN), user_files or {}
    if facts["science"] != SCIENCE:
        raise BadInput(
            f"{folder} was trained by version {facts['science']} of the science, this is version {SCIENCE}",
            "judge it with the release that kept it, or run its plan anew",
        )
    if facts["user_files"] != dict(user_files):
        raise BadInput(f"{folder} was run with other files of one's own", "name the same ones: --with FILE")
    _require_same_plan(asked, folder)
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
    """Train some cells anew, from their descriptions alone: (cell, the weights' hash as kept, as it came out).

    Which ones is drawn by `seed`; cells that begin from a trunk are passed over, since its weights are not kept.
    """
    with opened(folder, catalogue, user_files) as kept, tempfile.TemporaryDirectory(prefix="fulcrum-rerun-") as place:
        whole = [cell for cell in kept.layout.cells if _rerunnable(cell, kept.cells)]
        plan, system = kept.plan, System(device=kept.plan.device, threads=kept.plan.threads)
        system = system.model_copy(update={"compile": plan.compile and compile_blocks})
        answers = list[tuple[Cell, str, str]]()
        for cell in random.Random(seed).sample(whole, min(count, len(whole))):
            say(f"training {cell.arm}, seed {cell.seed} ({cell.key}) anew")
            order = Order(cell.run, cell.seed, cell.phrase, Path(place), system, cell.user_files, quiet=True)
            answers.append((cell, kept.cells.lines[cell.key]["result"]["weights_sha256"], trained_again(order, say)))
        return answers


def kept_studies(folder: Path) -> list[Path]:
    """A kept study itself, or all that lie in a folder."""
    if is_kept(folder):
        return [folder]
    # One that has lost its cells is still one, and is told as that.
    studies = (
        sorted(path for path in folder.iterdir() if is_kept(path) or (path / FACTS).exists()) if folder.is_dir() else []
    )
    if not studies:
        raise BadInput(f"{folder} keeps no study", "name a folder that 'fulcrum study keep' wrote: docs/evidence has some")
    return studies


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where two plain values differ: numbers by more than another machine's rounding, all else at all."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from differences(before.get(name), after.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif _number(before) and _number(after):
        if not math.isclose(before, after, rel_tol=CLOSE, abs_tol=1e-12):
            yield f"{path}: kept {before:g}, found {after:g}"
    elif before != after:
        yield f"{path}: kept {_short(before)}, found {_short(after)}"


def _require_kept(folder: Path) -> None:
    if not is_kept(folder) and (folder / FACTS).exists():
        raise BadInput(f"{folder} has lost its {CELLS}", HINT)
    if not is_kept(folder):
        raise BadInput(f"{folder} keeps no study", "name a folder that 'fulcrum study keep' wrote: docs/evidence has some")


def _require_same_plan(asked: Plan, folder: Path) -> None:
    if (folder / FACTS).exists() and read_facts(folder)["plan"] != asked.hash:
        raise BadInput(f"{folder} keeps another plan", "a plan that was changed is another study: choose another folder")


def _record(result: StudyResult) -> dict[str, Any]:
    """A result as it is kept: without what stands beside it (cells, pictures) and when and where it was written."""
    arms = tuple(arm.model_copy(update={"cells": ()}) for arm in result.arms)
    combinations = tuple(arm.model_copy(update={"cells": ()}) for arm in result.combinations)
    bare = {"arms": arms, "combinations": combinations, "grids": None, "probes": None}
    return result.model_copy(update=bare).model_dump(mode="json", exclude={"made"})


def _without_card_words(record: Any) -> Any:
    """A result without the sentences of its levers' cards: one that is worded better later changes no finding."""
    if not isinstance(record, dict):
        return record
    arms = {name: record.get(name) for name in ("arms", "combinations")}
    return {**record, **{name: [_bare(arm) for arm in rows] for name, rows in arms.items() if isinstance(rows, list)}}


def _bare(arm: Any) -> Any:
    return {name: value for name, value in arm.items() if name != "says"} if isinstance(arm, dict) else arm


def _rerunnable(cell: Cell, kept: KeptCells) -> bool:
    return "result" in kept.lines.get(cell.key, {}) and not isinstance(cell.run.start, Trunk)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def named(lines: Sequence[str]) -> str:
    """The first few of many lines."""
    more = f"\n  and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return "\n".join(f"  {line}" for line in lines[:NAMED]) + more
