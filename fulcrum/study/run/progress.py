"""How far the cells that run are, from the ends of their records, and how long the rest will take."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.sealed import read_json, read_tail
from fulcrum.judge.schema import duration
from fulcrum.spec.errors import BadInput
from fulcrum.spec.progress import Countdown
from fulcrum.study.run.cell import Cell
from fulcrum.study.run.clock import NAME as TIMINGS
from fulcrum.study.run.measuring.evaluation_points import at
from fulcrum.study.run.workers.runner import Board
from fulcrum.training.cost_record import count_training

NAMED = 4  # cells that one line names


class Stand(NamedTuple):
    """How far one running cell is."""

    cell: Cell
    images: int  # 0: it encodes, compiles or has just begun
    target: int
    whole: float | None  # seconds of all its training, at the speed of its last lines

    @property
    def share(self) -> float:
        return min(self.images / self.target, 1.0)

    def __str__(self) -> str:
        how = (
            "starting (encoding, compiling)"
            if not self.images
            else "measuring"
            if self.share == 1.0
            else f"{self.share:.0%}"
        )
        return f"{self.cell.arm}/{self.cell.seed} {how}"


def standing(board: Board, out: Path, until: float | None = None) -> list[Stand]:
    """The cells that run now; only their records are read, and of each only the end."""
    with board.lock:
        going = [cell for cell in board.cells if board.state[cell.key] == "running"]
    return [
        _stand(cell, out / cell.key / "record.jsonl", cell.run.budget.images if until is None else at(cell.run, until))
        for cell in going
    ]


class CellTimes(NamedTuple):
    """What a cell took, without its first step: that encodes, compiles and waits for others who do."""

    seconds: float
    training: float  # of the seconds

    def of(self, share: float) -> "CellTimes":
        """Of a cell that is `share` times as much work."""
        return CellTimes(self.seconds * share, self.training * share)

    @classmethod
    def read(cls, folder: Path, whole: float) -> "CellTimes":
        """From the cell's own timings; where there are none, all that it took by the clock on the wall."""
        try:
            timed = read_json(folder / TIMINGS, "")
            first, steps = timed["parts"]["first step"], timed["parts"]["steps"]
            return cls(max(timed["ended"] - timed["begun"] - first, 0.0), max(steps - first, 0.0))
        except (BadInput, KeyError, TypeError, OverflowError):
            return cls(whole, whole)


class TimeLeft:
    """How long the cells of a round will take, told steadily: from those that ended, arm by arm; before, of training."""

    def __init__(self, out: Path, lanes: int) -> None:
        self.out, self.lanes = out, lanes
        self.ended: dict[str, CellTimes] = {}  # key -> times
        self.flops: dict[str, float] = {}  # arm -> of all the training of one cell
        self.told = {False: Countdown(), True: Countdown()}  # before and since a cell has ended: of unlike things

    def tell(self, board: Board, going: list[Stand], now: float) -> float | None:
        reckoned = self.reckon(board, going)
        return None if reckoned is None else self.told[bool(self.ended)].tell(reckoned, now)

    def reckon(self, board: Board, going: list[Stand]) -> float | None:
        """None: nothing is known yet, or only measuring is left, which is not long, but not nothing."""
        with board.lock:
            waiting = [cell for cell in board.cells if board.state[cell.key] == "waiting"]
            ended = dict(board.seconds)
        for key in ended.keys() - self.ended.keys():
            self.ended[key] = CellTimes.read(self.out / key, ended[key])
        lanes = min(self.lanes, len(waiting) + len(going))
        if self.ended:
            usual = self._usual(board.cells)
            running = sum(self._rest(stand, usual) for stand in going)
            return (sum(usual[cell.arm].seconds for cell in waiting) + running) / lanes if lanes else None
        speeds = [stand.whole / self._flops(stand.cell) for stand in going if stand.whole is not None]
        flops_left = sum(self._flops(cell) for cell in waiting)
        flops_left += sum(self._flops(stand.cell) * (1.0 - stand.share) for stand in going)
        return statistics.median(speeds) * flops_left / lanes if speeds and flops_left else None

    def _usual(self, cells: Sequence[Cell]) -> dict[str, CellTimes]:
        """Of a cell of each arm: the median of those that ended; where none has, of all arms', by their FLOPs: an arm at
        256 tokens takes ten times as long as one at 16."""
        times: dict[str, list[CellTimes]] = {cell.arm: [] for cell in cells}
        flops = {cell.arm: self._flops(cell) for cell in cells}
        for cell in cells:
            times[cell.arm] += [self.ended[cell.key]] if cell.key in self.ended else []
        per_flop = _median([one.of(1 / flops[arm]) for arm, own in times.items() for one in own])
        return {arm: _median(own) if own else per_flop.of(flops[arm]) for arm, own in times.items()}

    def _flops(self, cell: Cell) -> float:
        if cell.arm not in self.flops:
            self.flops[cell.arm] = count_training(cell.run).training() * cell.run.budget.images
        return self.flops[cell.arm]

    @staticmethod
    def _rest(stand: Stand, usual: Mapping[str, CellTimes]) -> float:
        seconds, training = usual[stand.cell.arm]
        return seconds - training * stand.share


def _median(times: Sequence[CellTimes]) -> CellTimes:
    return CellTimes(*(statistics.median(column) for column in zip(*times, strict=True)))


def line(board: Board, going: list[Stand], left: float | None, seconds: float, until: float | None = None) -> str:
    """One line for the terminal: cells done, cells that run, time left."""
    named = [str(stand) for stand in going[:NAMED]] + ([f"{len(going) - NAMED} more"] if len(going) > NAMED else [])
    failed = board.count("failed")
    return (
        f"{board.count('done')} of {len(board.cells)} cells {f'at {until:.0%}' if until else 'done'}"
        + (f", {failed} failed," if failed else "")
        + f" after {duration(seconds)}"
        + (f"; running: {', '.join(named)}" if named else "")
        + (f"; about {duration(left)}{'' if board.seconds else ' of training'} left" if left is not None else "")
    )


def _is_time(value: Any) -> bool:
    """A number that a sound record holds: whatever else stands there must not stop the study that looks on."""
    return isinstance(value, int | float) and 0 <= value < 1e15


def _stand(cell: Cell, record: Path, target: int) -> Stand:
    tail = [(one.get("images", -1), one.get("seconds", -1)) for one in read_tail(record)]
    lines = [(images, seconds) for images, seconds in tail if _is_time(images) and _is_time(seconds)]
    if not lines:
        return Stand(cell, 0, target, None)
    images, seconds = lines[-1]
    first = lines[0] if len(lines) > 1 else (0, 0.0)  # the tail's own speed: the first step also compiles
    speed = (images - first[0]) / max(seconds - first[1], 1e-9)
    return Stand(cell, images, target, target / speed if speed > 0 else None)
