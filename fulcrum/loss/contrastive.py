"""The contrastive flow term: a sample's velocity away from that of another sample.  arXiv:2506.05350

B batch, C channels, h, w latent rows and columns.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.loss.term import View


class ContrastiveTerm(nn.Module):
    """- mean (v_b - u_pi(b))^2 for each sample; pi goes one round inside a chunk of fixed size.

    The chunk is part of the run: neither the number of processes nor accumulation decides who is compared with whom.
    Times count as in the flow-matching term: with a weight of its own there, this term would win where that one vanishes,
    and the velocity would grow without end.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, chunk: int, weight: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.chunk, self.weight = chunk, weight

    def forward(self, view: View) -> Tensor:  # -> (B,)
        batch = len(view.v)
        rows = batch // self.chunk * self.chunk if self.chunk > 1 else 0  # nobody to be compared with: nothing
        if not rows:
            return view.v.new_zeros(batch)
        others = torch.unflatten(view.target[:rows], 0, (-1, self.chunk)).roll(1, dims=1).flatten(0, 1)  # (rows, C, h, w)
        apart = (view.v[:rows] - others).square().flatten(1).mean(1) * self.weight(view.draw.t[:rows])
        return -F.pad(apart, (0, batch - rows))
