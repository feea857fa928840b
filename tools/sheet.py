"""A sheet of what a trained run draws for held-out captions, for the docs.

python -m tools.sheet docs/pictures/pocket.png RUN                # with captions
python -m tools.sheet SHEET.png RUN --alone FOLDER --count 20   # and each picture without caption
"""

import argparse
from pathlib import Path

from PIL import Image

from fulcrum import sample
from fulcrum.data.sheets import draw_sheet
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.evaluation import prompts as held_out_prompts
from fulcrum.spec.edit import read
from fulcrum.training.run_folder import RunFolder

COLUMNS, SIDE = 6, 128


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("to", type=Path)
    parser.add_argument("run", type=Path, help="the folder of a trained run")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--alone", type=Path, help="folder for each picture without its caption")
    chosen = parser.parse_args()
    run = read(RunFolder(chosen.run).about()["run"], CATALOG.fillers)
    # the first ones, never those that look best
    prompts = held_out_prompts(run, chosen.count).texts
    pictures = [Image.fromarray(pixels) for pixels in sample(chosen.run, prompts)]
    shown = [picture.resize((SIDE, SIDE), Image.Resampling.NEAREST) for picture in pictures]
    captioned = list(zip(shown, prompts, strict=True))
    rows = {
        f"{start + 1} to {start + COLUMNS}": captioned[start : start + COLUMNS]
        for start in range(0, chosen.count, COLUMNS)
    }
    print(draw_sheet(chosen.to, rows, COLUMNS, SIDE))
    if chosen.alone:
        chosen.alone.mkdir(parents=True, exist_ok=True)
        for number, picture in enumerate(pictures, 1):
            picture.resize((4 * SIDE, 4 * SIDE), Image.Resampling.BICUBIC).save(
                chosen.alone / f"{number:02d}.png"
            )
        (chosen.alone.parent / "captions.txt").write_text(
            "\n".join(f"{n:02d} {text}" for n, text in enumerate(prompts, 1)) + "\n"
        )


if __name__ == "__main__":
    main()
