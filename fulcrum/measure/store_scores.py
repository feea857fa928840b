"""Scores of a store's pairs by a network that knows pictures and words: what a caption filter on
own pictures reads."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from fulcrum.data.stores.picture_store import PictureStore, caption_names
from fulcrum.measure.features.extractor import Extractor
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.progress import Tally

BATCH = 32  # pictures at a time


def score_store(
    folder: Path, part: Extractor, caption: str, say: Callable[[str], None]
) -> dict[int, float]:
    """Row -> score of every training picture with its caption of this name; of several wordings,
    their mean."""
    if part.score is None:
        raise BadInput(
            f"'{part.name}' knows no captions",
            "one that does: --features clip=FOLDER, with its tokenizer",
        )
    store, scores = PictureStore(folder), dict[int, float]()
    if caption not in caption_names(store.about):
        raise BadInput(
            f"not every picture of {folder} has a caption '{caption}'",
            nearest(caption, caption_names(store.about)),
        )
    rows = store.split("train")
    tally = Tally("scored", len(rows), say, "pairs")
    for bucket in np.unique(store.rows["bucket"][rows]):  # pictures of one shape at a time
        mine = rows[store.rows["bucket"][rows] == bucket]
        for first in range(0, len(mine), BATCH):
            batch = mine[first : first + BATCH].tolist()
            pairs = [(row, text) for row in batch for text in store.captions(row)[caption]]
            pictures = {row: torch.tensor(store.picture(row)) for row in batch}
            fits = (
                part.score(
                    torch.stack([pictures[row] for row, _ in pairs]), [text for _, text in pairs]
                )
                .cpu()
                .numpy()
            )
            owners = np.array([row for row, _ in pairs])
            scores |= {row: float(fits[owners == row].mean()) for row in batch}
            tally.tell(len(scores))
    return scores
