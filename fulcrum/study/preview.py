"""Previews: a few fixed prompts and noises drawn while a run trains, and the held-out loss beside them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fulcrum.study.evaluate import SEED, Held, prompts
from fulcrum.study.picture import save_grid
from fulcrum.train.build import Built
from fulcrum.train.drawn import drawn_weights
from fulcrum.train.folder import RunFolder
from fulcrum.train.loop import Look, Observer
from fulcrum.train.paint import Painter
from fulcrum.train.state import State
from fulcrum.train.watch import Every

LOOKS = 5                                                    # per budget
SHOWN = 8                                                    # pictures


class Preview:
    """Writes previews/<images>.png and a line of curve.jsonl."""

    def __init__(self, built: Built, folder: RunFolder, state: State) -> None:
        run = built.run
        self.folder, self.wanted = folder.path, prompts(run, SHOWN).texts
        self.codec, self.text = built.feed.codec(), built.feed.text()
        self.held = Held(run, self.codec, self.text, built.feed.root)
        self.curve = folder.path / "curve.jsonl"
        if self.curve.exists():                              # a resumed run writes its later points again
            kept = [line for line in _lines(self.curve) if line["images"] <= state.images]
            self.curve.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def __call__(self, look: Look) -> None:
        weights = drawn_weights(look.built.step, look.built.average)
        loss = self.held.loss(weights)
        with self.curve.open("a") as stream:
            stream.write(json.dumps({"images": look.state.images, "seconds": round(look.state.seconds, 3),
                                     "validation_loss": loss.loss, "bins": [part.loss for part in loss.bins]}) + "\n")
        painter = Painter(look.built.run, weights, self.codec, self.text)
        pictures = torch.cat(list(painter.pictures(self.wanted, SEED, np.arange(SHOWN))))
        save_grid(pictures, self.folder / "previews" / f"{look.state.images:012d}.png", columns=4)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines only: a kill may have cut the last one."""
    found = []
    for line in path.read_text().splitlines():
        try:
            whole = json.loads(line)
        except ValueError:
            continue
        if isinstance(whole, dict) and isinstance(whole.get("images"), int):
            found.append(whole)
    return found


def _hand_over(look: Look) -> None:
    drawn_weights(look.built.step, look.built.average)


def previews(built: Built, folder: RunFolder, state: State) -> list[Observer]:
    stretch = max(built.run.budget.images // LOOKS, built.run.budget.batch)
    if not built.world.first:                                # the first process draws; the others hand it their weights
        return [Every(stretch, _hand_over, state.images, at_end=True)]
    return [Every(stretch, Preview(built, folder, state), state.images, at_end=True)]
