"""What the levers that tell the denoiser something beside the time share: the cost, and that another thing told is seen."""

from typing import Any

from fulcrum.levers.base import Cost, Swap
from fulcrum.levers.shared import price
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec
from fulcrum.training.model.fillers import NoCondition


class Conditioning(Swap):
    """A lever that fills `model.condition`; a subclass says with what, and finds it in what was built."""

    slot = "model.condition"

    def cost(self, run: RunSpec) -> Cost:
        return price.of_denoiser(put(run, self.slot, NoCondition()), self.edit(run))


def hears(embedder: Any, one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Does the built part make another vector of other numbers?"""
    import torch

    from fulcrum.training.dist.collectives import whole

    weights = {name: whole(value) for name, value in embedder.named_parameters()}  # many processes hold slices
    numbers = torch.tensor([one, other], device=next(iter(weights.values())).device)
    with torch.no_grad():
        first, second = torch.func.functional_call(embedder, weights, (None, None, numbers))
    return not bool(torch.equal(first, second))
