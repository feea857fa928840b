"""What is kept of the pictures seen so far: feature rows, or moments by group in constant memory. All of it merges.

B rows of a batch, n rows in all, d feature width, G groups
"""

from collections.abc import Callable, Hashable
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.measure.features.moments import Moments

Ids = NDArray[np.int64]
Made = TypeVar("Made")


class Gathering(Protocol):
    """Feature rows go in, in any order and any split; what comes out depends on the rows and their ids alone."""

    @property
    def n(self) -> int: ...

    def update(self, rows: Tensor, ids: Ids) -> None: ...

    def merge(self, other: Self) -> None: ...


class Rows:
    """All feature rows, for metrics that look at pairs. (n, d) fp32, in the order of the ids."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._rows: list[Tensor] = []
        self._ids: list[Ids] = []
        self._made: dict[Hashable, Any] = {}

    @property
    def n(self) -> int:
        return sum(len(ids) for ids in self._ids)

    def update(self, rows: Tensor, ids: Ids) -> None:
        """Takes in more rows, in place.  rows (B, d), ids (B,)"""
        _check(rows, ids, self.width)
        self._rows.append(rows.to("cpu", torch.float32))
        self._ids.append(np.asarray(ids, dtype=np.int64))
        self._made.clear()

    def merge(self, other: Self) -> None:
        """Takes in another gathering, in place."""
        _same_width(self.width, other.width)
        self._rows += other._rows
        self._ids += other._ids
        self._made.clear()

    @property
    def rows(self) -> Tensor:
        """(n, d), sorted by id once."""
        if len(self._rows) != 1 or "sorted" not in self._made:
            ids = np.concatenate(self._ids) if self._ids else np.zeros(0, dtype=np.int64)
            order = sorted_once(ids)
            together = torch.cat(self._rows) if self._rows else torch.zeros(0, self.width)
            self._rows, self._ids = [together[torch.from_numpy(order)]], [ids[order]]
            self._made["sorted"] = True
        return self._rows[0]

    @property
    def ids(self) -> Ids:
        """(n,), sorted."""
        return self._ids[0] if len(self.rows) else np.zeros(0, dtype=np.int64)

    def once(self, name: Hashable, make: Callable[[Tensor], Made]) -> Made:
        """What a metric derives from these rows alone (a bandwidth, a sum, radii), made once and kept."""
        rows = self.rows
        if name not in self._made:
            self._made[name] = make(rows)
        made: Made = self._made[name]
        return made

    def take(self, index: Tensor) -> "Rows":
        """A gathering of some rows by position, a row as often as it is named."""
        part = Rows(self.width)
        part.update(self.rows[index], np.arange(len(index)))
        return part


class GroupedMoments:
    """Moments of G groups of rows (id mod G): enough for a Fréchet distance, its interval and its extrapolation.

    Memory does not grow with n. While rows are fewer than twice the width they are smaller than a covariance and are kept
    as they are: the Gram side then needs them.
    """

    def __init__(self, width: int, groups: int) -> None:
        self.width, self.groups = width, groups
        self.held = Rows(width)
        self.folded: list[Moments] | None = None
        self._pending = Rows(width)  # a covariance is touched once for many rows, not once for each small batch
        self.made: dict[str, Any] = {}  # what a metric derived from it

    @property
    def n(self) -> int:
        return self.held.n + self._pending.n + sum(part.n for part in self.folded or [])

    def update(self, rows: Tensor, ids: Ids) -> None:
        """Takes in more rows, in place.  rows (B, d), ids (B,)"""
        if self.folded is None:
            self.held.update(rows, ids)
        else:
            self._pending.update(rows, ids)
        self._settle()

    def merge(self, other: Self) -> None:
        """Takes in another gathering, in place."""
        _same_width(self.width, other.width)
        if self.groups != other.groups:
            raise ValueError(f"expected {self.groups} groups, found {other.groups}")
        if other.folded is not None:
            self._fold()
            for part, more in zip(self.folded or [], other.folded, strict=True):
                part.merge(more)
        (self.held if self.folded is None else self._pending).merge(other.held)
        (self.held if self.folded is None else self._pending).merge(other._pending)
        self._settle()

    @property
    def rows(self) -> Tensor | None:
        """All rows in the order of their ids while they are few, else none.  (n, d)"""
        return self.held.rows if self.folded is None else None

    @property
    def ids(self) -> Ids:
        """Of the rows, while they are few.  (n,)"""
        return self.held.ids

    def moments(self) -> list[Moments]:
        """Of each group."""
        if self.folded is None:
            rows, ids = self.held.rows, self.held.ids
            return [Moments.of(rows[torch.from_numpy(ids % self.groups == group)]) for group in range(self.groups)]
        self._absorb()
        return self.folded

    def _settle(self) -> None:
        if self.folded is None and self.held.n > 2 * self.width:
            self._fold()
        if self.folded is not None and self._pending.n >= max(self.width // 4, 256):
            self._absorb()

    def _fold(self) -> None:
        if self.folded is None:
            self.folded = [Moments(self.width) for _ in range(self.groups)]
            self.held, self._pending = Rows(self.width), self.held

    def _absorb(self) -> None:
        if self._pending.n:
            rows, ids = torch.cat(self._pending._rows), np.concatenate(self._pending._ids)
            for group, part in enumerate(self.folded or []):
                part.update(rows[torch.from_numpy(ids % self.groups == group)])
            self._pending = Rows(self.width)


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


def _same_width(width: int, found: int) -> None:
    if width != found:
        raise ValueError(f"expected features of width {width}, found width {found}")
