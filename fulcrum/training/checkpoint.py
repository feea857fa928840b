"""Checkpoints: written by one process or by many, whole or not at all; verified by checksum; read
by any number of processes.

A checkpoint is a folder checkpoints/<images>/ with state.json, which holds the checksum of every
other file, and safetensors files. One process writes one file of each part, model.safetensors. Many
write one of each part and process, model-00002-of-00004.safetensors. Sharded tensors are written as
rows, and the header of such a file says which rows of which tensors it holds.
"""

import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import torch
import torch.distributed as dist
from pydantic import Field, ValidationError, model_validator
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fulcrum.files.atomic import folder_atomic, is_aside, write_json
from fulcrum.files.paths import Damaged, open_regular, remove, set_aside
from fulcrum.files.sealed import read_sealed, sealed, sha256_file
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.record import Frozen
from fulcrum.spec.run import System
from fulcrum.training.dist.collectives import (
    fail_together,
    first_row,
    is_sharded,
    local,
    of_all,
    of_first,
    shard_group,
    whole,
)
from fulcrum.training.dist.ranks import ALONE, Ranks

# --------------------------------------------------------------------------------------------------
# Where a run stands: one number of progress, and what was counted on the way.


class State(NamedTuple):
    images: int = 0  # seen so far, over all processes
    skipped: int = 0  # steps left out because they were not finite
    seconds: float = 0.0  # spent in training, over all sessions
    preparing: float = 0.0  # spent in encoding and compiling, over all sessions

    def advance(
        self, rows: int, seconds: float, preparing: float = 0.0, skipped: bool = False
    ) -> "State":
        return State(
            self.images + rows,
            self.skipped + skipped,
            self.seconds + seconds,
            self.preparing + preparing,
        )

    @property
    def images_per_second(self) -> float | None:
        """The speed of training, wherever it is told; None before it is known."""
        return self.images / self.seconds if self.seconds > 0 else None


# --------------------------------------------------------------------------------------------------
# A safetensors file written block by block: its hash is known when it is written, and no other
# thread waits for it.
#
# The library's own writer makes a copy of all bytes and holds Python's lock while it writes:
# training would stand still.


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


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], rows: Mapping[str, RowSpan] | None = None
) -> str:
    """Write a new file and bring it to the disk; its SHA-256."""
    # every tensor begins aligned
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
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
        for part in (
            memoryview(len(text).to_bytes(8, "little") + text),
            *(_bytes(tensors[name]) for name in names),
        ):
            for first in range(0, len(part), BLOCK):
                digest.update(part[first : first + BLOCK])
                stream.write(part[first : first + BLOCK])
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def rows_of(header: Mapping[str, str] | None) -> dict[str, RowSpan]:
    """Which rows the tensors of a file are, by what its header says; a tensor that is not named is
    whole. What says nothing of the kind is a ValueError."""
    try:
        spans = json.loads((header or {}).get(ROWS, "{}"))
        return {name: RowSpan(int(first), int(whole)) for name, (first, whole) in spans.items()}
    except (TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"its header says not which rows it holds: {error}") from None


def _bytes(tensor: Tensor) -> memoryview:
    held: memoryview = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return held


# --------------------------------------------------------------------------------------------------
# What a checkpoint holds.


KEEP_LAST = 2  # the newest, and one more if the newest is damaged
PARTS = ("model", "optimizer", "average")
MOST_STATE = 1 << 24  # bytes of a state.json: a checksum for each process and part
FileName = Annotated[str, Field(pattern=rf"^({'|'.join(PARTS)})(-\d{{5}}-of-\d{{5}})?$")]


Parts = Mapping[str, Mapping[str, Tensor]]  # model, optimizer and average: tensors by name
Rows = Mapping[str, Mapping[str, RowSpan]]  # by part and name: of which a process holds only these


class Checkpoint(NamedTuple):
    parts: Parts
    key: str  # of the run
    state: State
    system: System
    rows: Rows = {}


