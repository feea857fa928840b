"""From stored pictures to what a frozen network reads: float32 in [-1, 1], resized with antialiasing.

B batch, S side in pixels
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def to_unit(images: Tensor, span: tuple[float, float] | None = None) -> Tensor:
    """uint8, or floats whose range is declared as `span`, to float32 in [-1, 1]; shape unchanged."""
    if images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"expected images of shape (B, 3, S, S), found {tuple(images.shape)}; stack them to one batch")
    if images.dtype == torch.uint8:
        return images.float() / 127.5 - 1.0
    if not images.is_floating_point():
        raise TypeError(f"expected uint8 or floating images, found {images.dtype}; convert them to uint8")
    if span is None:
        raise ValueError("floating images need their range: pass span=(-1, 1) or span=(0, 1), or pass uint8")
    low, high = span
    return (images.float() - low) * (2.0 / (high - low)) - 1.0


def to_bytes(pixels: Tensor) -> Tensor:
    """float in [-1, 1] to uint8, rounded and clipped: the inverse of `to_unit` for stored pictures."""
    return ((pixels.float() + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8)


def to_side(pixels: Tensor, side: int) -> Tensor:
    """Antialiased bilinear resize to (B, 3, side, side); the very same tensor when it has that size already."""
    return to_size(pixels, side, side)


def to_size(pixels: Tensor, height: int, width: int) -> Tensor:
    """The same to (B, 3, height, width)."""
    if pixels.shape[-2:] == (height, width):
        return pixels
    return F.interpolate(pixels, size=(height, width), mode="bilinear", antialias=True, align_corners=False)
