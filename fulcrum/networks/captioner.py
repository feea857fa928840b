"""The embedded captioner, and the score of how well a picture and a caption fit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fulcrum.files.shipped import AssetError, asset_hash, load
from fulcrum.networks.judges import nine_looks
from fulcrum.networks.network_hash import to_side, to_unit
from fulcrum.networks.teacher import Teacher, load_teacher
from fulcrum.networks.text import WorldText, load_text
from fulcrum.spec.keyed import key, uniform

# --------------------------------------------------------------------------------------------------
# How well a picture and a caption belong together: a small dual encoder on frozen teacher and text
# tokens.
#
# B pairs, N teacher tokens, L text tokens, E token widths, P = 9 places, Q looks at a caption, D
# embedding


SIDE = 32
READS = ("teacher", "text")  # the shipped parts it stands on


class PairScore(nn.Module):
    """Both sides meet on the unit sphere; `logit` is the log-odds that they belong together
    (SigLIP, arXiv:2303.15343).

    A sigmoid per pair, not a softmax over a batch: scores of short and long captions are then on
    one scale.
    """

    def __init__(
        self,
        seen: int = 128,
        said: int = 96,
        looks: int = 6,
        hidden: int = 96,
        width: int = 64,
        reads: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.config = {
            "seen": seen,
            "said": said,
            "looks": looks,
            "hidden": hidden,
            "width": width,
            "reads": dict(reads or {}),
        }
        self.picture = nn.Sequential(
            nn.Linear(9 * seen, hidden), nn.SiLU(), nn.Linear(hidden, width)
        )
        self.attend = nn.Linear(said, looks)
        self.caption = nn.Sequential(
            nn.Linear(looks * said, hidden), nn.SiLU(), nn.Linear(hidden, width)
        )
        self.scale, self.offset = nn.Parameter(torch.tensor(2.3)), nn.Parameter(torch.tensor(-5.0))

    def see(self, pooled: Tensor) -> Tensor:
        """Teacher tokens pooled by place, (B, P * E) -> (B, D), unit length."""
        return F.normalize(self.picture(pooled), dim=-1)

    def read(self, emb: Tensor, mask: Tensor) -> Tensor:
        """Text tokens (B, L, E) -> (B, D), unit length: each look takes a weighted mean of the
        tokens."""
        # (B, L, Q)
        weight = self.attend(emb).masked_fill(~mask[..., None], -torch.inf).softmax(dim=1)
        looked = torch.einsum("blq,ble->bqe", weight, emb).flatten(1)  # (B, Q * E)
        return F.normalize(self.caption(looked), dim=-1)

    def logit(self, cosine: Tensor) -> Tensor:
        return self.scale.exp() * cosine + self.offset


def by_place(tokens: Tensor) -> Tensor:
    """A square grid of tokens (B, N, E), averaged over each of the nine places: (B, P * E)."""
    side = round(tokens.shape[1] ** 0.5)
    grid = tokens.transpose(1, 2).reshape(len(tokens), -1, side, side)  # (B, E, side, side)
    return F.adaptive_avg_pool2d(grid, 3).flatten(1)


class Scorer(nn.Module):
    """Pictures and prompts in, log-odds out: the dual encoder with the frozen parts that it
    reads."""

    def __init__(self, pair: PairScore, teacher: Teacher, text: WorldText) -> None:
        super().__init__()
        self.pair, self.teacher, self.text = pair, teacher, text
        self.config = {"pair": pair.config, "teacher": teacher.config, "text": text.config}

    @torch.no_grad()
    def score(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        """Images (B, 3, S, S) uint8 and B prompts -> (B,): higher fits better."""
        if len(images) != len(prompts):
            raise ValueError(
                f"one prompt per picture: expected {len(images)}, found {len(prompts)}"
            )
        # (B, D)
        seen = self.pair.see(by_place(self.teacher.tokens(to_side(to_unit(images), SIDE))))
        read = self.pair.read(*self.text.encode(prompts))
        return self.pair.logit((seen * read).sum(-1))


def load_score(name: str = "score", folder: Path | None = None) -> PairScore:
    """The shipped dual encoder alone, frozen, in fp32 and eval mode."""
    pair = load(name, PairScore, folder)
    stale = [part for part, known in pair.config["reads"].items() if asset_hash(part) != known]  # type: ignore[attr-defined]
    if stale:
        raise AssetError(
            f"the part {name!r} was trained on another {' and '.join(stale)} than the one that is"
            " here",
            f"in a clone, run: python -m tools.assets --only {name}",
        )
    return pair


def load_scorer(name: str = "score") -> Scorer:
    """The shipped scorer with the parts that it reads."""
    return Scorer(load_score(name), load_teacher(), load_text()).eval().requires_grad_(False)


# --------------------------------------------------------------------------------------------------
# The world's captioner: pixels in, words out, in four styles; nobody tells it the scene.
#
# A small convolutional eye looks at the nine places and at the whole; its ten tokens stand before
# the words, and a causal transformer goes on from them, as in LLaVA (arXiv:2304.08485). It was
# trained from pictures to words, and reads the embedded world only.
#
# B pictures, V = 10 tokens of the eye, L words, C channels, D width


CAPTIONER_SIDE = 32
CELLS = 8  # the eye's last grid, along each side
BANDS = 4  # of the whole picture, from top to bottom: backgrounds differ between above and below
PAD, END = 0, 1  # then one start for each style, then the words
MARKS = (".", ",")
# words are drawn at half the temperature: 36 instead of 29 captions of 100 told every object right
SURER = 2.0
DICE = 64  # more than any caption has words
TOGETHER = 128  # pictures that are written about at a time
Past = tuple[Tensor, Tensor] | None  # of one layer: keys and values of all tokens so far


def spelled(tokens: Sequence[str]) -> str:
    """Words to a text: marks close up to the word before, sentences begin with a capital."""
    text = " ".join(tokens).replace(" ,", ",").replace(" .", ".")
    return (
        ". ".join(part[:1].upper() + part[1:] for part in text.split(". "))
        if text.endswith(".")
        else text
    )


def _conv(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class Eye(nn.Module):
    """(B, 3, 32, 32) in [-1, 1] -> (B, V, D): one token for each place, one for the whole
    picture."""

    def __init__(self, width: int, fine: int, coarse: int) -> None:
        super().__init__()
        self.enter = _conv(3, 24)
        # 16 x 16
        self.fine = nn.Sequential(_conv(24, fine, stride=2), _conv(fine, fine), _conv(fine, fine))
        # 8 x 8
        self.coarse = nn.Sequential(
            _conv(fine, coarse, stride=2), _conv(coarse, coarse), _conv(coarse, coarse)
        )
        self.look = nn.Parameter(nine_looks(2.0, 8.0))
        self.place, self.whole = (
            nn.Linear(2 * coarse, width),
            nn.Linear(BANDS * (fine + coarse), width),
        )
        self.where = nn.Parameter(torch.randn(10, width) * 0.5)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> Tensor:
        fine = self.fine(self.enter(pixels.contiguous(memory_format=torch.channels_last)))
        coarse = self.coarse(fine)  # (B, C, 8, 8)
        cells = coarse.flatten(2).transpose(1, 2)  # (B, 64, C)
        looked = (self.look.softmax(-1) @ cells).unflatten(1, (9, 2)).flatten(2)  # (B, 9, 2C)
        bands = torch.cat(
            [F.adaptive_avg_pool2d(maps, (BANDS, 1)).flatten(1) for maps in (fine, coarse)], dim=1
        )
        return torch.cat([self.place(looked), self.whole(bands)[:, None]], dim=1) + self.where


class CausalBlock(nn.Module):
    """Attention to all that came before, then two linear layers; the past is handed on from word to
    word."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rise, self.fall = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h: Tensor, past: Past, mask: Tensor | None) -> tuple[Tensor, Past]:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.before(h)).chunk(3, dim=-1)
        )
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        h = h + self.out(
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        )
        return h + self.fall(F.silu(self.rise(self.between(h)))), (k, v)


