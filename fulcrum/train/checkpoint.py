"""Checkpoints: written aside, renamed whole, verified by checksum before they are used, thinned by a rule.

A checkpoint is a folder checkpoints/<images>/ with state.json and one safetensors file per part.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fulcrum.spec.errors import RunFailed

KEEP_LAST = 2  # the newest, and one more if the newest is damaged


class Checkpoint(NamedTuple):
    parts: dict[str, dict[str, Tensor]]  # model, optimizer, average
    about: dict[str, Any]  # key, state, system, versions


def file_hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """One hash for a set of named tensors: names, shapes, types and bytes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tuple(value.shape)}:{value.dtype};".encode())
        digest.update(memoryview(value.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def save(folder: Path, images: int, checkpoint: Checkpoint) -> Path:
    """Write checkpoints/<images>; a failure on the way (a full disk) leaves the older ones as they were."""
    final, aside = folder / f"{images:012d}", folder / f".writing-{images:012d}-{os.getpid()}"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        files = {}
        for part, tensors in checkpoint.parts.items():
            path = aside / f"{part}.safetensors"
            save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)
            _flush(path)
            files[part] = file_hash(path)
        about = {**checkpoint.about, "images": images, "files": files}
        about["check"] = _seal(about)
        (aside / "state.json").write_text(json.dumps(about, indent=1, sort_keys=True))
        _flush(aside / "state.json")
        if final.exists():
            shutil.rmtree(final)
        aside.rename(final)
        _flush(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        good = [path.name.lstrip("0") for path in listing(folder)]
        raise RunFailed(
            f"could not save the checkpoint at {images} images: {error}",
            f"the last good one is at {good[-1]} images; make room and start the same command again"
            if good
            else "nothing was saved yet; make room and start again",
        ) from error
    for old in listing(folder)[:-KEEP_LAST]:
        shutil.rmtree(old)
    return final


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _seal(about: Mapping[str, Any]) -> str:
    text = json.dumps({name: value for name, value in about.items() if name != "check"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def listing(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name.isdigit())


def load(path: Path) -> Checkpoint:
    """A verified checkpoint, or RunFailed saying what is wrong with it."""
    try:
        about = json.loads((path / "state.json").read_text())
        if about["check"] != _seal(about):
            raise RunFailed(f"{path}: state.json was changed after it was written")
        for part, expected in about["files"].items():
            found = file_hash(path / f"{part}.safetensors")
            if found != expected:
                raise RunFailed(f"{path / part}.safetensors is damaged: checksum {found[:12]}, expected {expected[:12]}")
        return Checkpoint({part: load_file(path / f"{part}.safetensors") for part in about["files"]}, about)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunFailed(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest good checkpoint. A damaged one is set aside, named; the one before it gives the same run, bit for bit."""
    found = listing(folder)
    for path in reversed(found):
        try:
            return load(path)
        except RunFailed as error:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            say(f"{error.message}; set aside as {aside.name}, going on from the checkpoint before it")
    if found or any(folder.glob("damaged-*")):
        raise RunFailed(
            f"every checkpoint under {folder} is damaged",
            "fulcrum never starts over in silence: remove the run with 'fulcrum runs rm' to train it anew",
        )
    return None
