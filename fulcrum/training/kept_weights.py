"""Weights kept along a training, to be drawn with afterwards: what draws alone, no optimizer. They
decide nothing.

kept/<images>/ beside the checkpoints, which are thinned: weights.safetensors and state.json with
its checksum.
"""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fulcrum.files.atomic import folder_atomic, write_json
from fulcrum.files.paths import Damaged
from fulcrum.files.sealed import read_sealed, sealed, sha256_file
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.training import checkpoint
from fulcrum.training.average import drawn_parts, drawn_weights
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.loop import Observer, StepReport
from fulcrum.training.observers import Every
from fulcrum.training.run_folder import RunFolder, require_parts
from fulcrum.training.start_weights import trained_weights
from fulcrum.training.trackers import Watchers

KEPT, WEIGHTS = "kept", "weights.safetensors"


def keeping(count: int) -> Watchers:
    """What `perform` takes as observers: keeps the weights at `count` points, evenly spaced; the
    end is a checkpoint."""

    def watch(built: Built, folder: RunFolder, state: State) -> list[Observer]:
        stretch = max(built.run.budget.images // (count + 1), built.run.budget.batch)
        return [Every(stretch, lambda look: _keep(look, folder), state.images)] if count else []

    return watch


def _keep(look: StepReport, folder: RunFolder) -> None:
    """All processes hand over their part; the first writes. What cannot be written is said, and the
    run goes on."""
    weights, images = (
        drawn_weights(look.built.step, look.built.average, look.built.ranks),
        look.state.images,
    )
    if not look.built.ranks.first or images >= look.built.run.budget.images:
        return
    place = folder.path / KEPT
    try:
        if place.is_symlink():
            raise OSError(f"{place} is a link, expected a folder")
        with folder_atomic(place / f"{images:012d}", replace=True) as aside:
            save_file(
                {name: value.detach().cpu().contiguous() for name, value in weights.items()},
                aside / WEIGHTS,
            )
            about = {
                "key": folder.path.name,
                "images": images,
                "sha256": sha256_file(aside / WEIGHTS),
            }
            # the whole folder is flushed
            write_json(aside / "state.json", sealed(about), flush=False)
    except (OSError, SafetensorError) as error:
        look.built.feed.tell(
            f"the weights at {images:,} images could not be kept: {error}; the run goes on without"
            " them"
        )


def points(folder: RunFolder) -> list[int]:
    """Images after which there are weights to draw with, ascending: kept ones and checkpoints."""
    places = (folder.path / KEPT, folder.checkpoints)
    return sorted(
        {
            int(path.name)
            for place in places
            if not place.is_symlink()
            for path in checkpoint.listing(place)
        }
    )


def weights_at(folder: RunFolder, images: int | None) -> dict[str, Tensor]:
    """What a run drew with after so many images; None: its newest. Verified before they are
    used."""
    known = points(folder)
    if images is None or (known and images == known[-1]):
        return trained_weights(folder)
    if images not in known:
        raise BadInput(
            f"the run {folder.path.name} has no weights at {images:,} images",
            f"it has them at: {', '.join(f'{point:,}' for point in known) or 'none'}; more are kept"
            " by: fulcrum train ... --keep-checkpoints 8",
        )
    require_parts(folder.about())
    kept = folder.path / KEPT / f"{images:012d}"
    key, weights = (
        verified_weights(kept) if kept.is_dir() else _of_checkpoint(folder.checkpoints / kept.name)
    )
    if key != folder.path.name:
        raise RunFailed(
            f"{kept} belongs to the run {key}", "it was copied there by hand: remove it"
        )
    return weights


def _of_checkpoint(path: Path) -> tuple[Any, dict[str, Tensor]]:
    saved = checkpoint.load(path)
    return saved.key, drawn_parts(saved.parts)


def verified_weights(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """The key of the run and its weights, or Damaged saying what is wrong with them."""
    if path.is_symlink():
        raise Damaged(
            f"{path} is a link, expected a folder", "remove it: nothing but drawing needs it"
        )
    try:
        about = read_sealed(path / "state.json", "", kind=Damaged)
        if sha256_file(path / WEIGHTS) != about.get("sha256") or about.get("images") != int(
            path.name
        ):
            raise Damaged(
                f"{path} is not what was kept there", "remove it: nothing but drawing needs it"
            )
        return about.get("key"), load_file(path / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise Damaged(
            f"{path} cannot be read: {type(error).__name__}: {error}", "remove it"
        ) from error
