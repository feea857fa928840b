"""How far the cells that run are, from the ends of their records, and how long the rest will take."""

import statistics
from pathlib import Path
from typing import NamedTuple

from fulcrum.files.records import read_tail
from fulcrum.report.wording.number import duration
from fulcrum.study.run.cell import Cell
from fulcrum.study.run.measuring.evaluation_points import at
from fulcrum.study.run.workers.runner import Board

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
        how = "beginning" if not self.images else "measuring" if self.share == 1.0 else f"{self.share:.0%}"
        return f"{self.cell.arm}/{self.cell.seed} {how}"


def standing(board: Board, out: Path, until: float | None = None) -> list[Stand]:
    """The cells that run now; only their records are read, and of each only the end."""
    with board.lock:
        going = [cell for cell in board.cells if board.state[cell.key] == "running"]
    return [
        _stand(cell, out / cell.key / "record.jsonl", cell.run.budget.images if until is None else at(cell.run, until))
        for cell in going
    ]


def seconds_left(board: Board, going: list[Stand], lanes: int) -> float | None:
    """From the cells that ended in this session, before the first from the speed of those that run; None before both."""
    seen = list(board.seconds) or [stand.whole for stand in going if stand.whole is not None]
    waiting = board.count("waiting")
    cells = waiting + sum(1.0 - stand.share for stand in going)
    if not seen or not cells:  # the last ones are being measured: not long, but not nothing
        return None
    return statistics.median(seen) * cells / min(lanes, waiting + len(going))


def line(board: Board, going: list[Stand], lanes: int, seconds: float, until: float | None = None) -> str:
    """One line for the terminal: cells done, cells that run, time left."""
    left = seconds_left(board, going, lanes)
    named = [str(stand) for stand in going[:NAMED]] + ([f"{len(going) - NAMED} more"] if len(going) > NAMED else [])
    failed = board.count("failed")
    return (
        f"{board.count('done')} of {len(board.cells)} cells {f'at {until:.0%}' if until else 'done'}"
        + (f", {failed} failed," if failed else "")
        + f" after {duration(seconds)}"
        + (f"; running: {', '.join(named)}" if named else "")
        + (f"; about {duration(left)}{'' if board.seconds else ' of training'} left" if left is not None else "")
    )


def _stand(cell: Cell, record: Path, target: int) -> Stand:
    lines = [(one["images"], one["seconds"]) for one in read_tail(record)]
    if not lines:
        return Stand(cell, 0, target, None)
    images, seconds = lines[-1]
    first = lines[0] if len(lines) > 1 else (0, 0.0)  # the tail's own speed: the first step also compiles
    speed = (images - first[0]) / max(seconds - first[1], 1e-9)
    return Stand(cell, images, target, target / speed if speed > 0 else None)