class StateFile(Frozen):
    """What state.json holds."""

    key: str
    state: State
    system: System
    images: int
    files: dict[FileName, str]  # checksums
    check: str

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.state.images != self.images:
            raise ValueError(
                f"it stands at {self.state.images} images and was saved at {self.images}"
            )
        if not 0 <= self.state.skipped <= self.state.images:
            raise ValueError(
                f"it stands at {self.state.images} images and {self.state.skipped} skipped steps"
            )
        if not math.isfinite(self.state.seconds + self.state.preparing):
            raise ValueError(f"it took {self.state.seconds} and {self.state.preparing} seconds")
        if {name.partition("-")[0] for name in self.files} != set(PARTS):
            raise ValueError(
                f"it names {len(self.files)} files, expected some of {', '.join(PARTS)} each"
            )
        return self


class VerifiedCheckpoint(NamedTuple):
    """A checkpoint whose files are those that were written."""

    path: Path
    files: tuple[str, ...]
    key: str
    state: State
    system: System


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """One hash for a set of named tensors: names, shapes, types and bytes. Of sharded ones all
    ranks must ask together; one is whole at a time."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = whole(weights[name]).cpu().contiguous()
        digest.update(f"{name}:{tuple(value.shape)}:{value.dtype};".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# --------------------------------------------------------------------------------------------------
# Write: each process its own rows, into a folder that the first opens, and names when all is there.


def own_rows(parts: Parts, ranks: Ranks = ALONE) -> tuple[Parts, Rows]:
    """The live tensors, or rows of them, that this process writes, and which rows these are. What
    several processes hold alike is dealt to them, the largest first."""
    tensors: dict[str, dict[str, Tensor]] = {part: {} for part in parts}
    rows: dict[str, dict[str, RowSpan]] = {part: {} for part in parts}
    for part, live in parts.items():
        largest_first = sorted(live, key=lambda name: (-live[name].numel(), name))
        for index, name in enumerate(largest_first):
            value = live[name]
            here = local(value)
            shards = shard_group(value).size if is_sharded(value) else 1
            replicas = ranks.size // shards
            replica = ranks.rank // shards  # `device_mesh` numbers the ranks so
            if index % replicas != replica:
                continue
            if here.shape != value.shape:
                if not len(here):
                    continue  # there are fewer rows than processes
                rows[part][name] = RowSpan(first_row(name, value), len(value))
            tensors[part][name] = here
    return tensors, rows


def save(
    folder: Path,
    checkpoint: Checkpoint,
    ranks: Ranks = ALONE,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Write checkpoints/<images>. Many processes write it together, each its own rows, and agree
    over `group`. A failure of one, such as a full disk, is raised on all, and leaves the older
    checkpoints as they were."""
    images = checkpoint.state.images
    number = f"-{ranks.rank + 1:05d}-of-{ranks.size:05d}" if ranks.size > 1 else ""
    aside = Path()
    files: dict[str, str] = {}
    try:
        with ExitStack() as opened:  # if anything fails, the folder goes
            with fail_together(ranks, OSError, group):
                if ranks.first:
                    begun = folder_atomic(place(folder, images), replace=True)
                    aside = opened.enter_context(begun)
            aside = Path(of_first(str(aside), ranks, group))
            with fail_together(ranks, OSError, group):
                for part, tensors in checkpoint.parts.items():
                    file = part + number
                    path = aside / f"{file}.safetensors"
                    files[file] = write_tensors(path, tensors, checkpoint.rows.get(part))
            written = of_all(files, ranks, group)
            with fail_together(ranks, OSError, group):
                if ranks.first:
                    every = {file: checksum for one in written for file, checksum in one.items()}
                    write_state(aside, checkpoint, every)
                    opened.close()  # all is there: the folder gets its name
                    thin(folder)
    except OSError as error:
        raise could_not_save(folder, images, str(error)) from error


def place(folder: Path, images: int) -> Path:
    return folder / f"{images:012d}"


def write_state(aside: Path, checkpoint: Checkpoint, files: Mapping[str, str]) -> None:
    about = {
        "key": checkpoint.key,
        "state": checkpoint.state._asdict(),
        "system": checkpoint.system.model_dump(),
        "images": checkpoint.state.images,
        "files": dict(files),
    }
    write_json(aside / "state.json", sealed(about), flush=False)  # the whole folder is flushed


def could_not_save(folder: Path, images: int, why: str) -> RunFailed:
    good = [path.name.lstrip("0") for path in listing(folder)]
    return RunFailed(
        f"could not save the checkpoint at {images} images: {why}",
        (
            f"the last good one is at {good[-1]} images; make room and start the same command again"
            if good
            else "nothing was saved yet; make room and start again"
        ),
    )


