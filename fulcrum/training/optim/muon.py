"""Muon: momentum whose matrices are orthogonalised before they are applied.
kellerjordan.github.io/posts/muon"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.training.dist.collectives import copies, gradient, local
from fulcrum.training.model.transformer import EXACT, Cast
from fulcrum.training.optim.optimizers import NamedRule, count_stalled

# --------------------------------------------------------------------------------------------------
# Newton-Schulz: replace a matrix's singular values by about one, many matrices of one shape at a
# time.
#
# Legend: n matrices of one shape, r the smaller side, c the larger one. A tall matrix takes its
# factors from the right.
#
#     X <- (a I + b G + c G^2) X,  G = X X^T        five times, from X / ||X||_F


# kellerjordan.github.io/posts/muon: steepest at zero, ends in about [0.7, 1.2]
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5
EPS = 1e-7
AT_A_TIME = 3  # Gram steps before X is formed anew: five in one go are 3e-4 off, 3 + 2 1e-5
AT_ONCE = {"cpu": 2**19}  # elements in one batch: on a CPU it should stay in the cache
AT_ONCE_ELSEWHERE = 2**26


def orthogonalise(
    matrices: Mapping[str, Tensor], cast: Cast = EXACT, steps: int = STEPS
) -> dict[str, Tensor]:
    """Orthogonalise whole matrices by name, equal shapes stacked into one batched product."""
    alike: dict[torch.Size, list[str]] = {}
    for name, matrix in matrices.items():
        alike.setdefault(matrix.shape, []).append(name)
    done: dict[str, Tensor] = {}
    for shape, names in alike.items():
        at_once = AT_ONCE.get(matrices[names[0]].device.type, AT_ONCE_ELSEWHERE)
        batch = max(1, at_once // shape.numel())
        for start in range(0, len(names), batch):
            stacked = names[start : start + batch]
            results = newton_schulz(torch.stack([matrices[name] for name in stacked]), cast, steps)
            done.update(zip(stacked, results, strict=True))
    return {name: done[name] for name in matrices}


def newton_schulz(x: Tensor, cast: Cast = EXACT, steps: int = STEPS) -> Tensor:
    """Orthogonalise (n, rows, columns) in products of the dtype that the cast gives."""
    x = cast(x)
    # In bf16 products of Gram matrices lose the small singular values, and on nearly square ones
    # they cost more.
    if cast.dtype == torch.bfloat16 or max(x.shape[-2:]) < 2 * min(x.shape[-2:]):
        return _step_by_step(x, cast, steps)
    gram = _gram(x)
    # ||X||^2 is the trace of G
    square = gram.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=EPS**2)[:, None, None]
    x = _times(_polynomial(gram.div_(square), min(AT_A_TIME, steps)).div_(square.sqrt()), x)
    for done in range(AT_A_TIME, steps, AT_A_TIME):
        x = _times(_polynomial(_gram(x), min(AT_A_TIME, steps - done)), x)
    return x


def _step_by_step(x: Tensor, cast: Cast, steps: int) -> Tensor:
    """The iteration as it is written."""
    x = cast(x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=EPS))
    for _ in range(steps):
        gram = cast(_gram(x))
        polynomial = cast(torch.baddbmm(gram, gram, gram, beta=B, alpha=C))  # b G + c G^2
        x = cast(
            torch.baddbmm(x, polynomial, x, beta=A)
            if _wide(x)
            else torch.baddbmm(x, x, polynomial, beta=A)
        )
    return x


def _polynomial(gram: Tensor, steps: int) -> Tensor:
    """The polynomial P of G with X_steps = P X_0, made of r x r products only.

    X_{k+1} = Q_k X_k with Q_k a polynomial of G_k, and G_{k+1} = Q_k G_k Q_k; all are symmetric and
    commute. Five steps in two goes take 56 r^3 FLOPs at c = 3.5 r, the plain iteration 80 r^3.
    """
    product = q = _quadratic(gram)
    for _ in range(1, steps):
        gram = q @ gram @ q
        q = _quadratic(gram)
        product = q @ product
    return product  # (n, r, r)


def _quadratic(gram: Tensor) -> Tensor:
    """a I + b G + c G^2."""
    q = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
    q.diagonal(dim1=-2, dim2=-1).add_(A)
    return q


def _gram(x: Tensor) -> Tensor:
    return x @ x.mT if _wide(x) else x.mT @ x  # (n, r, r)


def _times(symmetric: Tensor, x: Tensor) -> Tensor:
    return symmetric @ x if _wide(x) else x @ symmetric


def _wide(x: Tensor) -> bool:
    return x.shape[-2] <= x.shape[-1]


# --------------------------------------------------------------------------------------------------
# Muon: momentum whose matrices are orthogonalised before they are applied.
# kellerjordan.github.io/posts/muon
#
#     m <- mu m + g
#     u = g + mu m                                               (Nesterov)
#     W <- W - lr 0.2 sqrt(max(rows, cols)) NewtonSchulz(u)
#
# The factor 0.2 sqrt(max(rows, cols)) gives the update the size of AdamW's (arXiv:2502.16982), so
# AdamW's learning rate fits. `torch.optim.Muon` averages (m <- mu m + (1-mu) g) where this sums;
# Newton-Schulz normalises, so both are equal.


Whole = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Works on whole matrices by name."""
Deal = Callable[[Mapping[str, Tensor], Mapping[str, Parameter], Whole], dict[str, Tensor]]
"""(this rank's parts of the matrices, their parameters, work on whole matrices) -> this rank's
parts of the result."""

