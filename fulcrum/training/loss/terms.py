"""Terms of the loss: the interface, flow matching, alignment and contrastive flow."""

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.training.model.parameters import Role, fan_in
from fulcrum.training.model.transformer import Linear, Tokens, gather_rows

# --------------------------------------------------------------------------------------------------
# What a term of the loss sees, and how terms are added up.
#
# B batch, C channels, h, w latent rows and columns.


class Coded(NamedTuple):
    """What a codec that is trained says of the batch. Its own terms reach it through these; the
    denoiser's never do: `batch.x0` is `latent` without its history."""

    pixels: Tensor  # (B, 3, H, W) in [-1, 1]
    mean: Tensor  # (B, C, h, w) of the posterior, raw
    log_variance: Tensor  # (B, C, h, w)
    raw: Tensor  # (B, C, h, w) that the denoiser is shown: a sample of the posterior, or its mean
    latent: Tensor  # (B, C, h, w) the same, normalised
    # Computed when a term first asks:
    decoded: Callable[[], Tensor]  # (B, 3, H, W) from a sample of the posterior
    #: layer -> Tokens: the noised `latent` as read by the denoiser without its gradient
    taps: Callable[[], dict[int, Any]]

    def moments(self) -> Tensor:  # -> (2, C)
        """Mean and mean square of every channel: what the running statistics follow."""
        raw = self.raw.detach().double()
        return torch.stack([raw.mean((0, 2, 3)), raw.square().mean((0, 2, 3))])


class View(NamedTuple):
    """One step as the terms see it."""

    batch: Any  # encode.Batch
    draw: Any  # flow.Draw
    v: Tensor  # (B, C, h, w) predicted velocity
    target: Tensor  # (B, C, h, w) velocity of a perfect prediction
    x: Tensor  # (B, C, h, w) predicted clean latent
    taps: dict[int, Any]  # layer -> Tokens
    coded: Coded | None = None  # if the codec is trained
    terms: Mapping[str, Any] = {}  # the run's terms by name, for one that looks with another's eyes


class Term(Protocol):
    """One addend of the loss: a torch module that gives every sample a number."""

    #: blocks whose tokens it wants to see; `frozen_taps`, if it has them, are those of `coded`
    taps: tuple[int, ...]

    def __call__(self, view: View) -> Tensor: ...  # (B,)


class Losses(NamedTuple):
    total: Tensor  # () what is minimised
    parts: dict[str, Tensor]  # name -> () mean over the batch, before weighting
    moments: Tensor | None = None  # (2, C) of the latents of a codec that is trained

    def detached(self, share: float) -> "Losses":
        """The losses of one part of a batch, scaled by its share of the rows, without history."""
        return Losses(
            self.total.detach() * share,
            {name: value * share for name, value in self.parts.items()},
            None if self.moments is None else self.moments * share,
        )

    def plus(self, other: "Losses") -> "Losses":
        """The sum of two parts of one batch, each scaled by its share of the rows."""
        return Losses(
            self.total + other.total,
            {name: value + other.parts[name] for name, value in self.parts.items()},
            None if self.moments is None or other.moments is None else self.moments + other.moments,
        )


def weigh(parts: Mapping[str, Tensor], weights: Mapping[str, float | Tensor]) -> Losses:
    """total = sum of weight x mean over the batch."""
    means = {name: part.mean() for name, part in parts.items()}
    total = cast(Tensor, sum(weights[name] * mean for name, mean in means.items()))
    return Losses(total, {name: mean.detach() for name, mean in means.items()})


# --------------------------------------------------------------------------------------------------
# The flow-matching term: mean (v - u)^2 for each sample, weighted by its time.


class FlowMatchingTerm(nn.Module):
    taps: tuple[int, ...] = ()

    def __init__(self, weight: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, view: View) -> Tensor:  # -> (B,)
        return (view.v - view.target).square().flatten(1).mean(1) * self.weight(view.draw.t)


# --------------------------------------------------------------------------------------------------
# The alignment term: a tapped layer, projected, points where a frozen teacher's tokens point.
# arXiv:2410.06940
#
# The loss of a sample is 1 - cosine, mean over its tokens: zero when every token points the
# teacher's way. The projector is computed in fp32 whatever the run computes in, and exists in
# training only.
#
# B batch, N tokens of the grid, K tokens tapped (N unless the layer is routed), D model width, E
# teacher width


EPS = 1e-6