def thin(folder: Path) -> None:
    for old in listing(folder)[:-KEEP_LAST]:
        remove(old)


def listing(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and path.name.isascii() and path.name.isdigit()
    )


def leftovers(folder: Path) -> list[Path]:
    """What killed processes left half written, and what was set aside as damaged."""
    names = folder.iterdir() if folder.is_dir() else ()
    return [
        path for path in names if is_aside(path) or path.name.startswith((".writing-", "damaged-"))
    ]


# --------------------------------------------------------------------------------------------------
# Read: whole, or the rows that a process needs, whoever wrote them.


def load(path: Path) -> Checkpoint:
    """A verified checkpoint with whole tensors, or Damaged saying what is wrong with it."""
    return read(verified(path))


def verified(path: Path, rank: int = 0, size: int = 1) -> VerifiedCheckpoint:
    """A checkpoint that is what was written, or Damaged; of many processes each reads a share of
    the files."""
    if path.is_symlink():
        raise Damaged(f"{path} is a link, expected the folder of a checkpoint")
    try:
        about = StateFile.model_validate(
            read_sealed(path / "state.json", "", kind=Damaged, limit=MOST_STATE)
        )
        if about.images != int(path.name):
            raise Damaged(f"{path} stands at {about.images} images, which is not what it is called")
        for file, expected in sorted(about.files.items())[rank::size]:
            checksum = sha256_file(path / f"{file}.safetensors")
            if checksum != expected:
                raise Damaged(
                    f"{path / file}.safetensors is damaged: checksum {checksum[:12]}, expected"
                    f" {expected[:12]}"
                )
    except ValidationError as error:
        first = error.errors()[0]
        raise Damaged(
            f"{path / 'state.json'} cannot be used: {'.'.join(map(str, first['loc']))}"
            f" {first['msg'][:200]}"
        ) from None
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    return VerifiedCheckpoint(
        path, tuple(sorted(about.files)), about.key, about.state, about.system
    )


class Piece(NamedTuple):
    """A tensor of a file, or the rows of a tensor that a file holds; read when asked for."""

    part: str
    name: str
    dtype: str
    shape: list[int]  # of the whole tensor
    first: int  # row of the whole tensor
    end: int  # row behind the last; a number counts as one row
    stream: Any  # the open file

    def read(self, first: int, end: int) -> Tensor:
        """Rows of the whole tensor that are in this piece."""
        value: Tensor
        if (first, end) == (self.first, self.end):
            value = self.stream.get_tensor(self.name)
        else:
            value = self.stream.get_slice(self.name)[first - self.first : end - self.first]
        return value


def pieces(found: VerifiedCheckpoint) -> Iterator[Piece]:
    """What the files hold, by their headers."""
    for file in found.files:
        part = file.partition("-")[0]
        with safe_open(found.path / f"{file}.safetensors", framework="pt") as stream:
            rows = rows_of(stream.metadata())
            for name in stream.keys():  # noqa: SIM118  # no mapping
                header = stream.get_slice(name)
                dtype, shape = header.get_dtype(), header.get_shape()
                if not shape:
                    yield Piece(part, name, dtype, shape, 0, 1, stream)
                    continue
                count = shape[0]
                first, whole = rows.get(name, RowSpan(0, count))
                yield Piece(part, name, dtype, [whole, *shape[1:]], first, first + count, stream)


