"""The world's text encoder: words in, contextual token embeddings out, padding masked.

B prompts, L tokens of the longest prompt, E embedding width, V words
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world.words import tokenize
from fulcrum.files.shipped import load

PAD, UNKNOWN, EMPTY, HIDDEN = 0, 1, 2, 3  # HIDDEN is only used while training: the word to guess
SPECIAL = 4
LONGEST = 64


class Tokenizer:
    """Word level over a closed vocabulary; an unknown word becomes one token and is counted in `unknown`: whoever speaks
    to people tells it (`unknown_words.misread`), once and not in the middle of something else."""

    def __init__(self, words: Sequence[str]) -> None:
        if len(set(words)) != len(words):
            raise ValueError("the vocabulary holds a word twice; pass each word once")
        self.words = tuple(words)
        self.index = {word: SPECIAL + i for i, word in enumerate(self.words)}
        self.unknown: dict[str, int] = {}

    def __len__(self) -> int:
        return SPECIAL + len(self.words)

    def ids(self, prompt: str) -> list[int]:
        """Token ids of one prompt, never padded; the empty prompt is exactly [EMPTY]."""
        tokens = tokenize(prompt)
        if not tokens:
            if prompt.strip():
                raise ValueError(f"the prompt {prompt!r} holds no word that can be read; write plain English words")
            return [EMPTY]
        if len(tokens) > LONGEST:
            raise ValueError(f"a prompt may hold {LONGEST} tokens, found {len(tokens)}; shorten {prompt[:60]!r}...")
        for token in tokens:
            if token not in self.index:
                self.unknown[token] = self.unknown.get(token, 0) + 1
        return [self.index.get(token, UNKNOWN) for token in tokens]

    def batch(self, prompts: Sequence[str], length: int | None = None) -> tuple[Tensor, Tensor]:
        """ids (B, L) int64 padded with PAD, and mask (B, L) bool, true = a real token."""
        rows = [self.ids(prompt) for prompt in prompts]
        longest = max((len(row) for row in rows), default=1)
        length = longest if length is None else length
        if longest > length:
            raise ValueError(f"asked to pad to {length} tokens, but a prompt has {longest}; pass length >= {longest}")
        ids = torch.full((len(rows), length), PAD, dtype=torch.long)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        return ids, ids != PAD


def rotary(length: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine (L, width): attention sees how far and on which side a word stands, never its absolute place."""
    rate = torch.exp(-math.log(LONGEST) * torch.arange(0, width, 2, device=device) / width)
    angle = torch.arange(length, device=device)[:, None] * rate  # (L, width / 2)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def _turned(part: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    left, right = part.chunk(2, dim=-1)
    return part * cosine + torch.cat([-right, left], dim=-1) * sine


class TextBlock(nn.Module):
    """Pre-norm bidirectional attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, h: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        rows, length, width = h.shape
        q, k, v = (
            part.view(rows, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm_attention(h)).chunk(3, dim=-1)
        )  # (B, heads, L, E/heads)
        q, k = _turned(q, *turn), _turned(k, *turn)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        h = h + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return h + self.down(F.gelu(self.up(self.norm_mlp(h)), approximate="tanh"))  # type: ignore[no-any-return]


class WorldText(nn.Module):
    """Tiny bidirectional transformer over the world's words; every token carries what its object is."""

    def __init__(self, words: Sequence[str], width: int = 96, depth: int = 3, heads: int = 4) -> None:
        super().__init__()
        self.config = {"words": list(words), "width": width, "depth": depth, "heads": heads}
        self.width, self.heads = width, heads
        self.tokenizer = Tokenizer(words)
        self.word = nn.Embedding(len(self.tokenizer), width)
        self.blocks = nn.ModuleList(TextBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)  # unit variance: the denoiser's text input
        nn.init.normal_(self.word.weight, std=0.5)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        h = self.word(ids)  # (B, L, E)
        turn = rotary(ids.shape[1], self.width // self.heads, ids.device)
        for block in self.blocks:
            h = block(h, mask, turn)
        return self.norm(h) * mask[..., None]  # type: ignore[no-any-return]  # padding = 0

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], length: int | None = None) -> tuple[Tensor, Tensor]:
        """emb (B, L, E) float32 and mask (B, L) bool, true = keep; L = the longest prompt, or `length`."""
        if isinstance(prompts, str):
            raise TypeError("expected a list of prompts, found one string; pass [prompt]")
        ids, mask = self.tokenizer.batch(prompts, length)
        device = self.word.weight.device
        ids, mask = ids.to(device), mask.to(device)
        return self(ids, mask), mask


def load_text(name: str = "text", folder: Path | None = None) -> WorldText:
    """The shipped text encoder, frozen, in fp32 and eval mode."""
    return load(name, WorldText, folder)
