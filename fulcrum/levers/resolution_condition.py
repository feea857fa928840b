"""Resolution conditioning: the denoiser is told how large the picture is.  arXiv:2307.01952

sinusoids of height and width -> two linears -> added to the time's vector
"""

from fulcrum.levers.base import Built, Card, Cost, Swap
from fulcrum.levers.shared import price
from fulcrum.model.fillers import NoCondition, Resolution
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec


class ResolutionCondition(Swap):
    name = "resolution_condition"
    slot, filler = "model.condition", Resolution
    card = Card(says="height and width enter the time vector; can only pay in a run that sees several sizes")

    def cost(self, run: RunSpec) -> Cost:
        return price.of_denoiser(put(run, self.slot, NoCondition()), self.edit(run))

    def witness(self, built: Built) -> bool:
        import torch

        from fulcrum.dist.reduce import whole

        embedder = built.step.backbone.resolution_embedder
        if embedder is None:
            return False
        weights = {name: whole(value) for name, value in embedder.named_parameters()}  # many processes hold slices
        sizes = torch.tensor([[8.0, 8.0], [16.0, 8.0]], device=next(iter(weights.values())).device)
        with torch.no_grad():
            small, large = torch.func.functional_call(embedder, weights, (None, None, sizes))
        return not bool(torch.equal(small, large))  # another size, another vector
