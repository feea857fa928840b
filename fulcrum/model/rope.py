"""Rotary positions on a grid: the table of angles, and turning pairs of features by them.

B batch, N tokens, H heads, d head width
"""

import torch
from torch import Tensor

from fulcrum.model.bf16 import narrowed


def rotary_table(rows: int, cols: int, axes: tuple[int, int], theta: float, device: torch.device) -> Tensor:
    """(1, N, d): cosines of the d/2 angles of each token, then their sines; rows first, then columns.

    Angles are made in fp64 and stored in fp32, as the published model does. It is made anew at each call: it costs
    microseconds, and a cached or registered table would be wrong after `to_empty`, a deep copy or another grid.
    """
    exact = torch.float32 if device.type == "mps" else torch.float64
    parts = []
    for axis, (count, dim) in enumerate(zip((rows, cols), axes, strict=True)):
        omega = theta ** (-torch.arange(0, dim, 2, dtype=exact, device=device) / dim)  # (dim/2,)
        angle = torch.arange(count, dtype=exact, device=device)[:, None] * omega  # (count, dim/2)
        angle = angle[:, None] if axis == 0 else angle[None]
        parts.append(angle.expand(rows, cols, dim // 2))
    angles = torch.cat(parts, dim=-1).reshape(1, rows * cols, -1)  # (1, N, d/2)
    return torch.cat((angles.cos(), angles.sin()), dim=-1).float()


def rotate(x: Tensor, table: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Turn the pairs (x[2i], x[2i+1]) of x (B, N, H, d) by the angles of table (1 or B, N, d)."""
    x, table = narrowed(x, dtype), narrowed(table, dtype)
    cos, sin = table[:, :, None].chunk(2, dim=-1)  # (., N, 1, d/2)
    even, odd = torch.unflatten(x, -1, (-1, 2)).unbind(-1)  # (B, N, H, d/2)
    return narrowed(torch.stack((cos * even - sin * odd, sin * even + cos * odd), dim=-1).flatten(-2), dtype)
