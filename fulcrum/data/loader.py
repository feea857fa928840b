"""Raw batches by position: the next batch is a question, not a state.

Legend: B rows, S image side.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption import Chooser
from fulcrum.data.order import order_of
from fulcrum.data.source import Source


class RawBatch(NamedTuple):
    images: NDArray[np.uint8]  # (B, 3, S, S)
    prompts: list[str]  # B texts
    ids: NDArray[np.int64]  # (B,) within the source
    position: int  # of the first row in the global order


@dataclass(frozen=True)
class Loader:
    """A source in its global order, captioned. Exact resume needs nothing but the position."""

    source: Source
    chooser: Chooser
    seed: int

    def ids(self, position: int, rows: int) -> NDArray[np.int64]:
        """Which samples a batch holds; enough when everything about them is cached."""
        return order_of(self.source, self.seed, position, rows)

    def at(self, position: int, rows: int) -> RawBatch:
        samples = self.source.read(self.ids(position, rows))
        return RawBatch(samples.images, self.source.prompts(self.chooser, samples.ids), samples.ids, position)

    def stream(self, position: int, rows: int, processes: int = 0, ahead: int = 4) -> Iterator[RawBatch]:
        """Batches from a position on, without end, made ahead: on a thread, or by `processes`, which use as many cores.

        How many changes nothing but speed; a failure is raised where its batch would have come.
        """
        pool: Executor = (
            ThreadPoolExecutor(1)
            if not processes
            else ProcessPoolExecutor(processes, multiprocessing.get_context("forkserver"), _begin, (self,))
        )
        make = self.at if not processes else _make
        waiting: deque[Future[RawBatch]] = deque()
        try:
            while True:
                while len(waiting) < max(ahead, 2 * processes):
                    waiting.append(pool.submit(make, position, rows))
                    position += rows
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


_mine: list[Loader] = []  # of a process that makes batches for another


def _begin(loader: Loader) -> None:
    _mine[:] = [loader]


def _make(position: int, rows: int) -> RawBatch:
    return _mine[0].at(position, rows)
