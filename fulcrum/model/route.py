"""Which tokens a span of blocks sees, and how the others come back.

B batch, N tokens, K kept, D width
"""

from typing import Protocol

from torch import Tensor, nn

from fulcrum.model.tokens import Tokens


class Route(Protocol):
    """Blocks start..end (inclusive, negative from the end) see split(tokens, keep); merge restores the grid."""

    start: int | None
    end: int | None

    def split(self, tokens: Tokens, keep: Tensor) -> Tokens: ...

    def merge(self, before: Tokens, after: Tokens) -> Tokens: ...


class DenseRoute(nn.Module):
    """Every block sees every token: no span."""

    start: int | None = None
    end: int | None = None

    def split(self, tokens: Tokens, keep: Tensor) -> Tokens:
        raise ValueError("keep was given, but the route is dense: give no keep, or build with a route that drops")

    def merge(self, before: Tokens, after: Tokens) -> Tokens:
        return after


class CarryRoute(nn.Module):
    """TREAD (arXiv:2501.04765): the span sees the kept tokens; the others come back as they were before it."""

    def __init__(self, start: int, end: int):
        super().__init__()
        self.start: int | None = start
        self.end: int | None = end

    def split(self, tokens: Tokens, keep: Tensor) -> Tokens:
        return tokens.take(keep)  # (B, N, D) -> (B, K, D)

    def merge(self, before: Tokens, after: Tokens) -> Tokens:
        return before.put(after)  # (B, N, D)


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
