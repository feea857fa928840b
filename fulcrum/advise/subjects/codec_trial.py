"""An autoencoder tried on the user's own pictures: how well they come back, and how far the latents deviate.

B pictures, C channels, h w cells of the latents, S pixels on a side
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.readers.pictures import BadSample, decode, fit
from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.picture_store import ABOUT, PictureStore
from fulcrum.networks.fillers import FolderCodec
from fulcrum.spec.errors import BadInput

PICTURES, SIDE = 32, 256


class CodecTrial(NamedTuple):
    codec: str
    psnr: list[float]  # dB of each picture, 8 bits
    names: list[str]
    deviation: float  # of the latents, over all channels
    channels: list[float]  # the same of each channel


def try_codec(data: str, codec: str, pictures: int = PICTURES, side: int = SIDE) -> CodecTrial:
    """Encode and decode some pictures, cut and resized to squares; pictures that cannot be opened are passed over."""
    import torch

    from fulcrum.networks.network_hash import to_unit

    built = FolderCodec.model_validate({"path": codec}).build(None)
    given = list(islice(_pictures(data, side), pictures))
    if not given:
        raise BadInput(
            f"{data} holds no picture of {side} pixels or more", "an autoencoder is tried on pictures that are large enough"
        )
    names = [name for name, _ in given]
    whole = torch.from_numpy(np.stack([picture for _, picture in given]))  # (B, 3, S, S)
    latents = built.encode(to_unit(whole))  # (B, C, h, w)
    back = built.decode(latents).clamp(-1, 1).add(1).mul(127.5)
    errors = (back - whole.float()).square().mean(dim=(1, 2, 3)).clamp(min=1e-6)
    psnr = (10 * torch.log10(255**2 / errors)).tolist()
    channels = latents.float().std(dim=(0, 2, 3)).tolist()
    return CodecTrial(codec, psnr, names, float(latents.float().std()), channels)


def _pictures(data: str, side: int) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    folder = Path(data)
    if (folder / ABOUT).is_file():
        store = PictureStore(folder, verify=False)
        encoded = ((store.name(row), store.data(row)) for row in range(len(store)))
    else:
        encoded = ((sample.name, sample.data) for sample in open_given(data) if not sample.fault and not sample.left)
    for name, data_bytes in encoded:
        try:
            image = decode(data_bytes).image
        except (BadSample, OSError):
            continue
        if min(image.size) >= side:  # an enlarged picture is easy
            yield name, np.asarray(fit(image, (side, side)).image, np.uint8).transpose(2, 0, 1).copy()
