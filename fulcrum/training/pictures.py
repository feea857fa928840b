"""Pictures as files and as comparison sheets."""

import base64
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from fulcrum.data.sheets import captioned_sheet
from fulcrum.files.atomic import write_atomic, write_new
from fulcrum.files.paths import explained
from fulcrum.spec.errors import BadInput, shown
from fulcrum.training.painter import Painter

# --------------------------------------------------------------------------------------------------
# The size that a person asks a picture to have: WIDTHxHEIGHT as a text, or the numbers (height,
# width). No torch.


MOST_PIXELS = 8192  # of a drawn picture's side


def picture_size(asked: object) -> tuple[int, int]:
    """(H, W) of "48x32", which is wide, or of (32, 48), which is the same: arrays name their rows
    first."""
    if isinstance(asked, str):
        sides = re.fullmatch("([0-9]{1,5})[xX]([0-9]{1,5})", asked)
        size = (int(sides[2]), int(sides[1])) if sides else (0, 0)
    else:
        whole = (
            isinstance(asked, Sequence)
            and len(asked) == 2
            and all(type(side) is int for side in asked)
        )
        size = (asked[0], asked[1]) if whole else (0, 0)  # type: ignore[index]
    if not 0 < min(size) <= max(size) <= MOST_PIXELS:
        raise BadInput(
            f"a picture's size is a width and a height, such as 48x32, of at most {MOST_PIXELS}; "
            f"found '{shown(str(asked))}'",
            'leave it out for the run\'s own size; in Python "48x32", or (32, 48): height first',
        )
    return size


# --------------------------------------------------------------------------------------------------
# Pictures as files and as parts of a page: they say how they were drawn, and never take another's
# place.
#
# B pictures, H, W pixels.


CAPTION_LINES = 6  # under a picture of a sheet


def to_image(picture: Tensor, scale: int = 1) -> Image.Image:
    """One uint8 picture (3, H, W), enlarged without smoothing: pixels are what was drawn."""
    image = Image.fromarray(np.ascontiguousarray(picture.permute(1, 2, 0).numpy()))
    return (
        image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
        if scale > 1
        else image
    )


def data_uri(picture: Tensor) -> str:
    stream = io.BytesIO()
    to_image(picture).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def png(image: Image.Image, facts: Mapping[str, object]) -> bytes:
    """A PNG that says what it shows: each fact is a text of its own, in any script."""
    notes, stream = PngInfo(), io.BytesIO()
    for name, value in facts.items():
        # a shell may hand over bytes that are no text
        text = str(value).encode("utf-8", "backslashreplace").decode()
        notes.add_itxt(name, text.replace("\0", "\\0"))
    image.save(stream, "PNG", pnginfo=notes)
    return stream.getvalue()


def save_picture(
    picture: Tensor, folder: Path, name: str, facts: Mapping[str, object], scale: int
) -> Path:
    """Under this name, or the next free number of it. Returns where."""
    with explained("write to", folder):
        return write_new(folder / f"{name}.png", png(to_image(picture, scale), facts))


def file_words(prompt: str) -> str:
    """The letters of a prompt, as the beginning of a file's name."""
    return "-".join(re.findall("[a-z]+", prompt.lower()))[:48].strip("-") or "empty"


def sheet_of(
    pictures: Sequence[Tensor], captions: Sequence[str], columns: int, scale: int = 4
) -> Image.Image:
    """All pictures on one sheet, each over its caption."""
    images = [to_image(picture, scale) for picture in pictures]
    cells = list(zip(images, captions, strict=True))
    rows = [("", cells[first : first + columns]) for first in range(0, len(cells), columns)]
    return captioned_sheet(rows, min(columns, len(cells)), 0, CAPTION_LINES)


