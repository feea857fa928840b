"""What the judges' numbers mean, and what runs drew: real pictures through every judge, a sheet, and the held-out style.

    python examples/emoji/look.py scale [JUDGE ...]           real pictures, blurred, mismatched, of the held-out style
    python examples/emoji/look.py sheet sheet.png RUN ...     held-out captions: the real picture, then each run's
    python examples/emoji/look.py style RUN ...               captions of the style that nothing was trained on

In the folder where emoji_64, emoji_64_style and runs lie. B pictures, S side.
"""

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from torch import Tensor

from fulcrum.data.caption import Chooser
from fulcrum.data.store.folder_source import FolderSource
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.card import Measured, Sampling
from fulcrum.spec.plain import read
from fulcrum.study.run.evaluate import SEED
from fulcrum.study.run.plan_judges import Bench, Sources
from fulcrum.train.painter import Painter
from fulcrum.train.run_folder import RunFolder
from fulcrum.train.session import trained_weights

DATA, STYLE, RUNS = Path("emoji_64"), Path("emoji_64_style"), Path("runs")
N = 192
JUDGES = ("lite0", "vgg")
SHORT = Chooser(("short",))


def source(split: str, folder: Path = DATA) -> FolderSource:
    return FolderSource(folder, split)


def bench(reference: FolderSource, judges: Sequence[str] = JUDGES) -> Bench:
    return Bench(judges, Sources(reference, source("train"), source("validation")), RUNS / "cache")


def judged(images: Tensor, reference: FolderSource, judges: Sequence[str] = JUDGES) -> dict[str, Measured]:
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


def _drawn(run: str, texts: list[str]) -> Tensor:
    folder = RunFolder(next(RUNS.glob(f"{run}*")))
    spec = read(folder.about()["run"], CATALOG.fillers)
    painter = Painter(spec, trained_weights(folder), spec.encode.codec.build(None), spec.encode.text.build(None))
    return torch.cat(list(painter.pictures(texts, SEED)))


def sheet(to: str, *runs: str, columns: int = 10, first: int = 0) -> None:
    reference, there = source("reference"), np.arange(first, first + columns)
    texts = reference.prompts(Chooser(), there)
    rows = [
        pixels(reference, there),
        *(_drawn(run, reference.prompts(Chooser(), np.arange(first + columns)))[first:] for run in runs),
    ]
    side, text = 96, 118
    page = Image.new("RGB", (columns * (side + 8) + 8, len(rows) * (side + 8) + text), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(9)
    for row, images in enumerate(rows):
        for column, one in enumerate(images):
            picture = Image.fromarray(one.permute(1, 2, 0).numpy()).resize((side, side), Image.Resampling.LANCZOS)
            page.paste(picture, (8 + column * (side + 8), 8 + row * (side + 8)))
    for column, told in enumerate(texts):
        lines = textwrap.wrap(told, 21)[:11]
        below = (8 + column * (side + 8), len(rows) * (side + 8) + 6)
        pen.multiline_text(below, "\n".join(lines), fill="#333333", font=font, spacing=1)
    page.save(to)


def _table(rows: dict[str, dict[str, Measured]]) -> None:
    names = list(next(iter(rows.values())))
    print("| | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for what, found in rows.items():
        print(
            f"| {what} | "
            + " | ".join(f"{found[name].value:.4f} [{found[name].low:.4f}, {found[name].high:.4f}]" for name in names)
            + " |"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"scale": scale, "sheet": sheet, "style": style}[sys.argv[1]](*sys.argv[2:])