@contextmanager
def refused_if_unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise Damaged(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def contents(found: VerifiedCheckpoint) -> dict[str, dict[str, tuple[str, list[int]]]]:
    """Dtype and shape of every tensor, by part and name; only headers are read. Damaged unless the
    files hold each row once."""
    held: dict[str, dict[str, tuple[str, list[int]]]] = {part: {} for part in PARTS}
    spans: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    with refused_if_unreadable(found.path):
        for piece in pieces(found):
            about = (piece.dtype, piece.shape)
            if held[piece.part].setdefault(piece.name, about) != about:
                raise ValueError(f"its files hold {piece.name!r} in different dtypes or shapes")
            spans[piece.part, piece.name].append((piece.first, piece.end))
    for (part, name), each in spans.items():
        shape = held[part][name][1]
        begins = [first for first, _ in sorted(each)]
        ends = [end for _, end in sorted(each)]
        if [*begins, shape[0] if shape else 1] != [0, *ends]:
            raise Damaged(f"{found.path} lacks rows of {name!r}, or has some twice")
    return held


def require_same(found: VerifiedCheckpoint, live: Parts) -> None:
    """Damaged, saying which, unless it holds tensors of these names, shapes and types; only headers
    are read."""
    given = contents(found)
    for part, tensors in live.items():
        wanted = {name: (DTYPES[value.dtype], list(value.shape)) for name, value in tensors.items()}
        unfit = f"{found.path} does not fit this run: of its {part}"
        if given[part].keys() != wanted.keys():
            missing, unknown = (
                sorted(wanted.keys() - given[part].keys())[:3],
                sorted(given[part].keys() - wanted.keys())[:3],
            )
            raise Damaged(f"{unfit}, it lacks {missing} and has {unknown} besides")
        for name, (dtype, shape) in wanted.items():
            if given[part][name] != (dtype, shape):
                raise Damaged(
                    f"{unfit}, {name} is {' '.join(map(str, given[part][name]))}, expected {dtype}"
                    f" {shape}"
                )


def read(found: VerifiedCheckpoint) -> Checkpoint:
    """Its tensors, whole: rows that several processes wrote are put together."""
    contents(found)  # refuse what lacks rows before there is memory for them
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
    with refused_if_unreadable(found.path):
        for piece in pieces(found):
            value = piece.read(piece.first, piece.end)
            if list(value.shape) == piece.shape:
                parts[piece.part][piece.name] = value
            else:
                target = parts[piece.part].setdefault(piece.name, value.new_empty(piece.shape))
                target[piece.first : piece.end] = value
    return Checkpoint(parts, found.key, found.state, found.system)


@torch.no_grad()
def load_into(found: VerifiedCheckpoint, live: Parts, ranks: Ranks = ALONE) -> None:
    """Fill live tensors, whole or sharded, in place, from a checkpoint that has the same
    (`require_same`). Each process reads its own rows; what one cannot read is raised on all."""
    with fail_together(ranks, Damaged), refused_if_unreadable(found.path):
        for piece in pieces(found):
            value = live[piece.part][piece.name]
            target = local(value)
            if not piece.shape:
                target.copy_(piece.read(0, 1))
                continue
            begin = first_row(piece.name, value)
            first = max(piece.first, begin)
            end = min(piece.end, begin + len(target))
            if first < end:
                target[first - begin : end - begin].copy_(piece.read(first, end))


def newest(
    folder: Path,
    say: Callable[[str], None],
    batch: int = 1,
    key: str | None = None,
    ranks: Ranks = ALONE,
    require: Callable[[VerifiedCheckpoint], None] | None = None,
) -> VerifiedCheckpoint | None:
    """The newest good checkpoint, after a whole `batch`, of the run `key`, of which `require` does
    not say that it is Damaged; many processes look together.

    A damaged one, or one of another run, is set aside, named; the one before it gives the same run,
    bit for bit.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RunFailed(
            f"{folder} is {'a link' if folder.is_symlink() else 'no folder'}, expected a folder of"
            " checkpoints",
            "put the folder itself there, or move it away",
        )
    bad = of_first(any(folder.glob("damaged-*")), ranks)
    while name := of_first(next((path.name for path in reversed(listing(folder))), None), ranks):
        path, found, fault = folder / name, None, None
        try:
            found = verified(path, ranks.rank, ranks.size)
            if found.state.images % batch:
                raise Damaged(
                    f"{path} stands at {found.state.images} images, in the middle of a batch of"
                    f" {batch}"
                )
            if key is not None and found.key != key:
                raise Damaged(
                    f"{path} belongs to the run {found.key}: it cannot be moved, start from its"
                    " weights instead"
                )
            if require is not None:
                require(found)
        except Damaged as error:
            fault = error.message
        fault = next((one for one in of_all(fault, ranks) if one), None)
        if fault is None:
            return found
        bad = True
        if ranks.first:
            say(
                f"{fault}; set aside as {set_aside(path).name}, going on from the checkpoint"
                " before it"
            )
        ranks.barrier("setting a checkpoint aside")
    if bad:
        raise RunFailed(
            f"every checkpoint under {folder} is damaged or of another run",
            "fulcrum never starts over in silence: remove the run with 'fulcrum runs rm' to train"
            " it anew",
        )
    return None
