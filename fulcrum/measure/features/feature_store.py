"""Features on disk, found again by the content of a picture and the hash of the extractor: a killed measurement goes on.

n rows of a chunk, d feature width
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fulcrum.files.atomic import atomic_path
from fulcrum.files.paths import explained, open_regular, set_aside
from fulcrum.files.sealed import sha256_bytes
from fulcrum.measure.decoded_picture import NOTES
from fulcrum.spec.errors import BadInput, RunFailed

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
    """Chunks of rows in safetensors files, each written whole or not at all, each verified when it is opened."""

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
            "keys": torch.from_numpy(np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, 32).copy()),
            "facts": torch.tensor(list(facts), dtype=torch.int32),
        }
        path = self.folder / f"{sha256_bytes(b''.join(keys), 32)}.safetensors"
        unfit = f"features cannot be kept at {self.folder}"
        with explained("keep", self.folder, message=unfit, hint="choose another place with --out", kind=BadInput):
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
            os.close(open_regular(path, follow=True))  # a pipe would make safetensors wait without end
            with safe_open(path, framework="pt") as file:
                checksum = (file.metadata() or {}).get("checksum")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError):
            return None
        if {name: tensor.dtype for name, tensor in tensors.items()} != TYPES or _checksum(tensors) != checksum:
            return None
        rows, keys, facts = tensors["features"], tensors["keys"], tensors["facts"]
        if rows.ndim != 2 or rows.shape[1] != self.width or keys.shape != (len(rows), 32) or len(facts) != len(rows):
            return None
        return [bytes(key) for key in keys.numpy()]


def _checksum(tensors: dict[str, Tensor]) -> str:
    content = hashlib.sha256()
    for name in sorted(tensors):
        content.update(name.encode() + tensors[name].numpy().tobytes())
    return content.hexdigest()
