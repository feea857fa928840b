"""Newton-Schulz: replace a matrix's singular values by about one, many matrices of one shape at a time.

Legend: n matrices of one shape, r the smaller side, c the larger one. A tall matrix takes its factors from the right.

    X <- (a I + b G + c G^2) X,  G = X X^T        five times, from X / ||X||_F
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fulcrum.model.bf16 import EXACT, Cast

A, B, C = 3.4445, -4.7750, 2.0315  # kellerjordan.github.io/posts/muon: steepest at zero, ends in about [0.7, 1.2]
STEPS = 5
EPS = 1e-7
AT_A_TIME = 3  # Gram steps before X is formed anew: five in one go are 3e-4 off, 3 + 2 1e-5
AT_ONCE = {"cpu": 2**19}  # elements in one batch: on a CPU it should stay in the cache
AT_ONCE_ELSEWHERE = 2**26


def orthogonalise(matrices: Mapping[str, Tensor], cast: Cast = EXACT, steps: int = STEPS) -> dict[str, Tensor]:
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
    # In bf16 products of Gram matrices lose the small singular values, and on nearly square ones they cost more.
    if cast.dtype == torch.bfloat16 or max(x.shape[-2:]) < 2 * min(x.shape[-2:]):
        return _step_by_step(x, cast, steps)
    gram = _gram(x)
    square = gram.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=EPS**2)[:, None, None]  # ||X||^2 is the trace of G
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
        x = cast(torch.baddbmm(x, polynomial, x, beta=A) if _wide(x) else torch.baddbmm(x, x, polynomial, beta=A))
    return x


def _polynomial(gram: Tensor, steps: int) -> Tensor:
    """The polynomial P of G with X_steps = P X_0, made of r x r products only.

    X_{k+1} = Q_k X_k with Q_k a polynomial of G_k, and G_{k+1} = Q_k G_k Q_k; all are symmetric and commute. Five steps in
    two goes take 56 r^3 FLOPs at c = 3.5 r, the plain iteration 80 r^3.
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
