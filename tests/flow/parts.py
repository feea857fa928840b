"""Parts of a run's objective, built alone, and numbers to try them on."""

import math
from types import SimpleNamespace

import torch

TIMES = torch.tensor([0.0, 0.01, 0.05, 0.3, 0.5, 0.9, 1.0])


def built(filler, noise_scale=1.0, deviation=1.0):
    """A filler's part in a run whose codec gives data of this deviation."""
    codec = SimpleNamespace(deviation=lambda source: deviation)
    run = {
        "flow": SimpleNamespace(noise_scale=noise_scale),
        "encode": SimpleNamespace(codec=codec),
        "data": None,
    }
    run["data"] = SimpleNamespace(source=None)
    return filler.build(SimpleNamespace(run=SimpleNamespace(**run)))


def pair(scale=1.0):
    generator = torch.Generator().manual_seed(0)
    x0, eps = (torch.randn(len(TIMES), 2, 4, 4, generator=generator) for _ in range(2))
    return x0, scale * eps


def normal_numbers(count=20_001):
    """Evenly spaced uniform numbers and the standard normal ones with the same ranks."""
    u = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return u.float(), math.sqrt(2) * torch.erfinv(2 * u - 1)