class WorldCaptioner(nn.Module):
    """`write` gives a caption to each picture; `forward` the logits that it is trained by."""

    def __init__(
        self,
        words: Sequence[str],
        styles: Mapping[str, int],
        width: int = 96,
        heads: int = 4,
        depth: int = 3,
        fine: int = 40,
        coarse: int = 80,
    ) -> None:
        super().__init__()
        self.config = {"words": list(words), "styles": dict(styles), "width": width, "heads": heads}
        self.config |= {"depth": depth, "fine": fine, "coarse": coarse}
        self.styles = dict(styles)  # name -> most words
        self.words = ("", "", *("" for _ in styles), *words)
        self.index = {word: number for number, word in enumerate(self.words) if word}
        self.eye = Eye(width, fine, coarse)
        self.embed = nn.Embedding(len(self.words), width)
        self.position = nn.Parameter(torch.randn(max(self.styles.values()) + 2, width) * 0.02)
        self.blocks = nn.ModuleList(CausalBlock(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(self.words))

    def start(self, style: str) -> int:
        return 2 + list(self.styles).index(style)

    def forward(self, seen: Tensor, ids: Tensor) -> Tensor:
        """What the eye saw (B, V, D) and words (B, L), the style's start first -> logits of what
        follows (B, L, words)."""
        h = torch.cat([seen, self.embed(ids) + self.position[: ids.shape[1]]], dim=1)
        mask = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool, device=h.device).tril()
        mask[: seen.shape[1], : seen.shape[1]] = True  # what is seen is seen at once
        for block in self.blocks:
            h, _ = block(h, None, mask)
        return self.head(self.norm(h[:, seen.shape[1] :]))  # type: ignore[no-any-return]

    @torch.no_grad()
    def write(self, images: Tensor, style: str, dice: Tensor | None = None) -> list[str]:
        """Images (B, 3, S, S) uint8 -> a caption each: the likeliest words, or with `dice` (B,
        words) in [0, 1) drawn ones, so that one thing is told in several ways."""
        return [self.text(row) for row in self.ids(images, style, dice).tolist()]

    def text(self, ids: Sequence[int]) -> str:
        return spelled([self.words[number] for number in ids if self.words[number]])

    @torch.no_grad()
    def ids(self, images: Tensor, style: str, dice: Tensor | None = None) -> Tensor:
        """(B, most words of the style) uint8, END after the last word: what `write` spells."""
        if style not in self.styles:
            raise ValueError(f"this captioner writes {', '.join(self.styles)}; asked for {style!r}")
        ids = torch.full((len(images), self.styles[style]), END, dtype=torch.uint8)
        for first in range(0, len(images), TOGETHER):
            rows = slice(first, first + TOGETHER)
            pixels = to_side(to_unit(images[rows].to(self.position.device)), CAPTIONER_SIDE)
            words = self._written(self.eye(pixels), style, None if dice is None else dice[rows])
            ids[rows, : words.shape[1]] = words.to("cpu", torch.uint8)
        return ids

    def _written(self, seen: Tensor, style: str, dice: Tensor | None) -> Tensor:
        most, last = (
            self.styles[style],
            torch.full((len(seen),), self.start(style), device=seen.device),
        )
        past: list[Past] = [None] * len(self.blocks)
        ids, ended = [], torch.zeros_like(last, dtype=torch.bool)
        for place in range(most):
            h = (self.embed(last) + self.position[place])[:, None]
            if place == 0:
                past, _ = self._stepped(seen, past)
            past, h = self._stepped(h, past)
            logits = self.head(self.norm(h[:, 0]))
            logits[:, [PAD, *range(2, 2 + len(self.styles))]] = -torch.inf  # no words
            last = logits.argmax(-1) if dice is None else _drawn(logits, dice[:, place])
            last = torch.where(ended, END, last)
            ended = ended | (last == END)
            if bool(ended.all()):
                break
            ids.append(last)
        return torch.stack(ids, dim=1) if ids else last.new_zeros(len(seen), 0)

    def _stepped(self, h: Tensor, past: list[Past]) -> tuple[list[Past], Tensor]:
        """Through all blocks, after what came before; tokens that come together see each other."""
        grown: list[Past] = []
        for block, before in zip(self.blocks, past, strict=True):
            h, own = block(h, before, None)
            grown.append(own)
        return grown, h


def _drawn(logits: Tensor, dice: Tensor) -> Tensor:
    """(B,) the word at the place of each die among the summed probabilities, sharpened: wordings
    that are alike likely stay so, and what is unlikely in the picture is hardly ever said."""
    summed = (SURER * logits.double()).softmax(-1).cumsum(-1)
    return (
        (summed <= dice[:, None].to(summed) * summed[:, -1:])
        .sum(-1)
        .clamp(max=logits.shape[-1] - 1)
    )


def word_dice(numbers: NDArray[np.integer[Any]], style: str) -> Tensor:
    """(B, words) in [0, 1): a die for each word of a caption, by the picture's number and the style
    alone."""
    return torch.from_numpy(uniform(key("caption words", style, np.asarray(numbers)), DICE))


def load_captioner(name: str = "captioner", folder: Path | None = None) -> WorldCaptioner:
    """The shipped captioner, frozen, in fp32 and eval mode."""
    return load(name, WorldCaptioner, folder)
