"""Previews: a few fixed prompts and noises drawn while a run trains, and the held-out loss beside them."""

import time

import numpy as np
import torch

from fulcrum.spec.errors import RunFailed
from fulcrum.study.run.curve_lines import CURVE, append_to_curve, read_lines, write_curve
from fulcrum.study.run.measuring.run_evaluation import SEED, VALIDATION, Held, prompts
from fulcrum.train.build import Built
from fulcrum.train.drawing.painter import Painter
from fulcrum.train.drawing.picture_files import save_grid
from fulcrum.train.drawing.sampling_weights import drawn_weights
from fulcrum.train.loop import Look, Observer
from fulcrum.train.observers import Every
from fulcrum.train.run_folder import RunFolder
from fulcrum.train.state import State

LOOKS = 5  # per budget
SHOWN = 8  # pictures, at most
SHARE = 0.05  # of the time that training took since the last look, which a look may take in a run of over a minute


class Preview:
    """Writes previews/<images>.png and a line of curve.jsonl. Where looks would take too long, fewer pictures are drawn:
    they are to be looked at, and nothing is computed from them."""

    def __init__(self, built: Built, folder: RunFolder, state: State) -> None:
        run = built.run
        self.folder, self.wanted = folder.path, prompts(run, SHOWN).texts
        self.codec, self.text = built.feed.codec(), built.feed.text()
        self.held = Held(run, self.codec, self.text, built.feed.root, built.system.bare())
        kept = [line for line in read_lines(self.folder / CURVE, None) if line["images"] <= state.images]
        self.last = write_curve(self.folder, kept)  # a resumed run writes its later points again
        self.trained = state.seconds  # at the last look
        self.picture_seconds: float | None = None  # of one, as it was measured last
        self.said = False

    def __call__(self, look: Look) -> None:
        begun = time.perf_counter()
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
        drawing = time.perf_counter()
        count = self.affordable(look, drawing - begun)
        if not count:
            return
        painter = Painter(look.built.run, weights, self.codec, self.text, look.built.system.bare())
        pictures = torch.cat(list(painter.pictures(self.wanted[:count], SEED, np.arange(count))))
        self.picture_seconds = (time.perf_counter() - drawing) / count
        shown = self.folder / "previews"
        try:
            if shown.is_symlink():
                raise RunFailed(f"cannot write into {shown}: it is a link, expected a folder")
            save_grid(pictures, shown / f"{look.state.images:012d}.png", columns=4)
        except RunFailed as error:  # a picture to look at: the run goes on without it
            look.built.feed.tell(f"{error.message}; this preview is left out")

    def affordable(self, look: Look, spent: float) -> int:
        """Pictures that keep this look within its share, `spent` seconds of which are gone; at the end one at least."""
        run, state = look.built.run, look.state
        trained, self.trained = state.seconds - self.trained, state.seconds
        if state.seconds * run.budget.images <= 60 * state.images:  # the whole run takes less than a minute
            return SHOWN
        passes = run.sample.steps * (1 if getattr(run.sample.guide, "scale", 1.0) == 1.0 else 2)
        one = self.picture_seconds or spent / VALIDATION * passes  # before the first: as long as its passes
        count = min(SHOWN, max(int((SHARE * trained - spent) / max(one, 1e-9)), int(state.images >= run.budget.images)))
        if count < SHOWN and not self.said:
            self.said = True
            look.built.feed.tell(
                f"previews are kept within {SHARE:.0%} of training's time: {count} of {SHOWN} pictures are drawn"
            )
        return count


def _hand_over(look: Look) -> None:
    drawn_weights(look.built.step, look.built.average)


def previews(built: Built, folder: RunFolder, state: State) -> list[Observer]:
    stretch = max(built.run.budget.images // LOOKS, built.run.budget.batch)
    if not built.ranks.first:  # the first process draws; the others hand it their weights
        return [Every(stretch, _hand_over, state.images, at_end=True)]
    return [Every(stretch, Preview(built, folder, state), state.images, at_end=True)]
