"""What is kept of the pictures seen so far: feature rows, or moments by group in constant memory.

Rows go in, in any order and any split; what comes out depends on the rows and their ids alone.

B rows of a batch, n rows in all, d feature width, G groups
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.measure.features.moments import Moments

HELD = 1 << 20  # numbers in rows that are kept as they are before they are folded into moments: 4 MB
Ids = NDArray[np.int64]
Made = TypeVar("Made")


class Derived:
    """Remembers what metrics derive from a gathering (a bandwidth, a sum, radii), until more rows come in."""

    def __init__(self) -> None:
        self.made: dict[Hashable, Any] = {}

    def once(self, name: Hashable, make: Callable[[], Made]) -> Made:
        if name not in self.made:
            self.made[name] = make()
        made: Made = self.made[name]
        return made


class Rows(Derived):
    """All feature rows, for metrics that look at pairs. (n, d) fp32, in the order of the ids."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self._rows: list[Tensor] = []
        self._ids: list[Ids] = []
        self._sorted = True

    @property
    def n(self) -> int:
        return sum(len(ids) for ids in self._ids)

    def update(self, rows: Tensor, ids: Ids) -> None:
        """Takes in more rows, in place.  rows (B, d), ids (B,)"""
        _check(rows, ids, self.width)
        self._rows.append(rows.to("cpu", torch.float32))
        self._ids.append(np.asarray(ids, dtype=np.int64))
        self._sorted = False
        self.made.clear()

    @property
    def rows(self) -> Tensor:
        """(n, d), sorted by id once."""
        if not self._sorted:
            ids = np.concatenate(self._ids)
            order = sorted_once(ids)
            self._rows, self._ids = [torch.cat(self._rows)[torch.from_numpy(order)]], [ids[order]]
            self._sorted = True
        return self._rows[0] if self._rows else torch.zeros(0, self.width)

    @property
    def ids(self) -> Ids:
        """(n,), sorted."""
        return self._ids[0] if len(self.rows) else np.zeros(0, dtype=np.int64)


class Scores(Rows):
    """A few numbers of each picture that are no features: how well it fits its caption, what was drawn right."""


class GroupedMoments(Derived):
    """Moments of G groups of rows (id mod G): enough for a Fréchet distance, its interval and its extrapolation.

    Memory does not grow with n. A few megabytes of rows, or twice as many rows as features, are kept as
    they are: the Gram side needs them, and no split of them into batches can be seen.
    """

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.width, self.groups = width, groups
        self.held = Rows(width)  # all rows while they are few, then those that are still to be folded
        self.folded: list[Moments] | None = None

    @property
    def n(self) -> int:
        return self.held.n + sum(part.n for part in self.folded or [])

    def update(self, rows: Tensor, ids: Ids) -> None:
        """Takes in more rows, in place.  rows (B, d), ids (B,)"""
        self.held.update(rows, ids)
        self.made.clear()
        if self.folded is None and self.held.n > max(2 * self.width, HELD // self.width):
            self.folded = [Moments(self.width) for _ in range(self.groups)]
        if self.held.n >= max(self.width // 4, 256):  # a covariance is touched once for many rows
            self._fold()

    @property
    def rows(self) -> Tensor | None:
        """All rows in the order of their ids while they are few, else none.  (n, d)"""
        return self.held.rows if self.folded is None else None

    def moments(self, groups: int | None = None) -> list[Moments]:
        """Of each group; fewer groups, of which theirs are a multiple, are made of several each."""
        groups = groups or self.groups
        if self.folded is None:
            rows, group = self.held.rows, torch.from_numpy(self.held.ids % groups)
            return [Moments.of(rows[group == number]) for number in range(groups)]
        self._fold()
        return [merged(self.folded[number::groups]) for number in range(groups)]

    def _fold(self) -> None:
        if self.folded is not None and self.held.n:
            rows, group = self.held.rows, torch.from_numpy(self.held.ids % self.groups)
            for number, part in enumerate(self.folded):
                part.update(rows[group == number])
            self.held = Rows(self.width)


def merged(parts: list[Moments]) -> Moments:
    """The moments of all rows together."""
    whole = Moments(len(parts[0].mean))
    for part in parts:
        whole.merge(part)
    return whole


def sorted_once(ids: Ids) -> NDArray[np.intp]:
    """The order of the ids; refuses an image that came twice."""
    order = np.argsort(ids, kind="stable")
    twice = np.unique(ids[order][1:][np.diff(ids[order]) == 0])
    if len(twice):
        raise ValueError(f"images {twice[:8].tolist()} came more than once: each may count only once")
    return order


def _check(rows: Tensor, ids: Ids, width: int) -> None:
    if rows.ndim != 2 or rows.shape[1] != width or len(ids) != len(rows):
        raise ValueError(f"expected rows (B, {width}) with B ids, found {tuple(rows.shape)} and {len(ids)} ids")
    if not bool(torch.isfinite(rows).all()):
        raise ValueError("feature rows hold NaN or infinity: look at the images or the feature network")
