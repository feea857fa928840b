"""A checkpoint by the headers of its safetensors files: names, formats and shapes, without reading a value.

Values are read only when asked for, some of each tensor, through a memory map. Pickles are not opened: they run code.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.files.paths import open_regular, read_regular
from fulcrum.spec.errors import BadInput

MOST_HEADER = 100_000_000  # bytes; the format's own limit
BITS = {  # all that the format knows
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
    "F32": 32, "I32": 32, "U32": 32,
    "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
READ = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}  # formats whose values can be looked at
LOW = ("BF16", "F16", "F8_E4M3", "F8_E5M2")
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")


class StoredTensor(NamedTuple):
    name: str
    format: str  # as safetensors writes it: F32, BF16
    shape: tuple[int, ...]
    file: Path
    offset: int  # of its first byte in the file

    @property
    def numbers(self) -> int:
        return prod(self.shape)


class StoredTensors(NamedTuple):
    path: Path
    tensors: list[StoredTensor]
    unread: list[tuple[Path, str]]  # files that could not be looked at, and why
    values: int = 0  # how many values of each tensor may be read; none: headers only
    rate: float | None = None  # learning rate that training goes on with, if it was told

    @property
    def formats(self) -> Counter[str]:
        """How many numbers stand in each format."""
        counts = Counter[str]()
        for one in self.tensors:
            counts[one.format] += one.numbers
        return counts

    def sample(self, tensor: StoredTensor) -> NDArray[np.float32]:
        """Some of its values, spread evenly; empty where values are not to be read."""
        count = min(self.values, tensor.numbers)
        if not count or tensor.format not in READ:
            return np.zeros(0, np.float32)
        whole = np.memmap(tensor.file, dtype=READ[tensor.format], mode="r", offset=tensor.offset, shape=(tensor.numbers,))
        part = np.asarray(whole[:: max(tensor.numbers // count, 1)][:count])
        if tensor.format == "BF16":
            return (part.astype(np.uint32) << 16).view(np.float32)
        return part.astype(np.float32)


def read_tensors_of(path: Path, values: int = 0, rate: float | None = None) -> StoredTensors:
    """All tensors of a file, or of the files of a folder; a file that is damaged is named, the others are read."""
    below = sorted(path.rglob("*")) if path.is_dir() else []
    files = [file for file in below if file.suffix.lower() == ".safetensors"] if path.is_dir() else [path]
    unread, tensors = list[tuple[Path, str]](), list[StoredTensor]()
    for file in files:
        try:
            tensors += read_header(file)
        except BadInput as error:
            if path.is_file():
                raise
            unread.append((file, error.message))
    if path.is_dir():
        unread += [
            (file, "a pickle runs code when it is opened: convert it to safetensors to have it audited")
            for file in below
            if file.suffix.lower() in PICKLES
        ]
    return StoredTensors(path, tensors, unread, values, rate)


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors that a safetensors file says it holds, checked against its length."""
    try:
        with open(open_regular(path, follow=True), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(MOST_HEADER, size - 8):
                raise BadInput(
                    f"{path} is no whole safetensors file: its header would take {length:,} of {size:,} bytes",
                    "copy it again",
                )
            header = json.loads(stream.read(length))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "expected a safetensors file") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path} is no safetensors file: its header is not JSON", "expected a safetensors file") from None
    if not isinstance(header, dict) or not header.keys() - {"__metadata__"}:
        raise BadInput(f"{path} names no tensor in its header: there is nothing to look at", "expected a safetensors file")
    return [_tensor(path, name, facts, 8 + length, size) for name, facts in header.items() if name != "__metadata__"]


def _tensor(path: Path, name: str, facts: Any, start: int, size: int) -> StoredTensor:
    try:
        kind, shape, (first, last) = str(facts["dtype"]), tuple(map(int, facts["shape"])), facts["data_offsets"]
        tensor = StoredTensor(name, kind, shape, path, start + int(first))
        sound = 0 <= first <= last <= size - start and tensor.numbers * BITS[kind] == 8 * (last - first)
    except (KeyError, TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise BadInput(
            f"{path}: the tensor '{name}' does not lie where the header says, or is of no format that safetensors has: "
            "the file is cut off or damaged",
            "copy it again",
        )
    return tensor


def json_of(path: Path) -> dict[str, Any]:
    """A small JSON object beside weights; empty where there is none."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(read_regular(path, limit=MOST_HEADER))
    except (OSError, ValueError, RecursionError):
        raise BadInput(f"{path} cannot be read", "is it JSON?") from None
    return value if isinstance(value, dict) else {}


def matching(tensors: Sequence[StoredTensor], *words: str) -> list[StoredTensor]:
    """Tensors whose name holds one of the words."""
    return [one for one in tensors if any(word in one.name.lower() for word in words)]
