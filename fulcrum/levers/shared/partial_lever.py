"""What levers that let only a part of the weights learn share: the slot, the cost, and what a witness looks at."""

from fulcrum.levers.base import Built, Cost, Swap
from fulcrum.levers.shared import price
from fulcrum.spec.edit import put
from fulcrum.spec.run import AllWeights, RunSpec


class PartialLearning(Swap):
    """A lever that fills `model.learned`."""

    slot = "model.learned"

    def cost(self, run: RunSpec) -> Cost:
        return price.of_denoiser(put(run, self.slot, AllWeights()), self.edit(run))


def moving(built: Built) -> set[str]:
    """Names of the denoiser's parameters that get a gradient; empty where the optimizer has others, or not all of them."""
    own = dict(built.step.backbone.named_parameters(prefix="backbone"))
    with_gradient = {name for name, weight in own.items() if weight.requires_grad}
    updated = {name.partition("/")[2] for name in built.optimizer.state()} & own.keys()
    return with_gradient if updated == with_gradient else set()
