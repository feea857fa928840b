"""Pictures that all processes of a run draw together: each its share, all of them for the first.

Every process has the whole weights. A picture's noise is keyed by its index, so it does not matter who draws it.
B pictures, H, W pixels.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fulcrum.dist.processes.start import ALONE, Ranks
from fulcrum.dist.reduce import rows_to_first
from fulcrum.train.drawing.painter import Painter


def shared_batches(
    painter: Painter, prompts: Sequence[str], seed: int, ranks: Ranks = ALONE
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Indices (B,) and uint8 pictures (B, 3, H, W), a steady batch at a time and in order, on the first process; the others
    draw as many and give none. Whole batches are dealt: each has the bits that one process gives it."""
    firsts, rows = range(0, len(prompts), painter.rows), painter.rows
    stride = painter.run.encode.codec.stride
    none = _none((painter.cells[0] * stride, painter.cells[1] * stride))
    for turn in range(0, len(firsts), ranks.size):
        dealt = [np.arange(first, min(first + rows, len(prompts))) for first in firsts[turn : turn + ranks.size]]
        dealt += [np.arange(0)] * (ranks.size - len(dealt))
        mine = dealt[ranks.rank]
        wanted = [prompts[number] for number in mine.tolist()]
        drawn = torch.cat([none, *painter.pictures(wanted, seed, mine, steady=True)])
        for index, images in zip(dealt, rows_to_first(drawn, [len(part) for part in dealt], ranks), strict=False):
            if len(index):
                yield index, images


def shared_sheet(
    open_painter: Callable[[], Painter], size: int, prompts: Sequence[str], seed: int, ranks: Ranks = ALONE
) -> Tensor | None:
    """uint8 squares (B, 3, size, size) of a few prompts, dealt one by one, on the first process; none on the others.

    None on all processes where one has no memory for it: they all leave it out."""
    bounds = [len(prompts) * rank // ranks.size for rank in range(ranks.size + 1)]
    mine = np.arange(bounds[ranks.rank], bounds[ranks.rank + 1])
    drawn, full = [_none((size, size))], False
    try:
        if len(mine):  # a process with nothing to draw opens no painter
            drawn += open_painter().pictures([prompts[number] for number in mine.tolist()], seed, mine)
    except torch.OutOfMemoryError:
        full = True
    if ranks.any(full):
        return None
    parts = rows_to_first(torch.cat(drawn), np.diff(bounds).tolist(), ranks)
    return torch.cat([_none((size, size)), *parts])


def _none(size: tuple[int, int]) -> Tensor:
    return torch.empty(0, 3, *size, dtype=torch.uint8)
