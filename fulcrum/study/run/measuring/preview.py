"""Previews: a few fixed prompts and noises drawn while a run trains, and the held-out loss beside them."""

import numpy as np
import torch

from fulcrum.spec.errors import RunFailed
from fulcrum.study.run.curve_lines import CURVE, append_to_curve, read_lines, write_curve
from fulcrum.study.run.measuring.run_evaluation import SEED, Held, prompts
from fulcrum.train.build import Built
from fulcrum.train.drawing.painter import Painter
from fulcrum.train.drawing.picture_files import save_grid
from fulcrum.train.drawing.sampling_weights import drawn_weights
from fulcrum.train.loop import Look, Observer
from fulcrum.train.observers import Every
from fulcrum.train.run_folder import RunFolder
from fulcrum.train.state import State

LOOKS = 5  # per budget
SHOWN = 8  # pictures


class Preview:
    """Writes previews/<images>.png and a line of curve.jsonl."""

    def __init__(self, built: Built, folder: RunFolder, state: State) -> None:
        run = built.run
        self.folder, self.wanted = folder.path, prompts(run, SHOWN).texts
        self.codec, self.text = built.feed.codec(), built.feed.text()
        self.held = Held(run, self.codec, self.text, built.feed.root, built.system.bare())
        kept = [line for line in read_lines(self.folder / CURVE, None) if line["images"] <= state.images]
        self.last = write_curve(self.folder, kept)  # a resumed run writes its later points again

    def __call__(self, look: Look) -> None:
        weights = drawn_weights(look.built.step, look.built.average)
        loss = self.held.loss(weights)
        self.last = append_to_curve(
            self.folder,
            {
                "images": look.state.images,
                "seconds": round(look.state.seconds, 3),
                "validation_loss": loss.loss,
                "bins": [part.loss for part in loss.bins],
            },
            self.last,
        )
        painter = Painter(look.built.run, weights, self.codec, self.text, look.built.system.bare())
        pictures = torch.cat(list(painter.pictures(self.wanted, SEED, np.arange(SHOWN))))
        shown = self.folder / "previews"
        try:
            if shown.is_symlink():
                raise RunFailed(f"cannot write into {shown}: it is a link, expected a folder")
            save_grid(pictures, shown / f"{look.state.images:012d}.png", columns=4)
        except RunFailed as error:  # a picture to look at: the run goes on without it
            look.built.feed.tell(f"{error.message}; this preview is left out")


def _hand_over(look: Look) -> None:
    drawn_weights(look.built.step, look.built.average)


def previews(built: Built, folder: RunFolder, state: State) -> list[Observer]:
    stretch = max(built.run.budget.images // LOOKS, built.run.budget.batch)
    if not built.ranks.first:  # the first process draws; the others hand it their weights
        return [Every(stretch, _hand_over, state.images, at_end=True)]
    return [Every(stretch, Preview(built, folder, state), state.images, at_end=True)]
