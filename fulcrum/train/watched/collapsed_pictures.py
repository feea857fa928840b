"""Sentinel: pictures for different prompts, from different noise, that are nearly the same."""

import torch
from torch import Tensor

ALIKE = 0.02  # of the range of a pixel: the root mean square difference of two pictures, over all pairs


def variety(pictures: Tensor) -> float:
    """How far pictures (B, 3, H, W) of bytes lie apart, from 0 (all the same) to 1 (black and white)."""
    flat = pictures.flatten(1).double() / 255
    pairs = torch.cdist(flat, flat) / flat.shape[1] ** 0.5
    count = len(flat)
    return float(pairs.sum()) / (count * (count - 1))


def collapsed(pictures: Tensor, prompts: list[str]) -> str:
    """What is wrong with pictures of these prompts, in a sentence; empty if they differ, or cannot tell."""
    if len(set(prompts)) < 2 or len(pictures) < 2:
        return ""
    apart = variety(pictures)
    if apart >= ALIKE:
        return ""
    return f"{len(pictures)} pictures of different prompts differ by {apart:.2%} of a pixel's range, less than {ALIKE:.0%}"
