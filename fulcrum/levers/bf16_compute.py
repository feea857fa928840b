"""BF16 products: operands and results of every matrix product of the denoiser in bf16, all between them in fp32."""

from fulcrum.levers.base import Built, Card, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec


class BF16Compute(Lever):
    name = "bf16_compute"
    touches = ("precision.compute",)
    card = Card(
        says="matrix products take and give bf16 numbers and sum in fp32, forward and backward; weights, norms, softmax, "
        "positions, time and loss stay fp32: what autocast does, and the half of the claim that says it is harmless",
        warns="all published arms have it on, so none measures it: no claim, and the published recipes have it already. On "
        "CPUs without bf16 units the products are emulated (operands and results rounded, fp32 sums): no faster than fp32. "
        "Muon's Newton-Schulz follows, and takes more FLOPs on long matrices: in bf16 it cannot go through Gram matrices",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.compute", "bf16")

    def witness(self, built: Built) -> bool:
        """Operands that differ from one by less than bf16 can tell have the product one, in every layer."""
        import torch

        from fulcrum.training.model.layers import Linear

        near = torch.full((1, 1), 1 + 2.0**-10)
        layers = [part for part in built.step.backbone.modules() if isinstance(part, Linear)]
        return all(float(layer.product(near, near)) == 1.0 for layer in layers)
