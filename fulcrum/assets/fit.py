"""The one training loop of the frozen parts: AdamW, warm-up, cosine to zero, seeded to the bit."""
from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Progress = Callable[[str], None]
Loss = Callable[[int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Effort:
    """How long and how hard a part is trained; stands on its card."""

    steps: int
    batch: int
    lr: float
    seed: int
    weight_decay: float = 0.01
    warmup: float = 0.05                # share of the steps
    clip: float = 1.0


def silent(_: str) -> None:
    """The progress of a caller who does not look."""


def fit(name: str, network: nn.Module, loss: Loss, effort: Effort, progress: Progress = silent) -> float:
    """Train in place; `loss(step, generator)` draws its own batch from the generator.  Returns the seconds taken."""
    generator = torch.Generator().manual_seed(effort.seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=effort.lr, betas=(0.9, 0.98),
                                  weight_decay=effort.weight_decay)
    network.train()
    begin, running = time.perf_counter(), 0.0
    for step in range(effort.steps):
        done = (step + 1) / effort.steps
        rise = min(1.0, done / effort.warmup)
        for group in optimizer.param_groups:
            group["lr"] = effort.lr * rise * 0.5 * (1 + math.cos(math.pi * step / effort.steps))
        value = loss(step, generator)
        optimizer.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), effort.clip)
        optimizer.step()
        running = 0.95 * running + 0.05 * value.item()
        if not math.isfinite(running):
            raise RuntimeError(f"training {name} gave a loss that is not finite at step {step}; lower its lr")
        if (step + 1) % max(1, effort.steps // 20) == 0:
            seconds = time.perf_counter() - begin
            progress(f"{name}: step {step + 1}/{effort.steps}, loss {running / (1 - 0.95 ** (step + 1)):.4f}, "
                     f"{seconds:.0f} s, {seconds / done - seconds:.0f} s left")
    network.eval().requires_grad_(False)
    return time.perf_counter() - begin
