"""Scores of a store's pairs by a network that knows pictures and words: what a caption filter on
own pictures reads."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fulcrum.data.stores.picture_store import PictureStore, caption_names, local_folder
from fulcrum.files.prefetch import prefetched
from fulcrum.measure.features.extractor import Extractor, load_extractor
from fulcrum.networks.captioning.captioners import WORLD, Picture, Score, open_world_scorer
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.progress import Tally

BATCH = 32  # pictures at a time
ROWS = 64  # pictures at a time of `score_rows`


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


def open_scorer(name: str) -> Score | None:
    """Open what tells how well pictures and captions fit: `world`, or what --features takes, such
    as clip=FOLDER; an empty name asks for none."""
    if name in ("", WORLD):
        return open_world_scorer(name)
    part = load_extractor(name)
    if part.score is None:
        raise BadInput(
            f"'{name}' knows no captions", "one that does: clip=FOLDER, with its tokenizer"
        )
    fits = part.score

    def other(pictures: Sequence[Picture], texts: Sequence[str]) -> list[float]:
        scores = fits(torch.from_numpy(np.stack(pictures)), list(texts))
        return [float(one) for one in scores.cpu().numpy()]

    return other


def score_rows(
    folder: Path, scorer: str, caption: str, held_out: bool, say: Callable[[str], None]
) -> NDArray[np.float64]:
    """(rows,) how well each picture of a store fits its caption of this name, nan where nobody
    asked; of several wordings the mean. The next pictures are decoded while the network looks at
    these."""
    store, score = PictureStore(local_folder(folder)), open_scorer(scorer)
    if score is None or caption not in caption_names(store.about):
        raise BadInput(
            f"not every picture of {folder} has a caption '{caption}'",
            nearest(caption, caption_names(store.about)),
        )
    if scorer == WORLD:
        from fulcrum.networks.captioning.recaption import foreign_store

        if warning := foreign_store(store):
            say(warning)
    rows = np.arange(len(store)) if held_out else store.split("train")
    # pictures of one shape stand together
    rows = rows[np.argsort(store.rows["bucket"][rows], kind="stable")]
    scores = np.full(len(store), np.nan)
    edges = np.flatnonzero(np.diff(store.rows["bucket"][rows])) + 1
    batches = [
        part
        for run in np.split(rows, edges)
        for part in np.split(run, range(BATCH, len(run), ROWS))
    ]
    begun, busy, tally = time.monotonic(), 0.0, Tally("scored", len(rows), say, "pairs")
    decoded = prefetched(partial(_pictures, store), batches, 1, thread_name_prefix="decode")
    with closing(decoded):
        for batch, pictures in zip(batches, decoded, strict=True):
            texts = [store.captions(int(row))[caption] for row in batch]
            places = [place for place, several in enumerate(texts) for _ in several]
            looked = time.monotonic()
            fits = score(
                [pictures[place] for place in places],
                [text for several in texts for text in several],
            )
            busy += time.monotonic() - looked
            owners = np.array(places)
            for place, row in enumerate(batch.tolist()):
                scores[row] = float(np.mean(np.asarray(fits)[owners == place]))
            tally.tell(int(np.isfinite(scores).sum()))
    say(
        f"scored {len(rows):,} pairs; the network was busy"
        f" {busy / max(time.monotonic() - begun, 1e-9):.0%} of the time"
    )
    return scores


def _pictures(store: PictureStore, rows: NDArray[np.int64]) -> list[Picture]:
    return [store.picture(int(row)) for row in rows]
