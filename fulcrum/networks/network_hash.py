"""Hash a frozen network, feed it pictures, and run it in a thread."""

import hashlib
import json
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.networks.protocols import FrozenNetwork

# --------------------------------------------------------------------------------------------------
# From stored pictures to what a frozen network reads: float32 in [-1, 1], resized with
# antialiasing.
#
# B batch, S side in pixels


def to_unit(images: Tensor, span: tuple[float, float] | None = None) -> Tensor:
    """uint8, or floats whose range is declared as `span`, to float32 in [-1, 1]; shape
    unchanged."""
    if images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(
            f"expected images of shape (B, 3, S, S), found {tuple(images.shape)}; stack them to one"
            " batch"
        )
    if images.dtype == torch.uint8:
        return images.float() / 127.5 - 1.0
    if not images.is_floating_point():
        raise TypeError(
            f"expected uint8 or floating images, found {images.dtype}; convert them to uint8"
        )
    if span is None:
        raise ValueError(
            "floating images need their range: pass span=(-1, 1) or span=(0, 1), or pass uint8"
        )
    low, high = span
    return (images.float() - low) * (2.0 / (high - low)) - 1.0


def to_bytes(pixels: Tensor) -> Tensor:
    """float in [-1, 1] to uint8, rounded and clipped: the inverse of `to_unit` for stored
    pictures."""
    return ((pixels.float() + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8)


def to_side(pixels: Tensor, side: int) -> Tensor:
    """Antialiased bilinear resize to (B, 3, side, side); the very same tensor when it has that size
    already."""
    return to_size(pixels, side, side)


def to_size(pixels: Tensor, height: int, width: int) -> Tensor:
    """The same to (B, 3, height, width)."""
    if pixels.shape[-2:] == (height, width):
        return pixels
    return F.interpolate(
        pixels, size=(height, width), mode="bilinear", antialias=True, align_corners=False
    )


# --------------------------------------------------------------------------------------------------
# The hash of a frozen network's weights, made once for a network: a large text encoder takes
# seconds each time.


# what was looked at, and its hash
_hashed: "WeakKeyDictionary[nn.Module, tuple[Any, str]]" = WeakKeyDictionary()


def network_hash(network: FrozenNetwork) -> str:
    """Hash class, revision, configuration and every weight: two networks with the same hash compute
    the same.

    The hash is made again when torch counts a write to a weight, or a weight lies elsewhere."""
    about = [type(network).__qualname__, getattr(network, "config", None)]
    about += [network.revision] if hasattr(network, "revision") else []
    head, weights = json.dumps(about, sort_keys=True), network.state_dict()
    if not isinstance(network, nn.Module):
        return _content(head, weights)
    seen = (head, [(name, _place(value)) for name, value in weights.items()])
    known = _hashed.get(network)
    if known is None or known[0] != seen:
        known = _hashed[network] = (seen, _content(head, weights))
    return known[1]


def _content(head: str, weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(head.encode())
    for name, value in weights.items():
        value = value.detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _place(value: Tensor) -> Any:
    """Where a weight lies and how often it was written to. Inference tensors count no writes: the
    hash of such a one is made anew each time."""
    if value.is_inference():
        return object()
    place = (str(value.device), value.data_ptr(), value._version)
    return *place, str(value.dtype), tuple(value.shape)


# --------------------------------------------------------------------------------------------------
# Threads that compute where their process does: CUDA gives every new thread the first GPU,
# whichever that is.


def on_this_gpu() -> dict[str, Any]:
    """What a pool of threads is begun with, so that they take the GPU of who begins it; nothing
    where none is used."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    return {"initializer": torch.cuda.set_device, "initargs": (torch.cuda.current_device(),)}
