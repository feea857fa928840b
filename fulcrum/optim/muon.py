"""Muon: momentum whose matrices are orthogonalised before they are applied.  kellerjordan.github.io/posts/muon

    m <- mu m + g          u = g + mu m  (Nesterov)          W <- W - lr 0.2 sqrt(max(rows, cols)) NewtonSchulz(u)

The factor 0.2 sqrt(max(rows, cols)) gives the update the size of AdamW's (arXiv:2502.16982), so AdamW's learning rate
fits. `torch.optim.Muon` averages (m <- mu m + (1-mu) g) where this sums; Newton-Schulz normalises, so both are equal.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.dist.mesh import copies
from fulcrum.model.bf16 import EXACT, Cast
from fulcrum.optim.optimizer_state import gradient, local
from fulcrum.optim.orthogonal import STEPS, orthogonalise
from fulcrum.optim.rule import NamedRule
from fulcrum.optim.storage import count_stalled

Whole = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Works on whole matrices by name."""
Deal = Callable[[Mapping[str, Tensor], Mapping[str, Parameter], Whole], dict[str, Tensor]]
"""(this rank's parts of the matrices, their parameters, work on whole matrices) -> this rank's parts of the result."""

MATCH_ADAMW = 0.2  # RMS of a typical AdamW update, arXiv:2502.16982 section 2.2


def undealt(parts: Mapping[str, Tensor], parameters: Mapping[str, Parameter], work: Whole) -> dict[str, Tensor]:
    """One process: every part is the whole matrix."""
    for name, part in parts.items():
        if part.shape != parameters[name].shape:
            raise ValueError(
                f"matrix {name!r} {tuple(parameters[name].shape)} is sharded, this rank holds "
                f"{tuple(part.shape)}; give Muon deal=fulcrum.dist.matrix_owners.Owners(ranks)"
            )
    return work(parts)


class Muon(NamedRule):
    """Nesterov momentum, orthogonalised; for 2-D matrices only."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        lr: float = 1e-4,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = STEPS,
        compute: Cast = EXACT,
        storage: torch.dtype = torch.float32,
        state: torch.dtype = torch.float32,
        deal: Deal = undealt,
        rounding: int | None = None,
    ) -> None:
        for name, parameter in parameters.items():
            if parameter.ndim != 2:
                raise ValueError(
                    f"Muon needs matrices, parameter {name!r} has shape {tuple(parameter.shape)}; "
                    "give it another role than 'matrix'"
                )
        super().__init__(parameters, storage, rounding, state)
        self.lr, self.mu, self.weight_decay = lr, momentum, weight_decay
        self.steps, self.compute, self.deal = steps, compute, deal
        self.momentum = {name: torch.zeros_like(p, dtype=state, requires_grad=False) for name, p in parameters.items()}
        self.slots = {"momentum": self.momentum}

    @torch.no_grad()
    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0, counts: Tensor | None = None) -> None:
        directions = self.deal(self._nesterov(counts), self.parameters, self._orthogonalise)
        lr, stalled = self.lr * scale, []
        for name, direction in directions.items():
            parameter, weight = self.parameters[name], local(self.parameters[name])
            before = [weight.clone()] if watch else []
            if self.weight_decay:
                kept = 1 - lr * self.weight_decay
                weight.mul_(kept if counts is None else torch.where(counts, kept, 1.0))
            if counts is not None:
                direction = torch.where(counts, direction, 0.0)
            weight.add_(direction, alpha=-lr * MATCH_ADAMW * math.sqrt(max(parameter.shape)))
            self.store.keep({name: parameter}, at)
            if watch and lr:
                stalled.append(count_stalled(before, [weight], [direction], [copies(parameter)]))
        none = torch.zeros(2, dtype=torch.float64, device=next((p.device for p in self.parameters.values()), None))
        self.stalled = sum(stalled, none) if watch else None

    def _nesterov(self, counts: Tensor | None) -> dict[str, Tensor]:
        """Fold the gradients into the momentum; what is left to orthogonalise, by name."""
        parts: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            g = gradient(parameter)
            if g is None:
                continue
            stored = local(self.momentum[name])
            m = stored.float()  # itself if the state is fp32
            if counts is None:
                torch.add(g, m, alpha=self.mu, out=m)
            else:
                m.copy_(torch.where(counts, torch.add(g, m, alpha=self.mu), m))
            if stored.dtype != torch.float32:
                stored.copy_(m)
            parts[name] = g.add(m, alpha=self.mu)
        return parts

    def _orthogonalise(self, matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return orthogonalise(matrices, self.compute, self.steps)
