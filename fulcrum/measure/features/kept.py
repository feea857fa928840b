"""Features that were computed once: gathered in memory, and stored on disk."""

import hashlib
import os
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fulcrum.files.atomic import atomic_path
from fulcrum.files.paths import explained, open_regular, set_aside
from fulcrum.files.sealed import sha256_bytes
from fulcrum.measure.features.extractor import Moments
from fulcrum.measure.pictures import NOTES
from fulcrum.spec.errors import BadInput, RunFailed

# --------------------------------------------------------------------------------------------------
# What is kept of the pictures seen so far: feature rows, or moments by group in constant memory.
#
# Rows go in, in any order and any split; what comes out depends on the rows and their ids alone.
#
# B rows of a batch, n rows in all, d feature width, G groups


# numbers in rows that are kept as they are before they are folded into moments: 4 MB
HELD = 1 << 20
Ids = NDArray[np.int64]
Made = TypeVar("Made")


class Derived:
    """Remembers what metrics derive from a gathering (a bandwidth, a sum, radii), until more rows
    come in."""

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
    """A few numbers of each picture that are no features: how well it fits its caption, what was
    drawn right."""


class GroupedMoments(Derived):
    """Moments of G groups of rows (id mod G): enough for a Fréchet distance, its interval and its
    extrapolation.

    Memory does not grow with n. A few megabytes of rows, or twice as many rows as features, are
    kept as they are: the Gram side needs them, and no split of them into batches can be seen.
    """

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.width, self.groups = width, groups
        # all rows while they are few, then those that are still to be folded
        self.held = Rows(width)
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
        raise ValueError(
            f"images {twice[:8].tolist()} came more than once: each may count only once"
        )
    return order


def _check(rows: Tensor, ids: Ids, width: int) -> None:
    if rows.ndim != 2 or rows.shape[1] != width or len(ids) != len(rows):
        raise ValueError(
            f"expected rows (B, {width}) with B ids, found {tuple(rows.shape)} and {len(ids)} ids"
        )
    if not bool(torch.isfinite(rows).all()):
        raise ValueError(
            "feature rows hold NaN or infinity: look at the images or the feature network"
        )


# --------------------------------------------------------------------------------------------------
# Features on disk, found again by the content of a picture and the hash of the extractor: a killed
# measurement goes on.
#
# n rows of a chunk, d feature width


CHUNK = 256  # pictures: at most so many are looked at again after a kill
TYPES = {"features": torch.float32, "keys": torch.uint8, "facts": torch.int32}


class PictureFacts(NamedTuple):
    """What is remembered of a picture beside its features: its sides and what was done to it."""

    height: int
    width: int
    note_bits: int = 0

    @classmethod
    def of(cls, height: int, width: int, notes: Sequence[str]) -> "PictureFacts":
        return cls(height, width, sum(1 << NOTES.index(note) for note in notes))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(note for place, note in enumerate(NOTES) if self.note_bits >> place & 1)


class FeatureStore:
    """Chunks of rows in safetensors files, each written whole or not at all, each verified when it
    is opened."""

    def __init__(self, folder: Path, extractor: str, width: int) -> None:
        self.folder, self.width = folder / extractor[:32], width
        self.where: dict[bytes, tuple[Path, int]] = {}
        self.damaged: list[Path] = []
        self._open: tuple[Path, Tensor, NDArray[np.int32]] | None = None
        for path in sorted(self.folder.glob("*.safetensors")):
            if path.name.startswith("damaged-"):
                continue
            keys = self._read(path)
            if keys is None:
                self.damaged.append(path)
                if path.is_dir():  # not ours: it stays, under another name
                    set_aside(path)
                else:
                    path.unlink()  # our own file, and wrong: its pictures are looked at again
            else:
                self.where |= {key: (path, place) for place, key in enumerate(keys)}

    def __contains__(self, key: bytes) -> bool:
        return key in self.where

    def get(self, key: bytes) -> tuple[Tensor, PictureFacts]:
        """Features (d,) and facts of a picture that is here."""
        path, place = self.where[key]
        if self._open is None or self._open[0] != path:
            with safe_open(path, framework="pt") as file:
                self._open = (path, file.get_tensor("features"), file.get_tensor("facts").numpy())
        _, rows, facts = self._open
        return rows[place], PictureFacts(*facts[place].tolist())

    def put(self, keys: Sequence[bytes], rows: Tensor, facts: Sequence[PictureFacts]) -> None:
        """Remember rows (n, d); they are safe on disk when this returns."""
        if not keys:
            return
        tensors = {
            "features": rows.to("cpu", torch.float32).contiguous(),
            "keys": torch.from_numpy(
                np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, 32).copy()
            ),
            "facts": torch.tensor(list(facts), dtype=torch.int32),
        }
        path = self.folder / f"{sha256_bytes(b''.join(keys), 32)}.safetensors"
        unfit = f"features cannot be kept at {self.folder}"
        with explained(
            "keep",
            self.folder,
            message=unfit,
            hint="choose another place with --out",
            kind=BadInput,
        ):
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with atomic_path(path) as aside:
                save_file(tensors, aside, metadata={"checksum": _checksum(tensors)})
        except (OSError, SafetensorError) as error:
            raise RunFailed(
                f"features could not be written to {self.folder}: {error}",
                "make room and start the same command again: what was written before is kept",
            ) from None
        self.where |= {key: (path, place) for place, key in enumerate(keys)}

    def _read(self, path: Path) -> list[bytes] | None:
        try:
            # a pipe would make safetensors wait without end
            os.close(open_regular(path, follow=True))
            with safe_open(path, framework="pt") as file:
                checksum = (file.metadata() or {}).get("checksum")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError):
            return None
        if {name: tensor.dtype for name, tensor in tensors.items()} != TYPES or _checksum(
            tensors
        ) != checksum:
            return None
        rows, keys, facts = tensors["features"], tensors["keys"], tensors["facts"]
        if (
            rows.ndim != 2
            or rows.shape[1] != self.width
            or keys.shape != (len(rows), 32)
            or len(facts) != len(rows)
        ):
            return None
        return [bytes(key) for key in keys.numpy()]


def _checksum(tensors: dict[str, Tensor]) -> str:
    content = hashlib.sha256()
    for name in sorted(tensors):
        content.update(name.encode() + tensors[name].numpy().tobytes())
    return content.hexdigest()
