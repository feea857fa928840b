"""The chunks of a cache entry in the making: each whole or absent, checked when read, made by any number of processes.

A killed encoding goes on where it stood. While an entry is put together it lies twice on the disk; then its chunks go.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

Arrays = dict[str, NDArray[Any]]
_SUM = 32  # bytes of sha256 before the arrays


class Parts:
    """Numbered chunks in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, number: int) -> Arrays | None:
        """A chunk's arrays, or None if it is not there or not as it was written."""
        try:
            data = self._path(number).read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data[_SUM:]).digest() != data[:_SUM]:
            return None
        try:
            return load(data[_SUM:])
        except SafetensorError:
            return None

    def put(self, number: int, arrays: Arrays) -> None:
        """Written aside and renamed: another process sees it whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        body = save({name: np.ascontiguousarray(value) for name, value in arrays.items()})
        aside = self.folder / f".{number:08d}.{os.getpid()}"
        aside.write_bytes(hashlib.sha256(body).digest() + body)
        aside.replace(self._path(number))

    def has(self, number: int) -> bool:
        return self._path(number).is_file()

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}"
