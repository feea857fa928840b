"""A safetensors file written block by block: its hash is known when it is written, and no other thread waits for it.

The library's own writer makes a copy of all bytes and holds Python's lock while it writes: training would stand still.
What a file holds may be rows of larger tensors: then its header says which.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fulcrum.files.paths import open_regular

BLOCK = 1 << 24  # bytes that are hashed, then written, while they are in the cache
ROWS = "rows"  # the header's word for which rows of a tensor these are
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class RowSpan(NamedTuple):
    """Where the rows of a piece lie in the whole tensor."""

    first: int
    whole: int  # rows that the whole tensor has


def write_tensors(path: Path, tensors: Mapping[str, Tensor], rows: Mapping[str, RowSpan] | None = None) -> str:
    """Write a new file and bring it to the disk; its SHA-256."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # every tensor begins aligned
    header: dict[str, Any] = {"__metadata__": {ROWS: json.dumps(rows)}} if rows else {}
    end = 0
    for name in names:
        begin, end = end, end + tensors[name].numel() * tensors[name].element_size()
        header[name] = {
            "dtype": DTYPES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with open(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream:
        for part in (memoryview(len(text).to_bytes(8, "little") + text), *(_bytes(tensors[name]) for name in names)):
            for first in range(0, len(part), BLOCK):
                digest.update(part[first : first + BLOCK])
                stream.write(part[first : first + BLOCK])
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def rows_of(header: Mapping[str, str] | None) -> dict[str, RowSpan]:
    """Which rows the tensors of a file are, by what its header says; a tensor that is not named is whole. What says nothing
    of the kind is a ValueError."""
    try:
        spans = json.loads((header or {}).get(ROWS, "{}"))
        return {name: RowSpan(int(first), int(whole)) for name, (first, whole) in spans.items()}
    except (TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"its header says not which rows it holds: {error}") from None


def _bytes(tensor: Tensor) -> memoryview:
    held: memoryview = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return held
