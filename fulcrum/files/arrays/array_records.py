"""What the array store writes down about its arrays: the header of an entry, and the journal of one in the making."""

from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StringConstraints

from fulcrum.spec.record import Frozen

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
Dtype = Annotated[str, StringConstraints(pattern=r"^[<|][biuf][1248]$")]  # numbers, never Python objects
Natural = Annotated[int, Field(ge=0, lt=1 << 48)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

HEADER, TABLE, JOURNAL = "header.json", "chunks.bin", ".journal"


def file_of(folder: Path, name: str, segment: int) -> Path:
    """Where the rows of an array lie that one process wrote."""
    return folder / f"{name}.{segment:05d}.bin"


class StoredRows(Frozen):
    """What rows a file holds."""

    dtype: Dtype
    shape: Annotated[tuple[Natural, ...], Field(min_length=1)]
    sha256: Sha256 | None = None  # in a header only of layout 1, where an array is one file and has one checksum

    @property
    def row_bytes(self) -> int:
        return prod((np.dtype(self.dtype).itemsize, *self.shape[1:]))


class EntryHeader(Frozen):
    facts: dict[str, Any]
    arrays: dict[Name, StoredRows]
    seal: str
    layout: Literal[1, 2] = 1  # 1: made before there were chunks
    chunks: Sha256 | None = None  # of the table


class Region(StoredRows):
    """The rows of one array of a finished chunk."""

    sha256: Sha256
    start: Natural  # row of the segment's file

    @property
    def end(self) -> int:
        return self.start + self.shape[0]


class FinishedChunk(Frozen):
    """A line of a segment's journal, where it is sealed: the rows have a hash of their own, their number has none."""

    chunk: Natural
    arrays: dict[Name, Region]
