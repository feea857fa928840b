"""The terms that train a codec beside the denoiser: reconstruction, and two ways to align its
latent with a teacher.

B batch, C channels, h, w latent rows and columns, N tokens, E teacher width, p cells per token
along each side
"""

from math import isqrt

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fulcrum.training.loss.terms import Coded, View
from fulcrum.training.model.parameters import Role
from fulcrum.training.model.transformer import Linear, patchify


def coded_of(view: View) -> Coded:
    if view.coded is None:
        raise ValueError(
            "a term of the codec needs a codec that is trained: encode.codec must be a tuned one"
        )
    return view.coded


class ReconstructionTerm(nn.Module):
    """squared e^2 + absolute |e| of the decoded sample, mean over pixels, and
    kl KL(posterior | standard normal), mean over the latent."""

    taps: tuple[int, ...] = ()

    def __init__(self, squared: float, absolute: float, kl: float) -> None:
        super().__init__()
        self.squared, self.absolute, self.kl = squared, absolute, kl

    def forward(self, view: View) -> Tensor:  # -> (B,)
        coded = coded_of(view)
        error = coded.decoded() - coded.pixels
        kl = 0.5 * (coded.mean.square() + coded.log_variance.exp() - 1 - coded.log_variance)
        return (self.squared * error.square() + self.absolute * error.abs()).flatten(1).mean(
            1
        ) + self.kl * kl.flatten(1).mean(1)


class LatentAlignmentTerm(nn.Module):
    """1 - cosine of the projected clean latent and the teacher's token, token by token. The
    projector is the term's own: it sees as many cells as one of the teacher's tokens covers, in
    fp32, and exists in training only."""

    taps: tuple[int, ...] = ()

    def __init__(
        self, teacher: str, cells: int, channels: int, teacher_width: int, hidden: int
    ) -> None:
        super().__init__()
        self.teacher, self.cells = teacher, cells
        self.into = Linear(channels * cells**2, hidden, Role.head)
        self.middle = Linear(hidden, hidden, Role.head)
        self.out = Linear(hidden, teacher_width, Role.head)

    def forward(self, view: View) -> Tensor:  # -> (B,)
        latent, y = coded_of(view).latent, view.batch.teacher[self.teacher]  # y (B, N, E)
        tokens = patchify(latent, self.cells)  # (B, N, C p p)
        if tokens.shape[1] != y.shape[1]:
            raise ValueError(
                f"the latent has {tokens.shape[1]} tokens of {self.cells} x {self.cells} cells, the"
                f" teacher '{self.teacher}' gives a grid of side {isqrt(y.shape[1])}: they must"
                " agree"
            )
        projected = self.out(F.silu(self.middle(F.silu(self.into(tokens)))))  # (B, N, E)
        return 1 - F.cosine_similarity(projected, y, dim=-1).mean(1)


class EndToEndAlignmentTerm(nn.Module):
    """REPA-E (arXiv:2504.10483): what the denoiser's own alignment term says of the codec's noised
    latent. Denoiser and projector are read as they stand, their weights get no gradient: it all
    arrives at the codec."""

    taps: tuple[int, ...] = ()

    def __init__(self, alignment: str, layer: int) -> None:
        super().__init__()
        self.alignment = alignment
        self.frozen_taps: tuple[int, ...] = (layer,)

    def forward(self, view: View) -> Tensor:  # -> (B,)
        term, seen = view.terms[self.alignment], view._replace(taps=coded_of(view).taps())
        weights = {name: weight.detach() for name, weight in term.named_parameters()}
        cosine: Tensor = functional_call(term, weights, (seen,))
        return cosine
