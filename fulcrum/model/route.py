"""Which tokens a span of blocks sees, and how the others come back.

B batch, N tokens, K kept, D width
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from fulcrum.model.init import ZERO
from fulcrum.model.linear import Linear
from fulcrum.model.roles import Role
from fulcrum.model.tokens import Tokens


class Route(Protocol):
    """Blocks start..end (inclusive, negative from the end) see split(tokens, keep); merge restores the grid."""

    start: int | None
    end: int | None
    fuses: bool  # has a path around the span: merges even when every token was kept, and may leave the span out

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens: ...

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        """`dropped` (B,) true where the whole path through the span counts for nothing."""

    def around(self, before: Tokens) -> Tokens:
        """What merge would give had the path been dropped for every sample: the span need not run."""


class DenseRoute(nn.Module):
    """Every block sees every token: no span."""

    start: int | None = None
    end: int | None = None
    fuses = False

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens:
        raise ValueError("keep was given, but the route is dense: give no keep, or build with a route that drops")

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        return after

    def around(self, before: Tokens) -> Tokens:
        raise ValueError("a dense route has no span to leave out: build with a route that fuses")


class CarryRoute(nn.Module):
    """TREAD (arXiv:2501.04765): the span sees the kept tokens; the others come back as they were before it."""

    fuses = False

    def __init__(self, start: int, end: int):
        super().__init__()
        self.start: int | None = start
        self.end: int | None = end

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens:
        return tokens if keep is None else tokens.take(keep)  # (B, N, D) -> (B, K, D)

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        return before.put(after)  # (B, N, D)

    def around(self, before: Tokens) -> Tokens:
        raise ValueError("this route was never trained without its span: build with a route that fuses")


class FuseRoute(nn.Module):
    """SPRINT (arXiv:2510.21986): fused = W [dense; sparse] + b, where `dense` is what entered the span and `sparse`
    what left it, on a grid filled with the mask token m, which begins at zero and stays there unless it is learned.

    W is applied in halves, W = [W_dense, W_sparse]: the places that hold m all get the same W_sparse m, so only the K
    kept tokens are multiplied, and neither the filled grid nor the concatenation (B, N, 2 D) is ever stored. W is a
    `head`: no weight inside a block, so a rule for the blocks' matrices leaves it alone.
    """

    fuses = True

    def __init__(self, start: int, end: int, width: int, compute: torch.dtype = torch.float32, learned_mask: bool = True):
        super().__init__()
        self.start: int | None = start
        self.end: int | None = end
        self.mask = nn.Parameter(torch.zeros(width, dtype=torch.float32)) if learned_mask else None
        self.parameter_roles = {"mask": Role.vector} if learned_mask else {}
        self.parameter_starts = {"mask": ZERO} if learned_mask else {}
        self.fuse = Linear(2 * width, width, Role.head, compute=compute, whole=False)

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens:
        return tokens if keep is None else tokens.take(keep)  # (B, N, D) -> (B, K, D)

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        missing = self.missing(before.h)  # (D,)
        whole = Tokens(missing.expand_as(before.h)).put(after._replace(h=self.sparse(after.h)))  # (B, N, D)
        sparse = whole.h if dropped is None else torch.where(dropped[:, None, None], missing, whole.h)
        return Tokens(self.dense(before.h) + sparse)

    def around(self, before: Tokens) -> Tokens:
        return Tokens(self.dense(before.h) + self.missing(before.h))

    def missing(self, h: Tensor) -> Tensor:
        """W_sparse m: what a place gets that the span did not see."""
        return h.new_zeros(h.shape[-1]) if self.mask is None else self.sparse(self.mask)

    def dense(self, h: Tensor) -> Tensor:
        weight = self.fuse.weight
        return self.fuse.product(h, weight[:, : len(weight)], self.fuse.bias).float()

    def sparse(self, h: Tensor) -> Tensor:
        weight = self.fuse.weight
        return self.fuse.product(h, weight[:, len(weight) :]).float()


def span(route: Route, depth: int) -> tuple[int, int] | None:
    """The route's first and last block as plain indices of a stack of `depth`, or None when it has no span."""
    if route.start is None or route.end is None:
        return None
    start, end = (i + depth if i < 0 else i for i in (route.start, route.end))
    if not 0 <= start <= end < depth:
        raise ValueError(
            f"a route over blocks {route.start}..{route.end} does not fit {depth} blocks: "
            f"need 0 <= start <= end < {depth} (negative counts from the end)"
        )
    return start, end
