"""What both judges of the embedded world say of pictures whose worth is known, as the table of
docs/judges.md.

    python bench/judges.py [--pictures 512]     two minutes on one core

Attacks move every pixel by at most 8/255, in the direction that one judge's gradient gives (ten
steps, projected back); the other judge then says how much of it was only that judge's taste.

B pictures, P = 9 places
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.data.source import WorldSource
from fulcrum.data.world.scene import render
from fulcrum.measure.metrics.means import ATTRIBUTES, count_rows, pooled, score
from fulcrum.measure.reference import noise_pictures
from fulcrum.networks.codec import load_codec
from fulcrum.networks.judges import load_judge, load_second_judge
from fulcrum.networks.network_hash import to_bytes, to_unit
from tools.assets.crowds import crowds

REACH, STEPS = 8 / 127.5, 10  # 8/255 of the whole range, in the networks' [-1, 1]
SHOWN = ("attribute_f1", "attribute_accuracy", "attribute_precision")

Truth = Mapping[str, NDArray[np.integer[Any]]]


def shares(judge: Any, images: Tensor, truth: Truth) -> dict[str, float]:
    return pooled(count_rows(score(judge.judge(images), truth)).numpy().astype(np.int64))


def attacked(
    judge: Callable[[Tensor], Mapping[str, Tensor]], images: Tensor, truth: Truth, towards: bool
) -> Tensor:
    """Pictures moved towards what was asked for, or away from it, as this judge sees it.  (B, 3,
    32, 32) uint8"""
    wanted = {
        name: torch.from_numpy(np.asarray(values, dtype=np.int64)).flatten()
        for name, values in truth.items()
    }
    before = to_unit(images)
    pixels = before.clone()
    for _ in range(STEPS):
        pixels.requires_grad_(True)
        logits = judge(pixels)
        loss = sum(
            (
                F.cross_entropy(logits[name].flatten(0, 1), wanted[name], ignore_index=-1)
                for name in ("present", *ATTRIBUTES)
            ),
            start=torch.zeros(()),
        )
        (slope,) = torch.autograd.grad(loss, pixels)
        moved = pixels.detach() + (-1 if towards else 1) * REACH / 4 * slope.sign()
        pixels = (before + (moved - before).clamp(-REACH, REACH)).clamp(-1, 1)
    return to_bytes(pixels)


def nine_objects() -> Tensor:
    """One picture with an object at each of the nine places.  (1, 3, 32, 32)"""
    crowd = crowds(64)
    return torch.from_numpy(render(crowd.take(np.flatnonzero(crowd.count == 9)[:1]), 32, "real"))


def one_tile(images: Tensor, truth: Truth) -> Tensor:
    """The middle of a real picture with a small object there, repeated: it stands at each place.
    (1, 3, 32, 32)"""
    row = int(np.flatnonzero(np.asarray(truth["size"])[:, 4] == 0)[0])
    tile = images[row, :, 12:20, 12:20]  # (3, 8, 8)
    return tile.repeat(1, 4, 4).roll((4, 4), dims=(1, 2))[None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=int, default=512)
    count = parser.parse_args().pictures
    torch.set_num_threads(1)
    index = np.arange(count)
    source = WorldSource(split="reference", domain="real", size=32, count=count)
    images, truth = torch.from_numpy(source.read(index).images), source.scenes(index).grid()
    wrong, codec = images.roll(1, dims=0), load_codec()
    first, second = load_judge(), load_second_judge()
    grey = torch.full_like(images, 128)
    with torch.no_grad():
        decoded = to_bytes(codec.decode(codec.encode(to_unit(images))))
    rows: dict[str, Tensor] = {
        "real pictures": images,
        "reconstructed by the codec": decoded,
        "uniform noise": noise_pictures(index, 32),
        "grey": grey,
        "another scene's picture": wrong,
        "one picture of nine objects for every caption": nine_objects().expand_as(images),
        "one object as a tile, nine times": one_tile(images, truth).expand_as(images),
    }
    for name, judge in (("first", first), ("second", second)):
        rows[f"real, pushed away from the truth against the {name} judge"] = attacked(
            judge, images, truth, towards=False
        )
        rows[f"another scene's, pushed to please the {name} judge"] = attacked(
            judge, wrong, truth, towards=True
        )
        rows[f"grey, pushed to please the {name} judge"] = attacked(
            judge, grey, truth, towards=True
        )
    print(
        "| pictures | "
        + " | ".join(
            f"{what}, {whose}" for what in ("F", "recall", "precision") for whose in ("1st", "2nd")
        )
        + " |"
    )
    print("|---|" + "---|" * 6)
    for name, pictures in rows.items():
        values = [shares(judge, pictures, truth) for judge in (first, second)]
        print(
            f"| {name} | "
            + " | ".join(f"{value[share]:.3f}" for share in SHOWN for value in values)
            + " |"
        )


if __name__ == "__main__":
    main()
