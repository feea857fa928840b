"""How well a picture and a caption fit, by a network that knows both: the world's own scorer, or CLIP from a folder."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fulcrum.caption.captioner import WORLD, Picture
from fulcrum.data.stores.picture_store import PictureStore, caption_names, local_folder
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.progress import Tally

BATCH = 64  # pictures that are scored at a time

WORST = -99.0  # of a text that the world's scorer cannot read

Score = Callable[[Sequence[Picture], Sequence[str]], list[float]]


def open_scorer(name: str) -> Score | None:
    """How well pictures and captions fit: `world`, or what --features takes, such as clip=FOLDER; empty: nobody asks."""
    if not name:
        return None
    if name == WORLD:
        from fulcrum.encode.networks.pair_score import load_scorer

        scorer = load_scorer()

        def world(pictures: Sequence[Picture], texts: Sequence[str]) -> list[float]:
            """A text that it cannot read fits worst."""
            readable = [n for n, text in enumerate(texts) if _readable(text)]
            scores = np.full(len(texts), WORST)
            if readable:
                images = torch.from_numpy(np.stack([pictures[n] for n in readable]))
                scores[readable] = scorer.score(images, [texts[n] for n in readable]).numpy()
            return [float(one) for one in scores]

        return world
    from fulcrum.measure.features.extractor import load_extractor

    part = load_extractor(name)
    if part.score is None:
        raise BadInput(f"'{name}' knows no captions", "one that does: clip=FOLDER, with its tokenizer")
    fits = part.score

    def other(pictures: Sequence[Picture], texts: Sequence[str]) -> list[float]:
        scores = fits(torch.from_numpy(np.stack(pictures)), list(texts))
        return [float(one) for one in scores.cpu().numpy()]

    return other


def _readable(text: str) -> bool:
    from fulcrum.data.world.scene import tokenize
    from fulcrum.encode.networks.world_text import LONGEST

    return 0 < len(tokenize(text)) < LONGEST


def score_rows(folder: Path, scorer: str, caption: str, held_out: bool, say: Callable[[str], None]) -> NDArray[np.float64]:
    """(rows,) how well each picture of a store fits its caption of this name, nan where nobody asked; of several wordings
    the mean. The next pictures are decoded while the network looks at these."""
    store, score = PictureStore(local_folder(folder)), open_scorer(scorer)
    if score is None or caption not in caption_names(store.about):
        raise BadInput(
            f"not every picture of {folder} has a caption '{caption}'", nearest(caption, caption_names(store.about))
        )
    if scorer == WORLD:
        from fulcrum.caption.known_world import foreign_store

        if warning := foreign_store(store):
            say(warning)
    rows = np.arange(len(store)) if held_out else store.split("train")
    rows = rows[np.argsort(store.rows["bucket"][rows], kind="stable")]  # pictures of one shape stand together
    scores = np.full(len(store), np.nan)
    edges = np.flatnonzero(np.diff(store.rows["bucket"][rows])) + 1
    batches = [part for run in np.split(rows, edges) for part in np.split(run, range(BATCH, len(run), BATCH))]
    begun, busy, tally = time.monotonic(), 0.0, Tally("scored", len(rows), say, "pairs")
    with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
        ahead = [pool.submit(_pictures, store, batch) for batch in batches[:1]]
        for number, batch in enumerate(batches):
            pictures = ahead.pop(0).result()
            ahead += [pool.submit(_pictures, store, other) for other in batches[number + 1 : number + 2]]
            texts = [store.captions(int(row))[caption] for row in batch]
            places = [place for place, several in enumerate(texts) for _ in several]
            looked = time.monotonic()
            fits = score([pictures[place] for place in places], [text for several in texts for text in several])
            busy += time.monotonic() - looked
            owners = np.array(places)
            for place, row in enumerate(batch.tolist()):
                scores[row] = float(np.mean(np.asarray(fits)[owners == place]))
            tally.tell(int(np.isfinite(scores).sum()))
    say(f"scored {len(rows):,} pairs; the network was busy {busy / max(time.monotonic() - begun, 1e-9):.0%} of the time")
    return scores


def _pictures(store: PictureStore, rows: NDArray[np.int64]) -> list[Picture]:
    return [store.picture(int(row)) for row in rows]
