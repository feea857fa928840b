"""Run a study from its plan to its page, round by round."""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fulcrum.files.paths import explained
from fulcrum.judge.card import METRICS
from fulcrum.judge.cells import CellRecord, finished_cells
from fulcrum.judge.design import JudgedArm
from fulcrum.judge.metrics import EQUAL
from fulcrum.judge.page import beating, write
from fulcrum.judge.schema import StudyResult, TimedCost
from fulcrum.judge.sequence import (
    Sequenced,
    StoppedArm,
    ending,
    hopeless,
    sequence,
    sequential_findings,
)
from fulcrum.judge.statistics import paired_effect
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.run import System
from fulcrum.studies.arm_cost import Clock, costs, read_costs, write_costs
from fulcrum.studies.arms import baseline_of
from fulcrum.studies.cell import (
    Cell,
    Layout,
    Tracked,
    at,
    finished,
    forget_failures,
    lay_out,
    measuring,
    read_points,
    unmeasured_on_the_way,
)
from fulcrum.studies.frozen_plan import added_seeds, changed_since, folder_of, freeze
from fulcrum.studies.judging import judged_arms, telling_share
from fulcrum.studies.plan import Plan
from fulcrum.studies.proof import is_proven, prove_by_steps, require_runnable, with_primary
from fulcrum.studies.ray_cluster import RAY_ADDRESS, cluster
from fulcrum.studies.result import StudyState, assemble_result, collect
from fulcrum.studies.runner import Board, Lane, Room, TimeLeft, Work, line, room, run_all, standing
from fulcrum.training.cost_record import of_arm
from fulcrum.training.dist.machine import at_hand
from fulcrum.training.dist.ranks import TIMEOUT

# --------------------------------------------------------------------------------------------------
# One go at a study: what is not finished is run, round by round, while the page is kept up to date.


PAGE_EVERY = 5.0  # seconds between two versions of the live page, at least
PAGE_SHARE = 0.005  # of the time may go into it: it computes beside the cells
NAMED = 4  # failed cells that are named at the end
LINE_EVERY = 15.0  # seconds after which the next page is told on the terminal too

Say = Callable[[str], None]


