"""What the judges' numbers mean on emoji: real pictures through every judge, and runs on the
held-out style.

    python bench/emoji_judges.py scale [JUDGE ...]     real pictures, blurred, mismatched, and those
                                                       of the held-out style
    python bench/emoji_judges.py style RUN ...         captions of the style that nothing was
                                                       trained on

In the folder where emoji_64, emoji_64_style and runs lie (see examples/emoji). B pictures, S side.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from fulcrum import sample
from fulcrum.data.captions import Chooser
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.judge.card import Measured, Sampling
from fulcrum.measure.evaluation import SEED, Bench, Sources

DATA, STYLE, RUNS = Path("emoji_64"), Path("emoji_64_style"), Path("runs")
N = 192
JUDGES = ("lite0", "vgg")
SHORT = Chooser(("short",))


def source(split: str, folder: Path = DATA) -> FolderSource:
    return FolderSource(folder, split)


def bench(reference: FolderSource, judges: Sequence[str] = JUDGES) -> Bench:
    return Bench(judges, Sources(reference, source("train"), source("validation")), RUNS / "cache")


def judged(
    images: Tensor, reference: FolderSource, judges: Sequence[str] = JUDGES
) -> dict[str, Measured]:
    """uint8 (B, 3, S, S), picture i for the caption of reference picture i."""
    look = bench(reference, judges)
    for first in range(0, len(images), 32):
        part = images[first : first + 32]
        look.look(part, np.arange(first, first + len(part)))
    return look.compute(Sampling(), len(images))


def pixels(given: FolderSource, index: np.ndarray) -> Tensor:
    return torch.from_numpy(given.read(index % len(given)).images)


def scale(*judges: str) -> None:
    reference, there = source("reference"), np.arange(N)
    names = reference.prompts(SHORT, there)
    apart = source("reference", STYLE)
    where: dict[str, int] = {}
    for number, name in enumerate(apart.prompts(SHORT, np.arange(len(apart)))):
        where.setdefault(name, number)
    missing = sum(name not in where for name in names)
    real = pixels(reference, there)
    noise = 12.75 * torch.randn(real.shape, generator=torch.Generator().manual_seed(0))
    same = np.array([where.get(name, 0) for name in names])
    rows = {
        "the reference pictures themselves": real,
        "blurred by one pixel": torch.stack([_blurred(one) for one in real]),
        "noise of 5 %": (real + noise).clamp(0, 255).byte(),
        "real, other concepts": pixels(source("validation"), there),
        f"the held-out style ({missing} of {N} concepts not in it)": pixels(apart, same),
    }
    asked = judges or JUDGES
    if "lite0" in asked:
        print(bench(reference, asked).namer()[2])
    _table({what: judged(images, reference, asked) for what, images in rows.items()})


def _blurred(one: Tensor) -> Tensor:
    image = Image.fromarray(one.permute(1, 2, 0).numpy()).filter(ImageFilter.GaussianBlur(1))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def style(*runs: str) -> None:
    reference = source("reference", STYLE)
    n = min(N, len(reference))
    texts = reference.prompts(Chooser(), np.arange(n))
    _table({run: judged(_drawn(run, texts), reference) for run in runs})


def _table(rows: dict[str, dict[str, Measured]]) -> None:
    names = list(next(iter(rows.values())))
    print("| | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for what, values in rows.items():
        print(
            f"| {what} | "
            + " | ".join(
                f"{values[name].value:.4f} [{values[name].low:.4f}, {values[name].high:.4f}]"
                for name in names
            )
            + " |"
        )


def _drawn(run: str, texts: list[str]) -> Tensor:
    return torch.from_numpy(sample(run, texts, seed=SEED, out=RUNS)).permute(0, 3, 1, 2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) < 2 or sys.argv[1] not in ("scale", "style"):
        sys.exit(__doc__)
    {"scale": scale, "style": style}[sys.argv[1]](*sys.argv[2:])
