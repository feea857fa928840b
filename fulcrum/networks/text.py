"""The embedded text encoder, and which words of a prompt it does not know."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world.words import tokenize
from fulcrum.files.shipped import load
from fulcrum.spec.errors import BadInput, shown

# --------------------------------------------------------------------------------------------------
# The world's text encoder: words in, contextual token embeddings out, padding masked.
#
# Graph and parameter names are those of transformers' ModernBertModel with every layer global, the
# ids those of a stock word level tokenizer (arXiv:2412.13663; `fulcrum.training.interop.export`
# writes both): what leaves is a copy.
#
# B prompts, L tokens of the longest prompt, E embedding width, V words


PAD, UNKNOWN, START, HIDDEN = 0, 1, 2, 3  # HIDDEN is only used while training: the word to guess
SPECIAL = 4
LONGEST = 64  # tokens of a prompt: the start and 63 words
THETA = 64.0  # of the rotary angles: captions are short
EPS = 1e-5  # of the norms
# prompts that are encoded at a time: what they compute stays in the processor's cache
TOGETHER = 64


class Tokenizer:
    """Word level over a closed vocabulary; an unknown word becomes one token and is counted in
    `unknown`: whoever speaks to people tells it (`misread`), once and not in the
    middle of something else."""

    def __init__(self, words: Sequence[str]) -> None:
        if len(set(words)) != len(words):
            raise ValueError("the vocabulary holds a word twice; pass each word once")
        self.words = tuple(words)
        self.index = {word: SPECIAL + i for i, word in enumerate(self.words)}
        self.unknown: dict[str, int] = {}

    def __len__(self) -> int:
        return SPECIAL + len(self.words)

    def ids(self, prompt: str) -> list[int]:
        """Token ids of one prompt, never padded: the start, then its words. The empty prompt is
        exactly [START]."""
        return self.numbered(prompt, tokenize(prompt))

    def numbered(self, prompt: str, tokens: Sequence[str]) -> list[int]:
        """Token ids of a prompt whose words are known."""
        if not tokens and prompt.strip():
            raise ValueError(
                f"the prompt {prompt!r} holds no word that can be read; write plain English words"
            )
        if 1 + len(tokens) > LONGEST:
            raise ValueError(
                f"a prompt may hold {LONGEST - 1} words, found {len(tokens)}; shorten"
                f" {prompt[:60]!r}..."
            )
        for token in tokens:
            if token not in self.index:
                self.unknown[token] = self.unknown.get(token, 0) + 1
        return [START, *(self.index.get(token, UNKNOWN) for token in tokens)]

    def batch(self, prompts: Sequence[str], length: int | None = None) -> tuple[Tensor, Tensor]:
        """ids (B, L) int64 padded with PAD, and mask (B, L) bool, true = a real token."""
        words = [tokenize(prompt) for prompt in prompts]
        rows = [self.numbered(*each) for each in zip(prompts, words, strict=True)]
        longest = max((len(row) for row in rows), default=1)
        length = longest if length is None else length
        if longest > length:
            raise ValueError(
                f"asked to pad to {length} tokens, but a prompt has {longest}; pass length >="
                f" {longest}"
            )
        ids = torch.full((len(rows), length), PAD, dtype=torch.long)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        return ids, ids != PAD


def rotary(length: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine (L, width): attention sees how far and on which side a word stands, never its
    absolute place."""
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
        self.Wqkv, self.Wo = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )

    def forward(self, h: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.Wqkv(h).chunk(3, dim=-1)
        )  # (B, heads, L, E/heads)
        q, k = _turned(q, *turn), _turned(k, *turn)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        return self.Wo(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class WordMLP(nn.Module):
    """Gated: one half of the first product is let through by the other."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.Wi, self.Wo = (
            nn.Linear(width, 2 * hidden, bias=False),
            nn.Linear(hidden, width, bias=False),
        )

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
    """Tiny bidirectional transformer over the world's words; every token carries what its object
    is."""

    # of this code: raised when the same weights give other last bits, so that no older encoding is
    # read
    revision = 2

    def __init__(
        self,
        words: Sequence[str],
        width: int = 96,
        depth: int = 3,
        heads: int = 4,
        hidden: int = 192,
    ) -> None:
        super().__init__()
        self.config = {
            "words": list(words),
            "width": width,
            "depth": depth,
            "heads": heads,
            "hidden": hidden,
        }
        self.width, self.heads = width, heads
        self.tokenizer = Tokenizer(words)
        self.embeddings = WordEmbedding(len(self.tokenizer), width)
        self.layers = nn.ModuleList(
            TextLayer(width, heads, hidden, first=i == 0) for i in range(depth)
        )
        self.final_norm = _norm(width)
        # stays one: unit variance is the denoiser's text input
        self.final_norm.weight.requires_grad_(False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        h = self.embeddings(ids)  # (B, L, E)
        turn = rotary(ids.shape[1], self.width // self.heads, ids.device)
        for layer in self.layers:
            h = layer(h, mask, turn)
        return self.final_norm(h) * mask[..., None]  # type: ignore[no-any-return]  # padding = 0

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], length: int | None = None) -> tuple[Tensor, Tensor]:
        """emb (B, L, E) float32 and mask (B, L) bool, true = keep; L = the longest prompt, or
        `length`."""
        if isinstance(prompts, str):
            raise TypeError("expected a list of prompts, found one string; pass [prompt]")
        ids, mask = self.tokenizer.batch(prompts, length)
        device = self.final_norm.weight.device
        ids, mask = ids.to(device), mask.to(device)
        emb = torch.zeros(*ids.shape, self.width, device=device)
        lengths, order = mask.sum(1).sort(stable=True)
        # of about one length: hardly any padding is computed
        for first in range(0, len(prompts), TOGETHER):
            rows, longest = (
                order[first : first + TOGETHER],
                int(lengths[first : first + TOGETHER][-1]),
            )
            emb[rows, :longest] = self(ids[rows, :longest], mask[rows, :longest])
        return emb, mask


def load_text(name: str = "text", folder: Path | None = None) -> WorldText:
    """The shipped text encoder, frozen, in fp32 and eval mode."""
    return load(name, WorldText, folder)


# --------------------------------------------------------------------------------------------------
# Can the embedded text encoder read these captions? It knows the words of its own world and few
# others.


LOOKED_AT = 2000  # captions, spread over the source
LOST = 120  # letters that are told of what was cut
MOST_UNKNOWN = 0.5  # of all words: beyond, a caption says next to nothing
HINT = (
    "use a text encoder of the ecosystem: --set \"encode.text=pretrained_text(path='FOLDER')\", see"
    " docs/pretrained.md"
)


def unread(source: Any, chooser: Any, text: Any) -> str | None:
    """A warning where some words are unknown, a refusal where most are or a caption cannot be read
    at all.

    Only a user's own captions are looked at: the embedded world is worded in what its encoder
    knows.
    """
    tokenizer = getattr(text, "tokenizer", None)
    if not isinstance(tokenizer, Tokenizer) or getattr(source, "has_scenes", True):
        return None
    ids = np.unique(np.linspace(0, len(source) - 1, LOOKED_AT).astype(np.int64))
    words, unknown = 0, Counter[str]()
    for number, prompt in zip(ids, source.prompts(chooser, ids), strict=True):
        tokens = tokenize(prompt)
        if not tokens or 1 + len(tokens) > LONGEST:
            what = (
                f"has {len(tokens)} words, the most is {LONGEST - 1}"
                if tokens
                else "holds no word it can read"
            )
            raise BadInput(
                f"the embedded text encoder cannot take the caption of sample {number}:"
                f" {prompt[:60]!r} {what}",
                HINT,
            )
        words += len(tokens)
        unknown.update(token for token in tokens if token not in tokenizer.index)
    share = unknown.total() / max(words, 1)
    common = ", ".join(word for word, _ in unknown.most_common(8))
    if share > MOST_UNKNOWN:
        raise BadInput(
            f"the embedded text encoder does not know {share:.0%} of these captions' words:"
            f" {common}",
            HINT,
        )
    return (
        f"warning: {share:.1%} of the captions' words are not known to the embedded text encoder"
        f" and all read alike, as 'unknown': {common}"
        if unknown
        else None
    )


def shortened(text: Any, prompt: str) -> tuple[str, str]:
    """As much of a prompt as the embedded encoder takes, and in words what was cut; pretrained ones
    cut by themselves."""
    if (
        not isinstance(getattr(text, "tokenizer", None), Tokenizer)
        or len(tokenize(prompt)) < LONGEST
    ):
        return prompt, ""
    end = (
        bisect_left(range(len(prompt)), LONGEST, key=lambda length: len(tokenize(prompt[:length])))
        - 1
    )
    lost = shown(prompt[end:][:LOST])
    return (
        prompt[:end].strip(),
        f"the text encoder takes {LONGEST - 1} words: the rest was cut, '{lost}'",
    )


def readable(text: Any, prompts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Prompts as an encoder takes them, and in words what was cut; each prompt counts once, however
    often it is drawn."""
    pairs = {prompt: shortened(text, prompt) for prompt in dict.fromkeys(prompts)}
    lost = [prompt.removeprefix(kept).strip() for prompt, (kept, note) in pairs.items() if note]
    notes = [_cut(len(lost), f"{LONGEST - 1} words", lost[0])] if lost else []
    return [pairs[prompt][0] for prompt in prompts], notes


def _cut(count: int, limit: str, lost: str) -> str:
    """'1 prompt is longer than 63 words: the rest was cut, ...'."""
    which = ", of the first" if count > 1 else ","
    rest = f"{which} '{shown(lost[:LOST])}'" if lost else ""
    return (
        f"{count:,} prompt{'s are' if count > 1 else ' is'} longer than {limit}: the rest was"
        f" cut{rest}"
    )


def forget_prompts(text: Any) -> None:
    """Count anew what cannot be read, for one who tells it prompt by prompt."""
    if isinstance(getattr(text, "tokenizer", None), Tokenizer):
        text.tokenizer.unknown.clear()
    if hasattr(text, "cut"):
        text.cut, text.lost = 0, ""
        text.over.clear()


def misread(text: Any) -> list[str]:
    """What an encoder could not read of the prompts that it was given so far, in words. It counts;
    others speak."""
    unknown, over = (
        getattr(getattr(text, "tokenizer", None), "unknown", {}),
        getattr(text, "over", ()),
    )
    named = f"{', '.join(sorted(unknown))} (its words: docs/pictures.md)"
    words = [f"words the text encoder does not know, read as 'unknown': {named}"] if unknown else []
    return words + ([_cut(len(over), f"{text.longest} tokens", text.lost)] if over else [])
