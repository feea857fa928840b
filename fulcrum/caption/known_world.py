"""Are pictures of the embedded world? Its captioner tells them and its scorer says how well that fits: others fit badly.

Whatever it is shown, the captioner names shapes, and its captions fit better than those that the scorer cannot read:
neither says that nothing of it is there. The score itself does (docs/decisions/0067-pictures-of-another-world.md).
"""

from collections.abc import Sequence

import numpy as np
import torch

from fulcrum.caption.captioner import Picture
from fulcrum.data.stores.picture_store import PictureStore

PICTURES = 64  # of a data set that are tried
LEAST = -4.0  # median log-odds: 1.5 in the world, -2 where it was cropped or is JPEG 60, -6 and less of other pictures


def world_fit(pictures: Sequence[Picture]) -> float:
    """Median of how well the captioner's long captions fit their pictures, (3, S, S) each."""
    from fulcrum.encode.networks.pair_score import load_scorer
    from fulcrum.encode.networks.world_captioner import load_captioner

    images = torch.from_numpy(np.stack(pictures))
    return float(load_scorer().score(images, load_captioner().write(images, "long")).median())


def foreign(pictures: Sequence[Picture]) -> str:
    """Why neither captioner nor scorer of the world can be believed of these pictures; empty: they can."""
    square = [picture for picture in pictures if picture.shape[1] == picture.shape[2]]
    if not square or (fit := world_fit(square[:PICTURES])) >= LEAST:
        return ""
    return (
        f"warning: these pictures are not of the embedded world: captions of its own captioner fit them by {fit:.1f} "
        f"(median of {len(square[:PICTURES])}; in that world 1.5). What it writes of them names objects that are not "
        "there, and what its scorer says of them means nothing: use --model FOLDER of a vision-language model, and "
        "--score clip=FOLDER"
    )


def foreign_store(store: PictureStore) -> str:
    """Of pictures from all over a store."""
    rows = np.unique(np.linspace(0, len(store) - 1, min(PICTURES, len(store))).astype(int))
    return foreign([store.picture(int(row)) for row in rows])
