"""Checkpoints of many processes, through torch.distributed.checkpoint: each writes and reads its
own rows, none holds all.

DCP plans who writes and who reads which rows; what lies on the disk is ours: the folder of one
process, whose safetensors files hold rows of tensors, each with its hash in state.json. DCP's own
files have a pickled index, which nobody may load.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Size, Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from fulcrum.files.atomic import folder_atomic
from fulcrum.files.paths import Damaged
from fulcrum.spec.errors import BadInput
from fulcrum.training.checkpoint import (
    DTYPES,
    PARTS,
    Checkpoint,
    RowSpan,
    VerifiedCheckpoint,
    could_not_save,
    place,
    rows_of,
    thin,
    write_state,
    write_tensors,
)

Parts = Mapping[str, Mapping[str, Tensor]]


def flat(parts: Parts) -> dict[str, Tensor]:
    """Under one name each: part/name."""
    return {
        f"{part}/{name}": value
        for part, tensors in parts.items()
        for name, value in tensors.items()
    }


def save_sharded(
    folder: Path, checkpoint: Checkpoint, values: Mapping[str, Tensor], group: ProcessGroup | None
) -> None:
    """Write checkpoints/<images> together. Where rows lie is told by the live tensors of
    `checkpoint`, what is written by `values`, this process's rows: they may be a copy, so that
    training goes on meanwhile."""
    writer = RowWriter(folder, checkpoint)
    try:
        with writer.opened:  # what is half written goes
            save(
                flat(checkpoint.parts),
                storage_writer=writer,
                planner=CopiedRows(values),
                process_group=group,
            )
    except CheckpointException as error:
        rank, (first, _) = next(iter(error.failures.items()))
        raise could_not_save(folder, checkpoint.state.images, f"rank {rank}: {first}") from first
    if writer.first:
        thin(folder)


class CopiedRows(DefaultSavePlanner):
    """Plans by the live tensors, and writes what was copied of them."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.values = values

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self.values[write_item.index.fqn]


class RowWriter(StorageWriter):
    """The first process opens a folder aside, all write their files into it, and the first gives it
    its name."""

    def __init__(self, folder: Path, checkpoint: Checkpoint) -> None:
        self.folder, self.checkpoint = folder, checkpoint
        self.opened, self.first, self.aside = ExitStack(), False, Path()

    def reset(self, checkpoint_id: Any = None) -> None:
        pass

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.first = is_coordinator

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        aside = folder_atomic(place(self.folder, self.checkpoint.state.images), replace=True)
        self.aside = self.opened.enter_context(aside)
        names = [f"{number + 1:05d}-of-{len(plans):05d}" for number in range(len(plans))]
        return [
            dataclasses.replace(plan, storage_data=(str(self.aside), name))
            for plan, name in zip(plans, names, strict=True)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        folder, number = plan.storage_data
        items: dict[str, dict[str, WriteItem]] = (
            {part: {} for part in PARTS} if self.first else defaultdict(dict)
        )
        for item in plan.items:
            part, _, name = item.index.fqn.partition("/")
            items[part][name] = item
        results = []
        for part, held in items.items():
            tensors, rows = {}, {}
            for name, item in held.items():
                value = planner.resolve_data(item)
                assert isinstance(value, Tensor) and item.tensor_data is not None
                chunk, shape = item.tensor_data.chunk, item.tensor_data.size
                if chunk.sizes != shape and not chunk.sizes[0]:
                    continue  # more processes than rows: nothing of it is here
                tensors[name] = value
                if chunk.sizes != shape:
                    rows[name] = RowSpan(chunk.offsets[0], shape[0])
            file = f"{part}-{number}"
            checksum = write_tensors(Path(folder) / f"{file}.safetensors", tensors, rows)
            results.append(WriteResult(MetadataIndex(file), 0, (file, checksum)))
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        files = dict(result.storage_data for each in results for result in each)
        write_state(self.aside, self.checkpoint, files)
        self.opened.close()  # all is there: the folder gets its name

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def load_sharded(found: VerifiedCheckpoint, parts: Parts) -> None:
    """Fill live tensors, sharded or whole, in place; each process reads its own rows, however many
    wrote them."""
    live, reader = flat(parts), RowReader(found)
    _require_fit(reader.read_metadata(), live)
    try:
        load(
            dict(live),
            storage_reader=reader,
            planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
        )
    except CheckpointException as error:
        rank, (first, _) = next(iter(error.failures.items()))
        raise Damaged(
            f"rank {rank} cannot read {found.path}: {type(first).__name__}: {first}"
        ) from first


def _require_fit(metadata: Metadata, live: Mapping[str, Tensor]) -> None:
    saved = metadata.state_dict_metadata
    missing, unknown = sorted(live.keys() - saved.keys()), sorted(saved.keys() - live.keys())
    other = [
        name
        for name, value in live.items()
        if name in saved and _kind(saved[name]) != (value.shape, value.dtype)
    ]
    if missing or unknown or other:
        raise BadInput(
            f"the checkpoint does not belong to this run: {len(missing)} tensors missing"
            f" {missing[:3]}, {len(unknown)} unknown {unknown[:3]}, {len(other)} of another shape"
            f" or type {other[:3]}",
            "resume with the same model, optimizer and precision, or start afresh",
        )


def _kind(saved: Any) -> tuple[Size, Any]:
    return saved.size, saved.properties.dtype


class RowReader(StorageReader):
    """Knows from the headers of all files where which rows lie; reads what a plan asks for."""

    def __init__(self, found: VerifiedCheckpoint) -> None:
        self.paths = [found.path / f"{file}.safetensors" for file in sorted(found.files)]
        self.metadata: Metadata | None = None

    def reset(self, checkpoint_id: Any = None) -> None:
        pass

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        if self.metadata is None:
            self.metadata = self._headers()
        return self.metadata

    def _headers(self) -> Metadata:
        dtypes = {word: dtype for dtype, word in DTYPES.items()}
        tensors: dict[str, TensorStorageMetadata] = {}
        places: dict[MetadataIndex, Path] = {}
        for path in self.paths:
            part = path.name.partition(".")[0].partition("-")[0]
            with safe_open(path, framework="pt") as stream:
                rows = rows_of(stream.metadata())
                for name in stream.keys():  # noqa: SIM118  # no mapping
                    header = stream.get_slice(name)
                    shape, properties = (
                        list(header.get_shape()),
                        TensorProperties(dtype=dtypes[header.get_dtype()]),
                    )
                    whole = [rows[name].whole, *shape[1:]] if name in rows else shape
                    offsets = [
                        rows[name].first if name in rows and axis == 0 else 0
                        for axis in range(len(shape))
                    ]
                    known = tensors.setdefault(
                        f"{part}/{name}", TensorStorageMetadata(properties, Size(whole), [])
                    )
                    known.chunks.append(ChunkStorageMetadata(Size(offsets), Size(shape)))
                    places[MetadataIndex(f"{part}/{name}", Size(offsets))] = path
        return Metadata(dict(tensors), storage_data=places)

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        wanted = defaultdict(list)
        for item in plan.items:
            wanted[self.read_metadata().storage_data[item.storage_index]].append(item)
        for path, items in wanted.items():
            with safe_open(path, framework="pt") as stream:
                for item in items:
                    name = item.storage_index.fqn.partition("/")[2]
                    begins = zip(item.storage_offsets, item.lengths, strict=True)
                    window = tuple(slice(first, first + count) for first, count in begins)
                    rows = stream.get_slice(name)[window] if window else stream.get_tensor(name)
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(rows)
                    planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True
