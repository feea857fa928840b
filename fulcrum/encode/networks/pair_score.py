"""How well a picture and a caption belong together: a small dual encoder on frozen teacher and text tokens.

B pairs, N teacher tokens, L text tokens, E token widths, P = 9 places, Q looks at a caption, D embedding
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.encode.networks.world_teacher import Teacher, load_teacher
from fulcrum.encode.networks.world_text import WorldText, load_text
from fulcrum.encode.unit_pixels import to_side, to_unit
from fulcrum.files.shipped import AssetError, asset_hash, load

SIDE = 32
READS = ("teacher", "text")  # the shipped parts it stands on


class PairScore(nn.Module):
    """Both sides meet on the unit sphere; `logit` is the log-odds that they belong together (SigLIP, arXiv:2303.15343).

    A sigmoid per pair, not a softmax over a batch: scores of short and long captions are then on one scale.
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
        self.picture = nn.Sequential(nn.Linear(9 * seen, hidden), nn.SiLU(), nn.Linear(hidden, width))
        self.attend = nn.Linear(said, looks)
        self.caption = nn.Sequential(nn.Linear(looks * said, hidden), nn.SiLU(), nn.Linear(hidden, width))
        self.scale, self.offset = nn.Parameter(torch.tensor(2.3)), nn.Parameter(torch.tensor(-5.0))

    def see(self, pooled: Tensor) -> Tensor:
        """Teacher tokens pooled by place, (B, P * E) -> (B, D), unit length."""
        return F.normalize(self.picture(pooled), dim=-1)

    def read(self, emb: Tensor, mask: Tensor) -> Tensor:
        """Text tokens (B, L, E) -> (B, D), unit length: each look takes a weighted mean of the tokens."""
        weight = self.attend(emb).masked_fill(~mask[..., None], -torch.inf).softmax(dim=1)  # (B, L, Q)
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
    """Pictures and prompts in, log-odds out: the dual encoder with the frozen parts that it reads."""

    def __init__(self, pair: PairScore, teacher: Teacher, text: WorldText) -> None:
        super().__init__()
        self.pair, self.teacher, self.text = pair, teacher, text
        self.config = {"pair": pair.config, "teacher": teacher.config, "text": text.config}

    @torch.no_grad()
    def score(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        """Images (B, 3, S, S) uint8 and B prompts -> (B,): higher fits better."""
        if len(images) != len(prompts):
            raise ValueError(f"one prompt per picture: expected {len(images)}, found {len(prompts)}")
        seen = self.pair.see(by_place(self.teacher.tokens(to_side(to_unit(images), SIDE))))  # (B, D)
        read = self.pair.read(*self.text.encode(prompts))
        return self.pair.logit((seen * read).sum(-1))


def load_score(name: str = "score", folder: Path | None = None) -> PairScore:
    """The shipped dual encoder alone, frozen, in fp32 and eval mode."""
    pair = load(name, PairScore, folder)
    stale = [part for part, known in pair.config["reads"].items() if asset_hash(part) != known]  # type: ignore[attr-defined]
    if stale:
        raise AssetError(
            f"the part {name!r} was trained on another {' and '.join(stale)} than the one that is here",
            f"in a clone, run: python -m tools.assets --only {name}",
        )
    return pair


def load_scorer(name: str = "score") -> Scorer:
    """The shipped scorer with the parts that it reads."""
    return Scorer(load_score(name), load_teacher(), load_text()).eval().requires_grad_(False)
