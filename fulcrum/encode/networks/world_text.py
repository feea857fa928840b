"""The world's text encoder: words in, contextual token embeddings out, padding masked.

Graph and parameter names are those of transformers' ModernBertModel with every layer global, the ids those of a stock word
level tokenizer (arXiv:2412.13663; `fulcrum.interop.exported_text` writes both): what leaves is a copy.

B prompts, L tokens of the longest prompt, E embedding width, V words
"""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world.words import tokenize
from fulcrum.files.shipped import load

PAD, UNKNOWN, START, HIDDEN = 0, 1, 2, 3  # HIDDEN is only used while training: the word to guess
SPECIAL = 4
LONGEST = 64  # tokens of a prompt: the start and 63 words
THETA = 64.0  # of the rotary angles: captions are short
EPS = 1e-5  # of the norms
TOGETHER = 64  # prompts that are encoded at a time: what they compute stays in the processor's cache


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
        """Token ids of one prompt, never padded: the start, then its words. The empty prompt is exactly [START]."""
        tokens = tokenize(prompt)
        if not tokens and prompt.strip():
            raise ValueError(f"the prompt {prompt!r} holds no word that can be read; write plain English words")
        if 1 + len(tokens) > LONGEST:
            raise ValueError(f"a prompt may hold {LONGEST - 1} words, found {len(tokens)}; shorten {prompt[:60]!r}...")
        for token in tokens:
            if token not in self.index:
                self.unknown[token] = self.unknown.get(token, 0) + 1
        return [START, *(self.index.get(token, UNKNOWN) for token in tokens)]

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
    rate = 1.0 / THETA ** (torch.arange(0, width, 2, dtype=torch.float32, device=device) / width)
    angle = torch.arange(length, device=device)[:, None] * rate  # (L, width / 2)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def _turned(part: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    left, right = part.chunk(2, dim=-1)
    return part * cosine + torch.cat([-right, left], dim=-1) * sine


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=EPS, bias=False)


class WordEmbedding(nn.Module):
    """Words as vectors of unit variance."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(words, width, padding_idx=PAD)
        self.norm = _norm(width)

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(self.tok_embeddings(ids))  # type: ignore[no-any-return]


class WordAttention(nn.Module):
    """Every word looks at every other, on both sides."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.Wqkv, self.Wo = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, h: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.Wqkv(h).chunk(3, dim=-1)
        )  # (B, heads, L, E/heads)
        q, k = _turned(q, *turn), _turned(k, *turn)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        return self.Wo(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class WordMLP(nn.Module):
    """Gated: one half of the first product is let through by the other."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.Wi, self.Wo = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        value, gate = self.Wi(h).chunk(2, dim=-1)
        return self.Wo(F.gelu(value) * gate)  # type: ignore[no-any-return]


class TextLayer(nn.Module):
    """Pre-norm attention and MLP; the first layer reads embeddings that are normalised already."""

    def __init__(self, width: int, heads: int, hidden: int, first: bool) -> None:
        super().__init__()
        self.attn_norm = nn.Identity() if first else _norm(width)
        self.attn = WordAttention(width, heads)
        self.mlp_norm = _norm(width)
        self.mlp = WordMLP(width, hidden)

    def forward(self, h: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        h = h + self.attn(self.attn_norm(h), mask, turn)
        return h + self.mlp(self.mlp_norm(h))  # type: ignore[no-any-return]


class WorldText(nn.Module):
    """Tiny bidirectional transformer over the world's words; every token carries what its object is."""

    revision = 2  # of this code: raised when the same weights give other last bits, so that no older encoding is read

    def __init__(self, words: Sequence[str], width: int = 96, depth: int = 3, heads: int = 4, hidden: int = 192) -> None:
        super().__init__()
        self.config = {"words": list(words), "width": width, "depth": depth, "heads": heads, "hidden": hidden}
        self.width, self.heads = width, heads
        self.tokenizer = Tokenizer(words)
        self.embeddings = WordEmbedding(len(self.tokenizer), width)
        self.layers = nn.ModuleList(TextLayer(width, heads, hidden, first=i == 0) for i in range(depth))
        self.final_norm = _norm(width)
        self.final_norm.weight.requires_grad_(False)  # stays one: unit variance is the denoiser's text input

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        h = self.embeddings(ids)  # (B, L, E)
        turn = rotary(ids.shape[1], self.width // self.heads, ids.device)
        for layer in self.layers:
            h = layer(h, mask, turn)
        return self.final_norm(h) * mask[..., None]  # type: ignore[no-any-return]  # padding = 0

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], length: int | None = None) -> tuple[Tensor, Tensor]:
        """emb (B, L, E) float32 and mask (B, L) bool, true = keep; L = the longest prompt, or `length`."""
        if isinstance(prompts, str):
            raise TypeError("expected a list of prompts, found one string; pass [prompt]")
        ids, mask = self.tokenizer.batch(prompts, length)
        device = self.final_norm.weight.device
        ids, mask = ids.to(device), mask.to(device)
        emb = torch.zeros(*ids.shape, self.width, device=device)
        lengths, order = mask.sum(1).sort(stable=True)
        for first in range(0, len(prompts), TOGETHER):  # of about one length: hardly any padding is computed
            rows, longest = order[first : first + TOGETHER], int(lengths[first : first + TOGETHER][-1])
            emb[rows, :longest] = self(ids[rows, :longest], mask[rows, :longest])
        return emb, mask


def load_text(name: str = "text", folder: Path | None = None) -> WorldText:
    """The shipped text encoder, frozen, in fp32 and eval mode."""
    return load(name, WorldText, folder)
