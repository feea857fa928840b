"""Checkpoints: whole or not there, verified by checksum before they are used, thinned by a rule.

A checkpoint is a folder checkpoints/<images>/ with state.json and one safetensors file per part.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import torch
from pydantic import Field, ValidationError, model_validator
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fulcrum.files.atomic import folder_atomic, is_aside, write_json
from fulcrum.files.damaged import Damaged, remove, set_aside
from fulcrum.files.hashes import sha256_file
from fulcrum.files.sealed import read_sealed, sealed
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.record import Frozen
from fulcrum.spec.system import System
from fulcrum.train.state import State

KEEP_LAST = 2  # the newest, and one more if the newest is damaged


class Checkpoint(NamedTuple):
    parts: dict[str, dict[str, Tensor]]  # model, optimizer, average
    key: str  # of the run
    state: State
    system: System


class StateFile(Frozen):
    """What state.json holds."""

    key: str
    state: State
    system: System
    images: int
    files: Annotated[dict[Literal["model", "optimizer", "average"], str], Field(min_length=3)]  # checksums
    check: str

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.state.images != self.images:
            raise ValueError(f"it stands at {self.state.images} images and was saved at {self.images}")
        if min(self.state.images, self.state.skipped) < 0:
            raise ValueError(f"it stands at {self.state.images} images and {self.state.skipped} skipped steps")
        if not math.isfinite(self.state.seconds + self.state.preparing):
            raise ValueError(f"it took {self.state.seconds} and {self.state.preparing} seconds")
        return self


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """One hash for a set of named tensors: names, shapes, types and bytes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tuple(value.shape)}:{value.dtype};".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write checkpoints/<images>; a failure on the way (a full disk) leaves the older ones as they were."""
    images = checkpoint.state.images
    try:
        with folder_atomic(folder / f"{images:012d}", replace=True) as aside:
            files = {}
            for part, tensors in checkpoint.parts.items():
                path = aside / f"{part}.safetensors"
                save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)
                files[part] = sha256_file(path)
            about = {
                "key": checkpoint.key,
                "state": checkpoint.state._asdict(),
                "system": checkpoint.system.model_dump(),
                "images": images,
                "files": files,
            }
            write_json(aside / "state.json", sealed(about), flush=False)  # the whole folder is flushed
    except (OSError, SafetensorError) as error:
        good = [path.name.lstrip("0") for path in listing(folder)]
        raise RunFailed(
            f"could not save the checkpoint at {images} images: {error}",
            f"the last good one is at {good[-1]} images; make room and start the same command again"
            if good
            else "nothing was saved yet; make room and start again",
        ) from error
    for old in listing(folder)[:-KEEP_LAST]:
        remove(old)


def listing(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name.isascii() and path.name.isdigit())


def leftovers(folder: Path) -> list[Path]:
    """What killed processes left half written, and what was set aside as damaged."""
    names = folder.iterdir() if folder.is_dir() else ()
    return [path for path in names if is_aside(path) or path.name.startswith((".writing-", "damaged-"))]


def load(path: Path) -> Checkpoint:
    """A verified checkpoint, or Damaged saying what is wrong with it."""
    if path.is_symlink():
        raise Damaged(f"{path} is a link, expected the folder of a checkpoint")
    try:
        about = StateFile.model_validate(read_sealed(path / "state.json", "", kind=Damaged))
        if about.images != int(path.name):
            raise Damaged(f"{path} stands at {about.images} images, which is not what it is called")
        for part, expected in about.files.items():
            checksum = sha256_file(path / f"{part}.safetensors")
            if checksum != expected:
                raise Damaged(f"{path / part}.safetensors is damaged: checksum {checksum[:12]}, expected {expected[:12]}")
        parts: dict[str, dict[str, Tensor]] = {part: load_file(path / f"{part}.safetensors") for part in about.files}
    except ValidationError as error:
        first = error.errors()[0]
        raise Damaged(f"{path / 'state.json'} cannot be used: {'.'.join(map(str, first['loc']))} {first['msg']}") from None
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    return Checkpoint(parts, about.key, about.state, about.system)


def require_same(given: Mapping[str, Tensor], live: Mapping[str, Tensor]) -> None:
    """Damaged, saying which, unless both hold tensors of the same names, shapes and types."""
    if given.keys() != live.keys():
        missing, unknown = sorted(live.keys() - given.keys())[:3], sorted(given.keys() - live.keys())[:3]
        raise Damaged(f"it lacks {missing} and has {unknown} besides")
    for name, value in live.items():
        if (given[name].shape, given[name].dtype) != (value.shape, value.dtype):
            raise Damaged(
                f"{name} is {given[name].dtype} {tuple(given[name].shape)}, expected {value.dtype} {tuple(value.shape)}"
            )


def newest(
    folder: Path, say: Callable[[str], None], batch: int = 1, require: Callable[[Checkpoint], None] | None = None
) -> Checkpoint | None:
    """The newest good checkpoint, after a whole `batch`, of which `require` does not say that it is Damaged.

    A damaged one is set aside, named; the one before it gives the same run, bit for bit.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RunFailed(
            f"{folder} is {'a link' if folder.is_symlink() else 'no folder'}, expected a folder of checkpoints",
            "put the folder itself there, or move it away",
        )
    saved = listing(folder)
    for path in reversed(saved):
        try:
            checkpoint = load(path)
            if checkpoint.state.images % batch:
                raise Damaged(f"{path} stands at {checkpoint.state.images} images, in the middle of a batch of {batch}")
            if require is not None:
                require(checkpoint)
            return checkpoint
        except Damaged as error:
            say(f"{error.message}; set aside as {set_aside(path).name}, going on from the checkpoint before it")
    if saved or any(folder.glob("damaged-*")):
        raise RunFailed(
            f"every checkpoint under {folder} is damaged",
            "fulcrum never starts over in silence: remove the run with 'fulcrum runs rm' to train it anew",
        )
    return None