MATCH_ADAMW = 0.2  # RMS of a typical AdamW update, arXiv:2502.16982 section 2.2


def undealt(
    parts: Mapping[str, Tensor], parameters: Mapping[str, Parameter], work: Whole
) -> dict[str, Tensor]:
    """One process: every part is the whole matrix."""
    for name, part in parts.items():
        if part.shape != parameters[name].shape:
            raise ValueError(
                f"matrix {name!r} {tuple(parameters[name].shape)} is sharded, this rank holds"
                f" {tuple(part.shape)}; give Muon"
                " deal=fulcrum.training.dist.matrix_owners.Owners(ranks)"
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
        self.momentum = {
            name: torch.zeros_like(p, dtype=state, requires_grad=False)
            for name, p in parameters.items()
        }
        self.slots = {"momentum": self.momentum}

    @torch.no_grad()
    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0) -> None:
        directions = self.deal(self._nesterov(), self.parameters, self._orthogonalise)
        lr, stalled = self.lr * scale, []
        for name, direction in directions.items():
            parameter, weight = self.parameters[name], local(self.parameters[name])
            before = [weight.clone()] if watch else []
            if self.weight_decay:
                weight.mul_(1 - lr * self.weight_decay)
            weight.add_(direction, alpha=-lr * MATCH_ADAMW * math.sqrt(max(parameter.shape)))
            self.store.keep({name: parameter}, at)
            if watch and lr:
                stalled.append(count_stalled(before, [weight], [direction], [copies(parameter)]))
        none = torch.zeros(
            2, dtype=torch.float64, device=next((p.device for p in self.parameters.values()), None)
        )
        self.stalled = sum(stalled, none) if watch else None

    def _nesterov(self) -> dict[str, Tensor]:
        """Fold the gradients into the momentum; what is left to orthogonalise, by name."""
        parts: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            g = gradient(parameter)
            if g is None:
                continue
            stored = local(self.momentum[name])
            m = stored.float()  # itself if the state is fp32
            torch.add(g, m, alpha=self.mu, out=m)
            if stored.dtype != torch.float32:
                stored.copy_(m)
            parts[name] = g.add(m, alpha=self.mu)
        return parts

    def _orthogonalise(self, matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return orthogonalise(matrices, self.compute, self.steps)
