"""A trained run: find it by path or key, and draw with it, on one process or many."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.spec.errors import BadInput
from fulcrum.training.dist.collectives import rows_to_first
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder

if TYPE_CHECKING:
    from fulcrum.spec.record import Filler


# --------------------------------------------------------------------------------------------------
# A run that was trained: found by path or key under the folder of all runs, and drawn with.


KEY = re.compile("[0-9a-f]{16}")  # what the folder of a run is called


class TrainedRun(NamedTuple):
    """What a finished training gives back; other functions take it where they take a run."""

    key: str
    folder: Path
    result: dict[str, Any]  # images, seconds, weights_sha256 and more


def runs_under(out: Path) -> Iterator[Path]:
    """Folders that are called like a run and hold one's description."""
    for about in sorted(out.glob("*/about.json")):
        if KEY.fullmatch(about.parent.name) and not about.parent.is_symlink():
            yield about.parent


def find_run(name: str, out: Path) -> Path:
    """The folder of a run by path, key or the beginning of its key."""
    if "/" in name or (name.strip(".") and Path(name).is_dir()):
        path = Path(name).resolve()
        if not (path / "about.json").is_file() or not KEY.fullmatch(path.name):
            raise BadInput(
                f"{path} is not the folder of a run", "list the runs with: fulcrum runs list"
            )
        return path
    matches = [
        path.parent
        for path in sorted(out.glob("*/about.json"))
        if name and path.parent.name.startswith(name) and KEY.fullmatch(path.parent.name)
    ]
    if len(matches) != 1:
        what = "no run" if not matches else f"{len(matches)} runs"
        raise BadInput(
            f"{what} under {out} whose key begins with '{name}'",
            "list the runs with: fulcrum runs list --out " + str(out),
        )
    return matches[0]


def run_label(about: Mapping[str, Any]) -> str:
    """What a run is called beside its pictures, whose own seed is another one."""
    return f"{about['phrase']} (trained with seed {about['seed']})"


def images_seen(folder: RunFolder) -> int:
    """Where a run stands: the images of its newest checkpoint."""
    from fulcrum.training import checkpoint

    saved = checkpoint.listing(folder.checkpoints)
    return int(saved[-1].name) if saved else 0


def open_painter(
    folder: RunFolder,
    fillers: "tuple[type[Filler], ...]",
    guidance: float | None = None,
    steps: int | None = None,
    device: str = "cpu",
    size: tuple[int, int] | None = None,
    negative: str = "",
    solver: str = "euler",
    averaged: bool = True,
    at: int | None = None,
) -> "Painter":
    """Draws with the weights of a run, and samples as it does where nothing else is said; `size` is
    (H, W).

    Not `averaged`: with its last weights, whatever average it keeps. `at`: those it had after so
    many images.
    """
    from fulcrum.spec.edit import put, read
    from fulcrum.spec.run import System
    from fulcrum.training.dist.choose_system import device_named
    from fulcrum.training.kept_weights import weights_at
    from fulcrum.training.painter import Painter
    from fulcrum.training.start_weights import trained_weights

    system = System(device=device_named(device))
    run = read(folder.about()["run"], fillers)
    if guidance is not None:
        run = put(run, "sample.guide.scale", guidance)
    if steps is not None:
        run = put(run, "sample.steps", steps)
    codec, text = run.encode.codec.build(None), run.encode.text.build(None)
    weights = weights_at(folder, at) if averaged else trained_weights(folder, averaged)
    return Painter(run, weights, codec, text, system, size, negative, solver)


def draw(painter: "Painter", prompts: Sequence[str], seed: int) -> "Tensor":
    """uint8 pictures (B, 3, H, W), one for each prompt."""
    import torch

    try:
        return torch.cat(list(painter.pictures(prompts, seed)))
    except ValueError as error:  # the text encoder says what it cannot read
        raise BadInput(str(error), "write plain English words") from None


# --------------------------------------------------------------------------------------------------
# Pictures that all processes of a run draw together: each its share, all of them for the first.
#
# Every process has the whole weights. A picture's noise is keyed by its index, so it does not
# matter who draws it. B pictures, H, W pixels.


def shared_batches(
    painter: Painter, prompts: Sequence[str], seed: int, ranks: Ranks = ALONE
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Indices (B,) and uint8 pictures (B, 3, H, W), a steady batch at a time and in order, on the
    first process; the others draw as many and give none. Whole batches are dealt: each has the bits
    that one process gives it."""
    firsts, rows = range(0, len(prompts), painter.rows), painter.rows
    stride = painter.run.encode.codec.stride
    none = _none((painter.cells[0] * stride, painter.cells[1] * stride))
    for turn in range(0, len(firsts), ranks.size):
        dealt = [
            np.arange(first, min(first + rows, len(prompts)))
            for first in firsts[turn : turn + ranks.size]
        ]
        dealt += [np.arange(0)] * (ranks.size - len(dealt))
        mine = dealt[ranks.rank]
        wanted = [prompts[number] for number in mine.tolist()]
        drawn = torch.cat([none, *painter.pictures(wanted, seed, mine, steady=True)])
        for index, images in zip(
            dealt, rows_to_first(drawn, [len(part) for part in dealt], ranks), strict=False
        ):
            if len(index):
                yield index, images


def shared_sheet(
    open_painter: Callable[[], Painter],
    size: int,
    prompts: Sequence[str],
    seed: int,
    ranks: Ranks = ALONE,
) -> Tensor | None:
    """uint8 squares (B, 3, size, size) of a few prompts, dealt one by one, on the first process;
    none on the others.

    None on all processes where one has no memory for it: they all leave it out."""
    bounds = [len(prompts) * rank // ranks.size for rank in range(ranks.size + 1)]
    mine = np.arange(bounds[ranks.rank], bounds[ranks.rank + 1])
    drawn, full = [_none((size, size))], False
    try:
        if len(mine):  # a process with nothing to draw opens no painter
            drawn += open_painter().pictures(
                [prompts[number] for number in mine.tolist()], seed, mine
            )
    except torch.OutOfMemoryError:
        full = True
    if ranks.any(full):
        return None
    parts = rows_to_first(torch.cat(drawn), np.diff(bounds).tolist(), ranks)
    return torch.cat([_none((size, size)), *parts])


def _none(size: tuple[int, int]) -> Tensor:
    return torch.empty(0, 3, *size, dtype=torch.uint8)
