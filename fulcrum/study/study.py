"""A study from its plan to its page: prove the arms, run the cells, judge, write the report while it grows."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from fulcrum.levers.catalog import files_of
from fulcrum.report.page import write
from fulcrum.report.schema import StudyResult
from fulcrum.spec.edit import digest, key
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.system import System
from fulcrum.study.cell import Cell, finished
from fulcrum.study.cost import costs
from fulcrum.study.plan import Plan, from_plain
from fulcrum.study.proof import Arm, prove
from fulcrum.study.result import assemble_result
from fulcrum.study.runner import Board, Work, run_all
from fulcrum.train.build import assemble, require_witness
from fulcrum.train.feed import Feed
from fulcrum.train.folder import read_json, write_json

PAGE_EVERY = 5.0                                             # seconds between two versions of the live page


def lay_out(plan: Plan, catalogue: Catalogue, user_files: dict[str, str]) -> tuple[list[Arm], list[Cell]]:
    """Arms proven, and cells in the order they run: seed by seed, so that pairs are whole early."""
    arms = prove(plan, catalogue)
    own = {arm.name: files_of(arm.phrase, user_files) for arm in arms}
    cells = [Cell(arm.name, seed, arm.run, str(arm.phrase), key(arm.run, seed, own[arm.name]), own[arm.name])
             for seed in plan.seeds for arm in arms]
    return arms, cells


def witness(arms: list[Arm], cache: Path) -> None:
    """Build every arm and ask its levers whether they are really on: an arm that is the baseline proves nothing."""
    for arm in arms[1:]:
        built = assemble(arm.run, 0, System(), Feed(arm.run, 0, cache))
        require_witness(arm.levers, built)


def freeze(plan: Plan, out: Path, user_files: dict[str, str] | None = None) -> Path:
    """The folder of the study, named by the hash of its plan and the user's files; the plan in it must be this one."""
    folder = out / f"study-{digest([plan, user_files])[:16] if user_files else plan.hash}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {out}: {error.strerror}", "choose another place with --out") from error
    path = folder / "plan.json"
    if path.exists():
        if from_plain(read_json(path, "remove the folder")) != plan:
            raise BadInput(f"{path} holds another plan than its name says", "it was edited by hand: remove the folder")
    else:
        write_json(path, plan.model_dump())
    return folder


def run(plan: Plan, catalogue: Catalogue, out: Path, command: str, say: Callable[[str], None], *,
        files: tuple[Path, ...] = (), user_files: dict[str, str] | None = None,
        compile_blocks: bool = True) -> tuple[StudyResult, Path]:
    """Run a study to its end; started again, it goes on. Returns the result and the path of the page."""
    begun = time.monotonic()
    user_files = user_files or {}
    arms, cells = lay_out(plan, catalogue, user_files)
    folder = freeze(plan, out, user_files)
    lanes = max(1, (os.cpu_count() or 1) // plan.threads)
    system = System(threads=plan.threads, compile=plan.compile and compile_blocks)
    work = Work(out, system, plan.samples, files)
    page = folder / "report.html"
    say(f"{len(arms)} arms x {len(plan.seeds)} seeds = {len(cells)} cells, {lanes} side by side; the page grows at {page}")
    if any(finished(out, cell.key, plan.samples) is None for cell in cells):
        witness(arms, out / "cache")
    shown = [0.0, -1.0]                                      # when the page was written, how many cells were done then

    def tick(board: Board) -> None:
        now, done = time.monotonic(), board.count("done")
        if done == shown[1] and now - shown[0] < PAGE_EVERY:
            return
        if done != shown[1]:
            left = board.seconds_left(lanes)
            say(f"{done} of {len(cells)} cells done after {now - begun:.0f} s"
                + (f", about {left / 60:.0f} min left" if left is not None and done < len(cells) else ""))
        shown[:] = [now, done]
        write(assemble_result(plan, arms, cells, out, command, board, lanes), folder)

    board = run_all(cells, work, lanes, tick)
    say("timing the arms' steps in turns")
    spent = costs(arms, out / "cache", plan.threads)
    result = assemble_result(plan, arms, cells, out, command, board, lanes, spent, time.monotonic() - begun)
    write(result, folder)
    return result, page
