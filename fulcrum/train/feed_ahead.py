"""A feed that keeps ahead of the loop: while a step runs, a thread reads the next two stretches.

Batches and draws are pure functions of the position, so what is made ahead is what the loop would have made itself. The
thread does the host's part only (`Feed.staged`): it reads into pinned memory and touches no device. On a CPU nothing is
made ahead: there the thread would take its time from the step (docs/decisions/0059).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from fulcrum.flow.draw import Draw
from fulcrum.networks.batch import Batch
from fulcrum.networks.network_hash import on_this_gpu
from fulcrum.train.feed import Feed, StagedBatch

AHEAD = 2  # stretches: one that is being read while one lies ready
Stretch = tuple[int, int]  # the first image, and how many


class FeedAhead:
    """`at` of these stretches, in their order.

    No more than AHEAD of them are held: the next one is begun when one is taken. What must be encoded or opened first, at
    the beginning of a phase say, is made by the loop itself, where Ctrl-C ends it. An error of the thread is raised, as
    itself, where its stretch is asked for.
    """

    def __init__(self, feed: Feed, stretches: Iterable[Stretch], pool: ThreadPoolExecutor) -> None:
        self.feed, self.pool = feed, pool
        self.coming = iter(stretches)
        self.begun: deque[tuple[Stretch, Future[StagedBatch] | None]] = deque()  # None: the loop must make it

    def at(self, position: int, rows: int) -> tuple[Batch, Draw]:
        self._begin()
        stretch, staged = self.begun.popleft() if self.begun else (None, None)
        if stretch != (position, rows):
            raise ValueError(f"the feed was told that {stretch} comes next, and was asked for {(position, rows)}")
        pair = self.feed.at(position, rows) if staged is None else self.feed.landed(staged.result())
        self._begin()
        return pair

    def _begin(self) -> None:
        """Begin what may be begun; behind a stretch that the loop must make nothing is."""
        while len(self.begun) < AHEAD and not (self.begun and self.begun[-1][1] is None):
            stretch = next(self.coming, None)
            if stretch is None:
                return
            ready = self.feed.is_ready(stretch[0])
            self.begun.append((stretch, self.pool.submit(self.feed.staged, *stretch) if ready else None))


@contextmanager
def feeding(feed: Feed, stretches: Iterable[Stretch]) -> Iterator[Feed | FeedAhead]:
    """The feed itself on a CPU, elsewhere one that keeps ahead; its thread ends with the block, however that ends."""
    if torch.device(feed.device).type == "cpu":
        yield feed
        return
    pool = ThreadPoolExecutor(1, "feed", **on_this_gpu())  # else it would pin its memory by way of the first GPU
    try:
        yield FeedAhead(feed, stretches, pool)
    finally:
        pool.shutdown(cancel_futures=True)