class StudyRun:
    """The rounds of a study: trunks and rates, then cells, all at once or look by look."""

    def __init__(
        self,
        plan: Plan,
        catalogue: Catalogue,
        user_files: dict[str, str],
        out: Path,
        folder: Path,
        work: Work,
        command: str,
        say: Say,
        clock: Clock,
        layout: Layout,
    ) -> None:
        self.plan, self.catalogue, self.user_files, self.out, self.folder = (
            plan,
            catalogue,
            user_files,
            out,
            folder,
        )
        self.work, self.command, self.say, self.clock, self.layout = (
            work,
            command,
            say,
            clock,
            layout,
        )
        self.kept = dict[str, CellRecord]()
        self.board: Board | None = None  # of the round that runs, or ran last
        self.stopped: list[StoppedArm] = []
        self.spent = read_costs(folder, layout.arms)

    def done(self) -> int:
        return sum(
            not cell.failed for by_seed in self.records().values() for cell in by_seed.values()
        )

    def records(self) -> dict[str, dict[int, CellRecord]]:
        """arm -> seed -> the cells that have finished or failed."""
        return collect(self.layout.cells, self.out, self.work.measuring.how, self.kept)

    def sequenced(self) -> Sequenced:
        return sequence(self.plan, self._arms(), self.records())

    def _arms(self) -> list[JudgedArm]:
        return judged_arms(self.plan, self.layout.arms)

    def left(self) -> int:
        """Cells that may still be run: not finished, not failed by themselves, and not of an arm
        that needs no more."""
        cells = self.layout.cells
        if self.plan.looks:
            sequenced = self.sequenced()
            cells = [cell for cell in cells if not sequenced.spares(cell.arm, cell.seed)]
        return len(self._unsettled(cells))

    def _unsettled(self, cells: Sequence[Cell]) -> list[Cell]:
        records = self.records()
        return [cell for cell in cells if cell.seed not in records.get(cell.arm, ())]

    @contextlib.contextmanager
    def showing(self, retry_failed: bool = False) -> Iterator[None]:
        """There is a page from the beginning on, and one that was left before the end does not say
        that it runs."""
        if retry_failed:
            again = forget_failures(self.layout.cells, self.out, self.work.measuring.how)
            self.say(f"{again} failed cell{'s are' if again != 1 else ' is'} run again")
        if self.left():
            self._write(self._result(StudyState()))
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # what stopped it is worth more than the page
                if self.board is not None:
                    self.board.let_go()
                if self.left():  # a finished page holds costs that are not known here
                    self._write(
                        self._result(
                            StudyState(self.board, stopped=tuple(self.stopped), ended=True)
                        )
                    )
            raise

    def run(self, lanes: int, lane: type[Lane]) -> StudyResult:
        self.begun, self.lanes, self.lane = time.monotonic(), lanes, lane
        if self.plan.looks:
            board = self._run_looks()
        else:
            self._prepare()
            if self.plan.stop_early:
                for share in self.plan.evaluations[:-1]:
                    self._run(self._alive(), share)
                    self._stop_hopeless(share)
            board = self._run(self._alive())
        with self.clock.counting("costs"):
            spent = self._costs()
        seconds = time.monotonic() - self.begun
        result = self._result(StudyState(board, None, spent, seconds, tuple(self.stopped)))
        self._write(result)
        return result

    def _prepare(self, spared: Collection[int] = ()) -> None:
        """Trunks, then rates: each makes the next cells known. No trunk is trained for a seed that
        is not needed yet."""
        how = self.work.measuring.how
        while True:
            before = [cell for cell in self.layout.before if cell.known and cell.seed not in spared]
            before = [cell for cell in before if finished(self.out, cell, how) is None]
            if not before:
                break
            self.say(f"first {len(before)} short trainings that the arms depend on")
            self._run(before)
            self.layout = lay_out(self.plan, self.catalogue, self.user_files, self.out)

    def _run_looks(self) -> Board:
        """The seeds of the first look for all arms, then, look by look, more for those that are
        undecided."""
        ended = set[str]()
        while True:
            sequenced = self.sequenced()
            rows = sequential_findings(self.plan, self._arms(), self.records(), sequenced)
            words = {row.arm: row.verdict for row in rows}
            for arm, answer in sequenced.answers.items():
                if answer.left and arm not in ended:
                    self.say(
                        f"{arm} needs no more seeds: {words[arm]},"
                        f" {ending(answer, self.plan.looks).text}"
                    )
            ended = {arm for arm, answer in sequenced.answers.items() if answer.left}
            pairs = max(seeds.now for seeds in sequenced.needed.values())
            self._prepare(self.plan.seeds[pairs:])
            cells = [cell for cell in self.layout.cells if sequenced.needs(cell.arm, cell.seed)]
            if left := len(self._unsettled(cells)):
                self.say(f"{left} cells until the look at {pairs} of {len(self.plan.seeds)} pairs")
            board = self._run(cells)
            if len(self._unsettled(cells)) == left:  # nothing is left to run
                return board

    def require_answer(self) -> None:
        """Say which cells failed; a study without a single baseline has nothing to compare with."""
        records = self.records()
        reasons = [
            (cell.arm, cell.seed, cell.failure)
            for by_seed in records.values()
            for cell in by_seed.values()
            if cell.failed
        ]
        if not reasons:
            return
        named = "; ".join(f"{arm}, seed {seed}: {why}" for arm, seed, why in reasons[:NAMED])
        more = f"; and {len(reasons) - NAMED} more" if len(reasons) > NAMED else ""
        words = f"{len(reasons)} of {len(self.layout.cells)} cells failed: {named}{more}"
        baselines = [arm.name for arm in self.layout.arms if arm.is_baseline]
        if not any(finished_cells(records, name) for name in baselines):
            raise RunFailed(
                "no cell of the baseline was finished, so there is nothing to compare with;"
                f" {words}",
                "they would fail again: lower optim.lr in `settings`, or correct the plan;"
                " --retry-failed runs them anew",
            )
        self.say(
            f"{words}; they count as what was found, and are run again only with --retry-failed"
        )

    def _alive(self) -> list[Cell]:
        ended = {one.arm for one in self.stopped}
        return [cell for cell in self.layout.cells if cell.arm not in ended]

    def _run(self, cells: Sequence[Cell], until: float | None = None) -> Board:
        # cells settled, and when the page was written and the terminal last heard
        known, shown, printed = -1, 0.0, 0.0
        # seconds, and reasons for being slow that the terminal has heard
        wait, reasons_said = PAGE_EVERY, 0
        times = TimeLeft(self.out, self.lanes)

        def tick(board: Board) -> None:
            nonlocal known, shown, printed, wait, reasons_said
            for why in board.slower[reasons_said:]:
                self.say(why)
                reasons_said += 1
            now, done, self.board = (
                time.monotonic(),
                board.count("done") + board.count("failed"),
                board,
            )
            changed = done != known
            if not changed and now - shown < wait:
                return
            going = standing(board, self.out, until)
            left = times.tell(board, going, now)
            if changed or now - printed >= LINE_EVERY:
                self.say(line(board, going, left, now - self.begun, until))
                printed = now
            known, shown = done, now
            with self.clock.counting("pages"):
                state = StudyState(
                    board, self._with_looks(left, board), self.spent, stopped=tuple(self.stopped)
                )
                self._write(self._result(state))
            wait = max(PAGE_EVERY, (time.monotonic() - now) / PAGE_SHARE)

        return run_all(cells, self.work._replace(until=until), self.lanes, tick, lane=self.lane)

    def _with_looks(self, seconds: float | None, board: Board) -> float | None:
        """With looks at most: if no arm were decided before the last of them."""
        now = board.count("waiting") + board.count("running")
        return seconds * self.left() / now if seconds and now and self.plan.looks else seconds

    def _result(self, state: StudyState) -> StudyResult:
        return assemble_result(self.plan, self.layout, self.out, self.command, state, self.kept)

    def _write(self, result: StudyResult) -> None:
        hint = "make room and start the same command again: finished cells are kept"
        with explained("write", self.folder, message="could not write the page", hint=hint):
            write(result, self.folder)

    def _costs(self) -> dict[str, TimedCost]:
        """Timed once per study: the same study always tells the same ratios."""
        plan, arms, cache = self.plan, self.layout.arms, self.out / "cache"
        if (kept := read_costs(self.folder, arms)) is not None:
            return kept
        self.say("timing the arms' steps in turns")
        device = at_hand(plan.device)
        if device != plan.device:
            self.say(
                "this machine has no GPU: the steps are timed on its CPU, and so are the arms' time"
                " ratios"
            )
        timed, drawn = (
            costs(arms, cache, plan.threads, device=device),
            plan.samples * len(plan.evaluations),
        )
        spent = {
            arm.name: timed[arm.name].model_copy(update={"parts": of_arm(arm.run, cache, drawn)})
            for arm in arms
        }
        write_costs(self.folder, spent)
        return spent

    def _line(self, cell: Cell, shares: Sequence[float], metric: str) -> list[float]:
        """A cell's values at these shares of the budget; empty if it failed before the last of
        them."""
        points = read_points(self.out / cell.key, cell.run, self.work.measuring.how, shares)
        reached = [
            points[at(cell.run, share)][metric]["value"]
            for share in shares
            if at(cell.run, share) in points
        ]
        return reached if len(reached) == len(shares) else []

    def _stop_hopeless(self, share: float) -> None:
        """Decided from points that every cell has reached, so a study that was killed decides the
        same again."""
        rule, metric = self.plan.stop_early, self.plan.primary
        assert rule is not None
        shares = [one for one in self.plan.evaluations if one <= share]
        values = {
            (cell.arm, cell.seed): line
            for cell in self._alive()
            if (line := self._line(cell, shares, metric))
        }
        ended = {one.arm for one in self.stopped}
        # what others are compared with
        needed = {arm.against for arm in self.layout.arms if arm.name not in ended}
        for arm in (one for one in self.layout.arms if one.name not in ended | needed):
            base = baseline_of(arm, self.layout.arms)
            seeds = [
                seed
                for seed in self.plan.seeds
                if {(arm.name, seed), (base.name, seed)} <= values.keys()
            ]
            if len(seeds) < 2:
                continue
            after, before = (
                np.array([values[name, seed] for seed in seeds]) for name in (arm.name, base.name)
            )
            decay = telling_share(arm.run, base.run)
            better, points = METRICS[metric].better, rule.successive
            if hopeless(
                shares, after - before, better, decay=decay, successive=points, level=rule.level
            ):
                last = [
                    dict(zip(seeds, one[:, -1].tolist(), strict=True)) for one in (before, after)
                ]
                effect = paired_effect(
                    *last, name=arm.name, metric=metric, unit=EQUAL, level=1 - self.plan.alpha
                )
                note = (
                    f"stopped at {share:.0%} of the budget, where it was worse; counted as censored"
                )
                effect = effect.model_copy(update={"verdict": "inconclusive", "note": note})
                self.stopped.append(StoppedArm(share, effect))
                self.say(
                    f"{arm.name} is stopped at {share:.0%} of the budget: worse at"
                    f" {rule.successive} points in a row"
                )


