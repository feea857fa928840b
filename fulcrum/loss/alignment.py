"""The alignment term: a tapped layer, projected, points where a frozen teacher's tokens point.  arXiv:2410.06940

The loss of a sample is 1 - cosine, mean over its tokens: zero when every token points the teacher's way. The projector is
computed in fp32 whatever the run computes in, and exists in training only.

B batch, N tokens of the grid, K tokens tapped (N unless the layer is routed), D model width, E teacher width
"""

from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.loss.term import View
from fulcrum.model.init import fan_in
from fulcrum.model.linear import Linear
from fulcrum.model.roles import Role
from fulcrum.model.tokens import Tokens, gather_rows

EPS = 1e-6


class MLPProjector(nn.Module):
    """REPA: three linears with SiLU between them, token by token; as wide inside as the model.

    The role is head (out of the stream): a rule for the blocks' matrices leaves the projector alone.
    """

    def __init__(self, width: int, teacher_width: int) -> None:
        super().__init__()
        self.into = Linear(width, width, Role.head)
        self.middle = Linear(width, width, Role.head)
        self.out = Linear(width, teacher_width, Role.head)

    def forward(self, tokens: Tokens, grid: tuple[int, int]) -> Tensor:  # -> (B, K, E)
        return self.out(F.silu(self.middle(F.silu(self.into(tokens.h)))))


class ConvProjector(nn.Module):
    """iREPA: one 3 x 3 convolution on the token grid; tokens that the layer does not have are zero."""

    parameter_roles = {"weight": Role.head, "bias": Role.vector}

    def __init__(self, width: int, teacher_width: int) -> None:
        super().__init__()
        conv = nn.Conv2d(width, teacher_width, 3, padding=1)
        self.weight, self.bias = conv.weight, conv.bias
        self.parameter_starts = dict.fromkeys(self.parameter_roles, fan_in(9 * width))

    def forward(self, tokens: Tokens, grid: tuple[int, int]) -> Tensor:  # -> (B, K, E)
        h, (rows, columns) = tokens.h.float(), grid
        if tokens.index is not None:
            h = Tokens(h.new_zeros(len(h), rows * columns, h.shape[-1])).put(Tokens(h, tokens.index)).h  # (B, N, D)
        h = torch.unflatten(h.transpose(1, 2), 2, grid)  # (B, D, rows, columns), channels last in memory
        projected = F.conv2d(h, self.weight, self.bias, padding=1).flatten(2).transpose(1, 2)  # (B, N, E)
        return projected if tokens.index is None else gather_rows(projected, tokens.index)


def spatially_normalised(y: Tensor, alpha: float = 1.0) -> Tensor:
    """iREPA (arXiv:2512.10794): (y - alpha mean over tokens) / std over tokens, channel by channel; what all tokens share
    says less, and nothing where alpha is 1."""
    std, mean = y.std(1, correction=0, keepdim=True), y.mean(1, keepdim=True)
    return (y - alpha * mean) / (std + EPS)  # (B, N, E)


class AlignmentTerm(nn.Module):
    def __init__(self, layer: int, teacher: str, projector: nn.Module, normalise: bool, alpha: float = 1.0) -> None:
        super().__init__()
        self.layer, self.teacher, self.projector = layer, teacher, projector
        self.normalise, self.alpha = normalise, alpha
        self.taps: tuple[int, ...] = (layer,)

    def forward(self, view: View) -> Tensor:  # -> (B,)
        tokens, y = view.taps[self.layer], view.batch.teacher[self.teacher]  # y (B, N, E), on the model's grid
        if tokens.index is None and tokens.h.shape[1] != y.shape[1]:
            raise ValueError(
                f"block {self.layer} has {tokens.h.shape[1]} tokens and the teacher '{self.teacher}' "
                f"{y.shape[1]}: the feed must bring the teacher onto the model's grid"
            )
        if self.normalise:
            y = spatially_normalised(y, self.alpha)
        height, width = view.v.shape[-2:]
        patch = isqrt(height * width // y.shape[1])  # cells of a token, along each side
        projected = self.projector(tokens, (height // patch, width // patch))  # (B, K, E)
        if tokens.index is not None:
            y = gather_rows(y, tokens.index)  # (B, K, E): each kept token's own teacher
        return 1 - F.cosine_similarity(projected, y, dim=-1).mean(1)
