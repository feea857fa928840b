"""The gate between pictures and metrics: refuses what is not clearly an image, and feature rows that are not finite.

B images, S side, d feature width
"""

from collections.abc import Callable

import torch
from torch import Tensor

FeatureFunction = Callable[[Tensor], Tensor]  # uint8 (B, 3, S, S) -> (B, d)
Range = tuple[float, float]

BATCH = 32  # always this many at once, padded: what a picture's features are must not depend on its neighbours
_SLACK = 1e-3  # of the range: rounding of a clamp in low precision, not an overshoot


class BadImages(ValueError):
    """Pictures that no metric may look at."""


def to_uint8(images: Tensor, value_range: Range | None = None) -> Tensor:
    """Images as uint8 (B, 3, S, S), whatever declared form they came in.

    One form for every network: a float picture passed as if it were uint8, or the reverse, is how the published study
    measured colour-negated pictures (fault A1). A float is rounded as if written to a file.
    """
    if images.ndim != 4 or images.shape[1] != 3:
        raise BadImages(f"expected images of shape (B, 3, height, width), found {tuple(images.shape)}")
    if images.shape[0] == 0 or images.shape[2] == 0 or images.shape[3] == 0:
        raise BadImages(f"expected at least one image with pixels, found shape {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        if value_range is not None:
            raise BadImages(f"uint8 images have the range 0 to 255; remove the declared range {value_range}")
        return images
    if not images.is_floating_point():
        raise BadImages(f"expected uint8 or floating point images, found {images.dtype}; convert them first")
    if value_range is None:
        raise BadImages(
            f"{images.dtype} images need a declared range: pass value_range=(0.0, 1.0) or (-1.0, 1.0), "
            "whichever they have; it is not guessed"
        )
    low, high = value_range
    if not low < high:
        raise BadImages(f"expected a range (low, high) with low < high, found {value_range}")
    if not bool(torch.isfinite(images).all()):
        rows = (~torch.isfinite(images).flatten(1).all(dim=1)).nonzero().flatten().tolist()
        raise BadImages(f"NaN or infinite pixels in rows {rows[:8]} of the batch ({len(rows)} rows in all)")
    smallest, largest, slack = float(images.min()), float(images.max()), _SLACK * (high - low)
    if smallest < low - slack or largest > high + slack:
        raise BadImages(
            f"images were declared to lie in [{low}, {high}] and lie in [{smallest:.4g}, {largest:.4g}]; "
            "clamp them after decoding, or declare the range that they have"
        )
    return ((images.double() - low) * (255.0 / (high - low))).round().clamp(0, 255).to(torch.uint8)


@torch.no_grad()
def feature_rows(images: Tensor, features: FeatureFunction) -> Tensor:
    """Features of any number of uint8 pictures as fp32 on the CPU, checked, the same for any split.  (B, d)"""
    parts = []
    for start in range(0, len(images), BATCH):
        part = images[start : start + BATCH]
        padded = torch.cat([part, part[-1:].expand(BATCH - len(part), *part.shape[1:])])
        given = features(padded)
        if not isinstance(given, Tensor) or given.is_complex():
            raise ValueError(
                "expected features as a tensor of real numbers, found "
                + (str(given.dtype) if isinstance(given, Tensor) else type(given).__name__)
            )
        rows_of_batch = given.detach().to("cpu", torch.float32)  # (BATCH, d)
        parts.append(rows_of_batch[: len(part)] if len(rows_of_batch) == BATCH else rows_of_batch)
    rows = torch.cat(parts)
    if rows.ndim != 2 or rows.shape[0] != images.shape[0]:
        raise ValueError(f"expected features of shape ({images.shape[0]}, d), found {tuple(rows.shape)}")
    if not bool(torch.isfinite(rows).all()):
        bad = (~torch.isfinite(rows).all(dim=1)).nonzero().flatten().tolist()
        raise ValueError(f"the feature network gave NaN or infinity for {len(bad)} rows of the batch: {bad[:8]}")
    return rows