def save_sheet(
    pictures: Sequence[Tensor], captions: Sequence[str], path: Path, columns: int, scale: int = 4
) -> Path:
    """A sheet as a file that is replaced when it is drawn again: a run that resumes draws its
    previews anew."""
    stream = io.BytesIO()
    sheet_of(pictures, captions, columns, scale).save(stream, "PNG")
    with explained("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, stream.getvalue(), flush=False)
    return path


# --------------------------------------------------------------------------------------------------
# Pictures side by side: the same prompts and noises through several runs, guidances and numbers of
# steps.


COLUMNS, HEADS = 4, 5  # of a sheet without variants; lines under a picture of one with them
MOST_SHOWN = 400  # pictures of a sheet: nobody looks at more at once


class Variant(NamedTuple):
    """One way to draw: a column of the sheet."""

    key: str  # of the run
    name: str  # of the run, for people
    painter: Painter

    @property
    def guidance(self) -> float:
        return float(getattr(self.painter.run.sample.guide, "scale", 1.0))

    @property
    def steps(self) -> int:
        return self.painter.run.sample.steps


class PictureRequest(NamedTuple):
    """One row of the sheet: a prompt with a noise."""

    prompt: str
    seed: int
    number: int  # of the picture among those of its seed: with the seed it chooses the noise


def rows_of(prompts: Sequence[str], seeds: Sequence[int], count: int) -> list[PictureRequest]:
    """Every prompt `count` times, with each seed."""
    wanted = [prompt for prompt in prompts for _ in range(count)]
    return [
        PictureRequest(prompt, seed, number)
        for seed in seeds
        for number, prompt in enumerate(wanted)
    ]


def drawn(
    variant: Variant, rows: Sequence[PictureRequest], progress: Callable[[int], None] | None = None
) -> list[Tensor]:
    """uint8 pictures (3, H, W), one for each row; `progress` hears how many there are."""
    pictures: list[Tensor] = []
    try:
        for seed in dict.fromkeys(row.seed for row in rows):
            own = [row for row in rows if row.seed == seed]
            index = np.array([row.number for row in own])
            for batch in variant.painter.pictures([row.prompt for row in own], seed, index):
                pictures += batch.unbind()
                if progress is not None:
                    progress(len(pictures))
    except ValueError as error:  # the text encoder says what it cannot read
        raise BadInput(str(error), "write plain English words") from None
    return pictures


def variants_of(
    painters: Sequence[tuple[str, str, Painter]], guidances: Sequence[float], steps: Sequence[int]
) -> Iterator[Variant]:
    """Every run with every guidance and number of steps; none given: the run's own."""
    for key, name, painter in painters:
        for guidance in guidances or (None,):
            for number in steps or (None,):
                yield Variant(key, name, painter.sampling(guidance, number))


def file_ending(variant: Variant, variants: Sequence[Variant]) -> str:
    """What tells the files of one variant from those of the others."""
    several = {
        field: len({getattr(one, field) for one in variants}) > 1
        for field in ("key", "guidance", "steps")
    }
    return "".join(
        (
            f"-{variant.key[:8]}" if several["key"] else "",
            f"-guidance{variant.guidance:g}" if several["guidance"] else "",
            f"-steps{variant.steps}" if several["steps"] else "",
        )
    )


def picture_facts(
    variant: Variant,
    row: PictureRequest,
    picture: Tensor,
    scale: int,
    negative: str,
    solver: str,
    at: int | None,
) -> dict[str, object]:
    """What a PNG says of itself: all that it takes to draw it again. `at`: images after which its
    weights were kept."""
    return {
        "prompt": row.prompt,
        **({"negative": negative} if negative else {}),
        "seed": row.seed,
        "picture": row.number,
        "key": variant.key,
        "run": variant.name,
        **({"images": at} if at is not None else {}),
        "guidance": f"{variant.guidance:g}",
        "steps": variant.steps,
        "solver": solver,
        "size": f"{picture.shape[2]}x{picture.shape[1]}",
        "scale": scale,
        "Software": "fulcrum",
    }


def comparison_sheet(
    variants: Sequence[Variant],
    rows: Sequence[PictureRequest],
    pictures: Sequence[Sequence[Tensor]],
    scale: int,
) -> Image.Image:
    """Of one variant the pictures over their prompts; of several one column each, one row for each
    prompt and seed. The first ones, where there are very many."""
    rows = rows[: max(1, MOST_SHOWN // len(variants))]
    if len(variants) == 1:
        numbered = any(row.number for row in rows)
        captions = [
            f"{row.prompt}\nseed {row.seed}" + (f", picture {row.number}" if numbered else "")
            for row in rows
        ]
        return sheet_of(pictures[0][: len(rows)], captions, COLUMNS, scale)
    named = len({variant.key for variant in variants}) > 1
    heads = [
        f"guidance {variant.guidance:g}, {variant.steps} steps"
        + (f"\n{variant.key[:8]} {variant.name}" if named else "")
        for variant in variants
    ]
    cells = [
        (
            f"{row.prompt}  (seed {row.seed}, picture {row.number})",
            [
                (to_image(column[place], scale), head)
                for column, head in zip(pictures, heads, strict=True)
            ],
        )
        for place, row in enumerate(rows)
    ]
    return captioned_sheet(cells, len(variants), 0, HEADS)