class MLPProjector(nn.Module):
    """REPA: three linears with SiLU between them, token by token; as wide inside as the model.

    The role is head (out of the stream): a rule for the blocks' matrices leaves the projector
    alone.
    """

    def __init__(self, width: int, teacher_width: int) -> None:
        super().__init__()
        self.into = Linear(width, width, Role.head)
        self.middle = Linear(width, width, Role.head)
        self.out = Linear(width, teacher_width, Role.head)

    def forward(self, tokens: Tokens, grid: tuple[int, int]) -> Tensor:  # -> (B, K, E)
        return self.out(F.silu(self.middle(F.silu(self.into(tokens.h)))))


class ConvProjector(nn.Module):
    """iREPA: one 3 x 3 convolution on the token grid; tokens that the layer does not have are
    zero."""

    parameter_roles = {"weight": Role.head, "bias": Role.vector}

    def __init__(self, width: int, teacher_width: int) -> None:
        super().__init__()
        conv = nn.Conv2d(width, teacher_width, 3, padding=1)
        self.weight, self.bias = conv.weight, conv.bias
        self.parameter_starts = dict.fromkeys(self.parameter_roles, fan_in(9 * width))

    def forward(self, tokens: Tokens, grid: tuple[int, int]) -> Tensor:  # -> (B, K, E)
        h, (rows, columns) = tokens.h.float(), grid
        if tokens.index is not None:
            # (B, N, D)
            h = (
                Tokens(h.new_zeros(len(h), rows * columns, h.shape[-1]))
                .put(Tokens(h, tokens.index))
                .h
            )
        # (B, D, rows, columns), channels last in memory
        h = torch.unflatten(h.transpose(1, 2), 2, grid)
        # (B, N, E)
        projected = F.conv2d(h, self.weight, self.bias, padding=1).flatten(2).transpose(1, 2)
        return projected if tokens.index is None else gather_rows(projected, tokens.index)


def spatially_normalised(y: Tensor, alpha: float = 1.0) -> Tensor:
    """iREPA (arXiv:2512.10794): (y - alpha mean over tokens) / std over tokens, channel by channel;
    what all tokens share says less, and nothing where alpha is 1."""
    std, mean = y.std(1, correction=0, keepdim=True), y.mean(1, keepdim=True)
    return (y - alpha * mean) / (std + EPS)  # (B, N, E)


class AlignmentTerm(nn.Module):
    def __init__(
        self, layer: int, teacher: str, projector: nn.Module, normalise: bool, alpha: float = 1.0
    ) -> None:
        super().__init__()
        self.layer, self.teacher, self.projector = layer, teacher, projector
        self.normalise, self.alpha = normalise, alpha
        self.taps: tuple[int, ...] = (layer,)

    def forward(self, view: View) -> Tensor:  # -> (B,)
        # y (B, N, E), on the model's grid
        tokens, y = view.taps[self.layer], view.batch.teacher[self.teacher]
        if tokens.index is None and tokens.h.shape[1] != y.shape[1]:
            raise ValueError(
                f"block {self.layer} has {tokens.h.shape[1]} tokens and the teacher"
                f" '{self.teacher}' {y.shape[1]}: the feed must bring the teacher onto the model's"
                " grid"
            )
        if self.normalise:
            y = spatially_normalised(y, self.alpha)
        height, width = view.v.shape[-2:]
        patch = isqrt(height * width // y.shape[1])  # cells of a token, along each side
        projected = self.projector(tokens, (height // patch, width // patch))  # (B, K, E)
        if tokens.index is not None:
            y = gather_rows(y, tokens.index)  # (B, K, E): each kept token's own teacher
        return 1 - F.cosine_similarity(projected, y, dim=-1).mean(1)


# --------------------------------------------------------------------------------------------------
# The contrastive flow term: a sample's velocity away from that of another sample.  arXiv:2506.05350
#
# B batch, C channels, h, w latent rows and columns.


class ContrastiveTerm(nn.Module):
    """- mean (v_b - u_pi(b))^2 for each sample; pi goes one round inside a chunk of fixed size.

    The chunk is part of the run: neither the number of processes nor accumulation decides who is
    compared with whom. Times count as in the flow-matching term: with a weight of its own there,
    this term would win where that one vanishes, and the velocity would grow without end.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, chunk: int, weight: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.chunk, self.weight = chunk, weight

    def forward(self, view: View) -> Tensor:  # -> (B,)
        batch = len(view.v)
        # nobody to be compared with: nothing
        rows = batch // self.chunk * self.chunk if self.chunk > 1 else 0
        if not rows:
            return view.v.new_zeros(batch)
        # (rows, C, h, w)
        others = (
            torch.unflatten(view.target[:rows], 0, (-1, self.chunk)).roll(1, dims=1).flatten(0, 1)
        )
        apart = (view.v[:rows] - others).square().flatten(1).mean(1) * self.weight(
            view.draw.t[:rows]
        )
        return -F.pad(apart, (0, batch - rows))
