"""Pictures side by side: the same prompts and noises through several runs, guidances and numbers of steps."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from fulcrum.data.sheets import captioned_sheet
from fulcrum.spec.errors import BadInput
from fulcrum.train.drawing.painter import Painter
from fulcrum.train.drawing.picture_files import sheet_of, to_image

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
    return [PictureRequest(prompt, seed, number) for seed in seeds for number, prompt in enumerate(wanted)]


def drawn(variant: Variant, rows: Sequence[PictureRequest], progress: Callable[[int], None] | None = None) -> list[Tensor]:
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
    several = {field: len({getattr(one, field) for one in variants}) > 1 for field in ("key", "guidance", "steps")}
    return "".join(
        (
            f"-{variant.key[:8]}" if several["key"] else "",
            f"-guidance{variant.guidance:g}" if several["guidance"] else "",
            f"-steps{variant.steps}" if several["steps"] else "",
        )
    )


def picture_facts(
    variant: Variant, row: PictureRequest, picture: Tensor, scale: int, negative: str, solver: str, at: int | None
) -> dict[str, object]:
    """What a PNG says of itself: all that it takes to draw it again. `at`: images after which its weights were kept."""
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
    variants: Sequence[Variant], rows: Sequence[PictureRequest], pictures: Sequence[Sequence[Tensor]], scale: int
) -> Image.Image:
    """Of one variant the pictures over their prompts; of several one column each, one row for each prompt and seed. The
    first ones, where there are very many."""
    rows = rows[: max(1, MOST_SHOWN // len(variants))]
    if len(variants) == 1:
        numbered = any(row.number for row in rows)
        captions = [f"{row.prompt}\nseed {row.seed}" + (f", picture {row.number}" if numbered else "") for row in rows]
        return sheet_of(pictures[0][: len(rows)], captions, COLUMNS, scale)
    named = len({variant.key for variant in variants}) > 1
    heads = [
        f"guidance {variant.guidance:g}, {variant.steps} steps" + (f"\n{variant.key[:8]} {variant.name}" if named else "")
        for variant in variants
    ]
    cells = [
        (
            f"{row.prompt}  (seed {row.seed}, picture {row.number})",
            [(to_image(column[place], scale), head) for column, head in zip(pictures, heads, strict=True)],
        )
        for place, row in enumerate(rows)
    ]
    return captioned_sheet(cells, len(variants), 0, HEADS)