# --------------------------------------------------------------------------------------------------
# A study from its plan to its page: prove the arms, run the cells, judge, write the report while it
# grows.


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
    """Run a study to its end; started again, it goes on. Returns the result and the path of the
    page.

    A cell whose training failed by itself is an outcome and is not run again, unless
    `retry_failed`.
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
        tracked=Tracked(
            plan.track,
            f"{plan.title[:80]} {folder.name.removeprefix('study-')[:8]}",
            plan.keep_checkpoints,
        ),
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
            (
                say(f"{changed}, and {done} of its {len(layout.cells)} cells are finished already")
                if changed
                else None
            )
            say(added.text) if (added := added_seeds(plan, out)) else None
        with _place(executor, work, space) as (lanes, lane):
            side = (
                f"{lanes} side by side on Ray"
                if executor.kind == "ray"
                else str(space._replace(lanes=lanes))
            )
            seeds, cells = str(len(plan.seeds)), str(len(layout.cells))
            if plan.looks:
                seeds = f"{plan.looks[0]} to {seeds}"
                cells = f"{len(layout.arms) * plan.looks[0]} to {cells}"
            say(f"{len(layout.arms)} arms x {seeds} seeds = {cells} cells, {side}")
            result = session.run(lanes, lane)
    clock.write(
        folder,
        lanes=lanes,
        cpu=time.process_time(),
        cells=[cell.key for cell in layout.cells],
        already=done,
    )
    session.require_answer()
    return result, folder / "report.html"


@contextlib.contextmanager
def _place(executor: Executor, work: Work, space: Room) -> Iterator[tuple[int, type[Lane]]]:
    if executor.kind == "ray":
        lanes = executor.lanes or (
            None if executor.address or os.environ.get(RAY_ADDRESS) else space.lanes
        )
        with cluster(work.system, lanes, executor.address, work.out) as place:
            yield place
    else:
        yield executor.lanes or space.lanes, Lane
