"""The flow-matching term: mean (v - u)^2 for each sample, weighted by its time."""

from collections.abc import Callable

from torch import Tensor, nn

from fulcrum.loss.term import View


class FlowMatchingTerm(nn.Module):
    taps: tuple[int, ...] = ()

    def __init__(self, weight: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, view: View) -> Tensor:  # -> (B,)
        return (view.v - view.target).square().flatten(1).mean(1) * self.weight(view.draw.t)
