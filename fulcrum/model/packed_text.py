"""Text without its padding: only real tokens are projected, and keys are laid out where attention wants them.

B batch, L text tokens, M real text tokens of the batch, N image tokens, E text width
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# emb (B, L, E), mask (B, L) true = keep, and how many tokens are real at most, where the host has counted them
Text = tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, int | None]
ALIGN = 8  # the number of keys is rounded up to this: CPU attention was 5-10 % faster over 48+64 keys than over 45+64


class Packed(NamedTuple):
    rows: Tensor  # (M, E) the tokens that are read
    place: Tensor | None  # (M,) where each stands in the flattened (B, L); none: every place is taken, in order
    bias: Tensor | None  # (B, 1, 1, L) 0 for what may be read, -inf for padding


class ReadText(NamedTuple):
    """What every block needs of a text. Keys and values do not change between the steps of a sampler."""

    rows: tuple[Tensor, ...]  # per block: packed (M, D), or keys and values (B, L, 2, H, d)
    place: Tensor | None  # (M,) of the packed rows
    bias: Tensor | None  # (B, 1, 1, L)


def pack(emb: Tensor, mask: Tensor | None, most: int | None = None) -> Packed:
    """emb (B, L, E), mask (B, L) true = keep, padding anywhere; `most` real tokens.

    Off the CPU as many rows are taken as are real at most: to count them the host would have to wait for the device.
    """
    if mask is None:
        return Packed(emb.flatten(0, 1), None, None)
    if mask.shape != emb.shape[:2]:
        raise ValueError(f"the mask must be (batch, length) = {tuple(emb.shape[:2])}, found {tuple(mask.shape)}")
    mask = mask.bool()
    if emb.device.type != "cpu":
        return pack_at_most(emb, mask, mask.numel() if most is None else most)
    rows = emb.flatten(0, 1)[mask.flatten()]  # (M, E)
    if most is not None and len(rows) > most:
        raise ValueError(f"{len(rows)} tokens are real, and at most {most} were said to be")
    mask = F.pad(mask, (0, -mask.shape[1] % ALIGN))
    return Packed(rows, mask.flatten().nonzero()[:, 0], key_bias(mask))


def pack_at_most(emb: Tensor, mask: Tensor, most: int) -> Packed:
    """The first `most` places, real ones before padding: no number of the device is read. What is padding among them goes
    to its own place, where attention does not look."""
    if most >= mask.numel():
        return Packed(emb.flatten(0, 1), None, key_bias(mask))
    place = mask.flatten().to(torch.uint8).argsort(descending=True, stable=True)[:most]
    return Packed(emb.flatten(0, 1)[place], place, key_bias(mask))


def unpack(rows: Tensor, place: Tensor | None, batch: int, bias: Tensor | None) -> Tensor:
    """rows (M, ...) -> (B, L, ...), zeros where no row is placed."""
    if place is None or bias is None:
        return torch.unflatten(rows, 0, (batch, -1))
    length = bias.shape[-1]
    placed = rows.new_zeros(batch * length, *rows.shape[1:]).index_copy(0, place, rows)
    return torch.unflatten(placed, 0, (batch, length))


def key_bias(mask: Tensor) -> Tensor:
    """mask (B, L) -> (B, 1, 1, L): one number per key, broadcast over heads and queries by the attention."""
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return zeros.masked_fill(~mask, -torch.inf)[:, None, None]


def any_length(rows: Tensor, place: Tensor | None) -> None:
    """A text has another number of real tokens at every batch: one graph for all."""
    if place is not None:
        for varying in (rows, place):
            torch._dynamo.maybe_mark_dynamic(varying, 0)
