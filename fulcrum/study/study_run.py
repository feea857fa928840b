"""A study from its plan to its page: prove the arms, run the cells, judge, write the report while it grows."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from fulcrum.judge.page import beating
from fulcrum.judge.schema import StudyResult
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.run import System
from fulcrum.study.plan.fingerprint import is_proven, prove_by_steps
from fulcrum.study.plan.frozen_plan import added_seeds, changed_since, folder_of, freeze
from fulcrum.study.plan.plan import Plan
from fulcrum.study.plan.requirements import require_runnable, with_primary
from fulcrum.study.run.cell import Tracked
from fulcrum.study.run.clock import Clock
from fulcrum.study.run.layout import lay_out, measuring, unmeasured_on_the_way
from fulcrum.study.run.workers.capacity import Room, room
from fulcrum.study.run.workers.ray_cluster import RAY_ADDRESS, cluster
from fulcrum.study.run.workers.runner import Lane, Work
from fulcrum.study.study_rounds import Say, StudyRun
from fulcrum.training.dist.ranks import TIMEOUT


class Executor(NamedTuple):
    """Where cells run: processes of this machine, or a Ray cluster."""

    kind: str = "local"
    address: str | None = None  # of a cluster that is there; None starts one
    lanes: int | None = None  # cells side by side; None = what there is room for


HERE = Executor()


def run(
    plan: Plan,
    catalogue: Catalogue,
    out: Path,
    command: str,
    say: Say,
    *,
    files: tuple[Path, ...] = (),
    user_files: dict[str, str] | None = None,
    compile_blocks: bool = True,
    executor: Executor = HERE,
    retry_failed: bool = False,
) -> tuple[StudyResult, Path]:
    """Run a study to its end; started again, it goes on. Returns the result and the path of the page.

    A cell whose training failed by itself is an outcome and is not run again, unless `retry_failed`.
    """
    clock, user_files = Clock(), user_files or {}
    torch.set_num_threads(plan.threads)  # all cores beside a busy neighbour are slower than one
    layout = lay_out(plan, catalogue, user_files, out)
    plan = with_primary(plan, layout.arms[0].run)
    require_runnable(plan, layout, folder_of(plan, out, user_files), here=executor.kind != "ray")
    folder = freeze(plan, out, user_files)
    seen = is_proven(layout, folder)
    system = System(
        device=plan.device,
        threads=plan.threads,
        processes=plan.processes,
        compile=plan.compile and compile_blocks,
        mesh=plan.mesh,
        microbatch=plan.microbatch,
        recompute=plan.recompute,
        save_every=plan.save_every,
    )
    work = Work(
        out,
        system,
        measuring(plan),
        files,
        tracked=Tracked(plan.track, f"{plan.title[:80]} {folder.name.removeprefix('study-')[:8]}", plan.keep_checkpoints),
        timeout=plan.timeout or TIMEOUT,
    )
    space = room(
        [arm.run for arm in layout.arms],
        plan.threads,
        plan.processes,
        gpus=torch.cuda.device_count() if plan.device == "cuda" else None,
    )
    session = StudyRun(plan, catalogue, user_files, out, folder, work, command, say, clock, layout)
    with beating(folder), session.showing(retry_failed):
        done, left = session.done(), session.left()
        if left:
            say(f"the page grows at {folder / 'report.html'}")
        say(bare) if (bare := unmeasured_on_the_way(plan, layout, out)) else None
        if not seen:
            prove_by_steps(layout, plan, folder, out, clock, say)
        if left:
            changed = changed_since(plan, folder)
            say(f"{changed}, and {done} of its {len(layout.cells)} cells are finished already") if changed else None
            say(added.text) if (added := added_seeds(plan, out)) else None
        with _place(executor, work, space) as (lanes, lane):
            side = f"{lanes} side by side on Ray" if executor.kind == "ray" else str(space._replace(lanes=lanes))
            seeds, cells = str(len(plan.seeds)), str(len(layout.cells))
            if plan.looks:
                seeds = f"{plan.looks[0]} to {seeds}"
                cells = f"{len(layout.arms) * plan.looks[0]} to {cells}"
            say(f"{len(layout.arms)} arms x {seeds} seeds = {cells} cells, {side}")
            result = session.run(lanes, lane)
    clock.write(folder, lanes=lanes, cpu=time.process_time(), cells=[cell.key for cell in layout.cells], already=done)
    session.require_answer()
    return result, folder / "report.html"


@contextlib.contextmanager
def _place(executor: Executor, work: Work, space: Room) -> Iterator[tuple[int, type[Lane]]]:
    if executor.kind == "ray":
        lanes = executor.lanes or (None if executor.address or os.environ.get(RAY_ADDRESS) else space.lanes)
        with cluster(work.system, lanes, executor.address, work.out) as place:
            yield place
    else:
        yield executor.lanes or space.lanes, Lane
