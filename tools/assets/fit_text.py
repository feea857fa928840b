"""Trains and measures the text encoder: every token must tell what its object is, and hidden words
are guessed.

B captions, L tokens, E width
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import Scenes, scenes
from fulcrum.data.world.words import BACKGROUND, MAX_TOKENS, STYLES, WORDS, captions, tokenize
from fulcrum.networks.text import HIDDEN, PAD, START, Tokenizer, WorldText
from tools.assets.fit import Effort, Progress, fit

EFFORT = Effort(steps=800, batch=64, lr=2e-3, seed=41)
SCENES, FIRST = 12_000, 150_000
SHARES = {"long": 0.6, "medium": 0.2, "short": 0.2}
OBJECT = {
    "shape": len(v.SHAPES),
    "colour": len(v.COLOURS),
    "texture": len(v.TEXTURES),
    "size": len(v.SIZES),
    "place": len(v.PLACES),
}
GROUND = {
    "background": len(v.BACKGROUNDS),
    "first": len(v.BACKGROUND_COLOURS),
    "second": len(v.BACKGROUND_COLOURS),
}
SKIP = -100  # cross_entropy's "no question here"
GUESSED = 4  # one row in four guesses hidden words
NOISE = 1.0  # deviation of what is added to tokens before they are asked
UNSAID = 0  # the caption does not say it; classes start at 1


@dataclass(frozen=True)
class Lesson:
    """Captions as token ids, and per token what its owner is."""

    ids: Tensor  # (n, L) int64, PAD at the end
    #: attribute -> (n, L) int64: class + 1, UNSAID, or SKIP (not its owner)
    wanted: dict[str, Tensor]


def lesson(drawn: Scenes, style: str) -> Lesson:
    """All captions of one style.  What a style leaves out is UNSAID, so that the encoder does not
    make it up."""
    captioned, tokenizer = captions(drawn, style), Tokenizer(WORDS)
    ids = torch.full((len(drawn), MAX_TOKENS), PAD)
    wanted = {name: np.full((len(drawn), MAX_TOKENS), SKIP) for name in (*OBJECT, *GROUND)}
    colours = set(v.COLOURS)
    for row, (text, owner) in enumerate(zip(captioned.texts, captioned.owners, strict=True)):
        tokens, read = tokenize(text), tokenizer.ids(text)
        ids[row, : len(read)] = torch.tensor(read)
        for slot in range(v.MAX_OBJECTS):
            mine = np.flatnonzero(owner == slot)  # the start stands before them all
            named = {
                "shape": True,
                "colour": any(tokens[k] in colours for k in mine),
                "place": style != "short",
                "texture": style == "long",
                "size": style == "long",
            }
            for name in OBJECT:
                wanted[name][row, 1 + mine] = (
                    getattr(drawn, name)[row, slot] + 1 if named[name] else UNSAID
                )
        behind = 1 + np.flatnonzero(owner == BACKGROUND)
        wanted["background"][row, behind] = drawn.background[row] + 1
        wanted["first"][row, behind] = drawn.background_colour[row, 0] + 1
        # -1 (none) becomes UNSAID
        wanted["second"][row, behind] = drawn.background_colour[row, 1] + 1
    return Lesson(ids, {name: torch.from_numpy(values) for name, values in wanted.items()})


class Homework(nn.Module):
    """Linear questions on the tokens; thrown away afterwards."""

    def __init__(self, text: WorldText) -> None:
        super().__init__()
        self.text = text
        self.heads = nn.ModuleDict(
            {name: nn.Linear(text.width, count + 1) for name, count in {**OBJECT, **GROUND}.items()}
        )
        self.guess = nn.Linear(text.width, len(text.tokenizer))

    def forward(
        self, ids: Tensor, wanted: dict[str, Tensor], hide: Tensor, noise: Tensor
    ) -> Tensor:
        """Attributes from whole captions (most of the rows), hidden words from the others.

        The questions are read through noise: a token has unit variance to spend, and it goes to
        what its object is.
        """
        whole = len(ids) - len(ids) // GUESSED
        hide = hide & (ids != PAD) & (ids != START)
        hide[:whole] = False
        tokens = self.text(ids.masked_fill(hide, HIDDEN), ids != PAD)  # (B, L, E)
        total = F.cross_entropy(
            self.guess(tokens[whole:]).flatten(0, 1),
            ids[whole:].masked_fill(~hide[whole:], SKIP).flatten(),
            ignore_index=SKIP,
        )
        heard = tokens[:whole] + NOISE * noise[:whole]
        for name, head in self.heads.items():
            answers, right = head(heard).flatten(0, 1), wanted[name][:whole].flatten()
            # The mean of no question at all would be NaN (a batch may hold no background).
            error = F.cross_entropy(answers, right, ignore_index=SKIP, reduction="sum")
            total = total + error / (right != SKIP).sum().clamp_min(1)
        return total


def fit_text(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[WorldText, dict[str, Any]]:
    """Long captions mostly, medium and short ones too: the caption levers use all of them."""
    drawn = scenes("assets", np.arange(FIRST, FIRST + min(SCENES, effort.steps * effort.batch)))
    lessons = {style: lesson(drawn, style) for style in STYLES}
    torch.manual_seed(effort.seed)
    homework = Homework(WorldText(WORDS))
    shares = torch.tensor([SHARES[style] for style in STYLES])

    def loss(_: int, generator: torch.Generator) -> Tensor:
        style = STYLES[int(torch.multinomial(shares, 1, generator=generator))]
        rows = torch.randint(len(drawn), (effort.batch,), generator=generator)
        ids = lessons[style].ids[rows]
        length = int((ids != PAD).sum(1).max())
        hide = torch.rand(effort.batch, length, generator=generator) < 0.2
        hide[:, 1] = True  # at least one hidden word in the batch
        wanted = {name: values[rows, :length] for name, values in lessons[style].wanted.items()}
        noise = torch.randn(effort.batch, length, homework.text.width, generator=generator)
        return homework(ids[:, :length], wanted, hide, noise)  # type: ignore[no-any-return]

    seconds = fit("text", homework, loss, effort, progress)
    return homework.text, {
        **asdict(effort),
        "scenes": SCENES,
        "styles": SHARES,
        "hidden": 0.2,
        "noise": NOISE,
        "seconds": round(seconds, 1),
    }


@torch.no_grad()
def measure_text(text: WorldText, count: int = 1000) -> dict[str, Any]:
    """Accuracy of a ridge probe that reads one token at a time, by style: fitted on one half, read
    on the other."""
    drawn = scenes("validation", np.arange(max(count, 2)))
    half = len(drawn) // 2
    quality: dict[str, Any] = {"probe": "ridge on single tokens, held-out captions"}
    for style in STYLES:
        asked = lesson(drawn, style)
        # (n, L, E)
        tokens = torch.cat([text(ids, ids != PAD) for ids in torch.split(asked.ids, 256)])
        if style == "long":
            quality["explained"] = round(explained(tokens, asked), 4)
        tokens = F.pad(tokens, (0, 1), value=1.0)
        right = {}
        for name, wanted in asked.wanted.items():
            seen = (wanted != SKIP) & (wanted != UNSAID)
            fit_on, read_on = seen.clone(), seen.clone()
            fit_on[half:], read_on[:half] = False, False
            if not bool(read_on.any()):
                continue  # this style never says it
            a = tokens[fit_on].double()
            one_hot = F.one_hot(wanted[fit_on], {**OBJECT, **GROUND}[name] + 1).double()
            probe = torch.linalg.solve(
                a.T @ a + torch.eye(a.shape[1], dtype=a.dtype), a.T @ one_hot
            )
            found_class = (tokens[read_on].double() @ probe).argmax(-1)
            right[name] = round((found_class == wanted[read_on]).double().mean().item(), 4)
        quality[style] = right
    return quality


def explained(tokens: Tensor, asked: Lesson) -> float:
    """Share of the variance of objects' tokens (n, L, E) that their object's attributes explain;
    the rest is wording."""
    of_objects = asked.wanted["shape"] > UNSAID
    answers = [
        F.one_hot(asked.wanted[name][of_objects], count + 1) for name, count in OBJECT.items()
    ]
    a, b = F.pad(torch.cat(answers, 1), (0, 1), value=1).double(), tokens[of_objects].double()
    fitted = a @ torch.linalg.solve(a.T @ a + 1e-6 * torch.eye(a.shape[1], dtype=a.dtype), a.T @ b)
    return float(1 - (b - fitted).square().sum() / (b - b.mean(0)).square().sum())
