"""Newton-Schulz: replace a matrix's singular values by about one, many matrices at a time.

Legend: n matrices of one shape, r rows, c columns, r <= c (a tall matrix is worked on transposed).

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


def newton_schulz(x: Tensor, cast: Cast = EXACT, steps: int = STEPS) -> Tensor:
    """Orthogonalise (n, r, c) with r <= c, in products of the dtype that the cast gives."""
    x = cast(x)
    x = cast(x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=EPS))
    # In bf16 products of Gram matrices lose the small singular values, and on nearly square ones they cost more.
    if cast.dtype == torch.bfloat16 or x.shape[-1] < 2 * x.shape[-2]:
        for _ in range(steps):
            gram = cast(x @ x.mT)  # (n, r, r)
            polynomial = cast(torch.baddbmm(gram, gram, gram, beta=B, alpha=C))  # b G + c G^2
            x = cast(torch.baddbmm(x, polynomial, x, beta=A))  # (n, r, c)
        return x
    for done in range(0, steps, AT_A_TIME):
        x = _through_gram(x, min(AT_A_TIME, steps - done))
    return x


def _through_gram(x: Tensor, steps: int) -> Tensor:
    """The same iteration on r x r matrices only: X_{k+1} = Q_k X_k with Q_k a polynomial of G_k, G_{k+1} = Q_k G_k Q_k.

    Five steps in two goes take 56 r^3 FLOPs at c = 3.5 r, the plain iteration 80 r^3.
    """
    gram = x @ x.mT  # (n, r, r)
    product: Tensor | None = None
    for k in range(steps):
        q = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        q.diagonal(dim1=-2, dim2=-1).add_(A)
        product = q if product is None else q @ product
        if k < steps - 1:
            gram = q @ gram @ q
    assert product is not None
    return product @ x  # (n, r, c)


def orthogonalise(matrices: Mapping[str, Tensor], cast: Cast = EXACT, steps: int = STEPS) -> dict[str, Tensor]:
    """Orthogonalise whole matrices by name, equal shapes stacked into one batched product."""
    alike: dict[tuple[int, int], list[str]] = {}
    for name, matrix in matrices.items():
        rows, columns = matrix.shape
        alike.setdefault((min(rows, columns), max(rows, columns)), []).append(name)
    done: dict[str, Tensor] = {}
    for (rows, columns), names in alike.items():
        at_once = AT_ONCE.get(matrices[names[0]].device.type, AT_ONCE_ELSEWHERE)
        batch = max(1, at_once // (rows * columns))
        for start in range(0, len(names), batch):
            stacked = names[start : start + batch]
            tall = [matrices[name].shape[0] > matrices[name].shape[1] for name in stacked]
            x = torch.stack([matrices[name].mT if t else matrices[name] for name, t in zip(stacked, tall, strict=True)])
            for name, t, result in zip(stacked, tall, newton_schulz(x, cast, steps), strict=True):  # of (n, r, c)
                done[name] = result.mT if t else result
    return {name: done[name] for name in matrices}
