"""The one training loop of the frozen parts: seeded to the bit, warm-up, cosine to zero.

Convolution kernels take orthogonalised momentum (Muon on the kernel as a matrix), everything else
AdamW.  On the codec, 300 steps of 32: 23.7 dB with AdamW at 2e-3, 25.9 dB with the kernels
orthogonalised at 2e-3, 28.2 dB at 5e-3; 14 % more time a step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fulcrum.training.optim.muon import orthogonalise

MOMENTUM = 0.95
SMALLEST = 16

Progress = Callable[[str], None]
Loss = Callable[[int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Effort:
    """How long and how hard a part is trained; stands on its card."""

    steps: int
    batch: int
    lr: float  # of AdamW
    seed: int
    kernels: float = 5e-3  # learning rate of the convolution kernels
    weight_decay: float = 0.01
    warmup: float = 0.05  # share of the steps
    clip: float = 1.0


def silent(_: str) -> None:
    """The progress of a caller who does not look."""


def fit(
    name: str, network: nn.Module, loss: Loss, effort: Effort, progress: Progress = silent
) -> float:
    """Train in place; `loss(step, generator)` draws its own batch from the generator.  Returns the
    seconds taken."""
    generator = torch.Generator().manual_seed(effort.seed)
    kernels = {name: p for name, p in network.named_parameters() if _is_kernel(p)}
    others = [p for name, p in network.named_parameters() if name not in kernels]
    optimizer = torch.optim.AdamW(
        others, lr=effort.lr, betas=(0.9, 0.98), weight_decay=effort.weight_decay
    )
    momentum = {name: torch.zeros_like(p) for name, p in kernels.items()}
    network.train()
    begin, running = time.perf_counter(), 0.0
    for step in range(effort.steps):
        done = (step + 1) / effort.steps
        rise = min(1.0, done / effort.warmup)
        lr = effort.lr * rise * 0.5 * (1 + math.cos(math.pi * step / effort.steps))
        for group in optimizer.param_groups:
            group["lr"] = lr
        value = loss(step, generator)
        network.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), effort.clip)
        optimizer.step()
        _turn(kernels, momentum, lr * effort.kernels / effort.lr)
        running = 0.95 * running + 0.05 * value.item()
        if not math.isfinite(running):
            raise RuntimeError(
                f"training {name} gave a loss that is not finite at step {step}; lower its lr"
            )
        if (step + 1) % max(1, effort.steps // 20) == 0:
            seconds = time.perf_counter() - begin
            progress(
                f"{name}: step {step + 1}/{effort.steps}, loss"
                f" {running / (1 - 0.95 ** (step + 1)):.4f}, {seconds:.0f} s,"
                f" {seconds / done - seconds:.0f} s left"
            )
    network.eval().requires_grad_(False)
    return time.perf_counter() - begin


def _is_kernel(parameter: nn.Parameter) -> bool:
    """A convolution's weight that is a proper matrix; the few rows of a first or last layer are
    left to AdamW."""
    return parameter.ndim == 4 and min(parameter.shape[0], parameter[0].numel()) >= SMALLEST


@torch.no_grad()
def _turn(kernels: dict[str, nn.Parameter], momentum: dict[str, Tensor], lr: float) -> None:
    """Nesterov momentum, orthogonalised as (out, in * k * k), sized like an AdamW update
    (arXiv:2502.16982)."""
    ahead = {}
    for name, kernel in kernels.items():
        if kernel.grad is None:
            raise RuntimeError(
                f"the kernel {name} got no gradient; every part of a network must be trained"
            )
        momentum[name].mul_(MOMENTUM).add_(kernel.grad)
        ahead[name] = (kernel.grad + MOMENTUM * momentum[name]).flatten(1)
    for name, update in orthogonalise(ahead).items():
        size = 0.2 * math.sqrt(max(update.shape))
        kernels[name].sub_(update.reshape(kernels[name].shape), alpha=lr * size)
