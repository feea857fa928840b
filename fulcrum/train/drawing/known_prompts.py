"""A few prompts, read once: their text encoder need not stay in memory to draw them again and again.

B prompts, L tokens, E width
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fulcrum.networks.protocols import TextEncoder


class KnownPrompts:
    """Answers as the text encoder does, for these prompts and the empty one. Each was read alone."""

    def __init__(self, text: TextEncoder, prompts: Sequence[str]) -> None:
        self.tokens: dict[str, Tensor] = {}  # prompt -> (L, E), on the host
        for prompt in dict.fromkeys(("", *prompts)):
            emb, mask = text.encode([prompt])
            self.tokens[prompt] = emb[0, mask[0]].cpu()

    def encode(self, prompts: Sequence[str], length: int | None = None) -> tuple[Tensor, Tensor]:
        """emb (B, L, E), zero where padded, and mask (B, L), true = keep."""
        rows = [self.tokens[prompt] for prompt in prompts]
        length = length or max([1, *map(len, rows)])
        emb = torch.zeros(len(rows), length, self.tokens[""].shape[-1])
        mask = torch.zeros(len(rows), length, dtype=torch.bool)
        for number, row in enumerate(rows):
            emb[number, : len(row)], mask[number, : len(row)] = row, True
        return emb, mask

    def state_dict(self) -> dict[str, Any]:
        return dict(self.tokens)
