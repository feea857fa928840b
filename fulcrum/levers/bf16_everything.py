"""BF16 everywhere that numbers are kept: weights, gradients and moments."""

from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.spec.edit import put_all
from fulcrum.spec.flops import bytes_per_parameter
from fulcrum.spec.run import RunSpec


class BF16Everything(Lever):
    name = "bf16_everything"
    touches = ("precision.storage", "precision.gradient", "precision.optimizer")
    card = Card(
        says="weights, gradients and moments keep 8 bits of precision each: a model turned to bf16 as a whole, which is "
        "what the key of the published arm would have done, had anybody read it (fault A10)",
        warns="the published +3.67 FID stands on the card of weights stored in bf16, the words of the article; which of "
        "the two was meant cannot be told. A gradient is rounded once a step, when the whole batch is in it. The released "
        "projector of the alignment term was kept so by accident (fault A17): here the projector is kept like everything "
        "else. Real bf16 tensors would take 8 bytes a parameter with two moments; ours keep weights and gradients in fp32 "
        "tensors, so only the moments' bytes are saved",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put_all(run, [(slot, "bf16") for slot in self.touches])

    def cost(self, run: RunSpec) -> Cost:
        plain = put_all(run, [(slot, "fp32") for slot in self.touches])
        return Cost(memory=bytes_per_parameter(self.edit(run)) / bytes_per_parameter(plain))

    def witness(self, built: Built) -> bool:
        import torch

        from fulcrum.training.optim.optimizers import keep_gradients, local

        probe = torch.nn.Parameter(torch.zeros(1))
        probe.grad = torch.full((1,), 1 + 2.0**-10)
        keep_gradients([probe], built.gradient_dtype)
        weights = [local(parameter) for parameter in built.step.parameters()]
        moments = [value for name, value in built.optimizer.state().items() if not name.startswith("count/")]
        return (
            all(bool((weight == weight.bfloat16().to(weight.dtype)).all()) for weight in weights)
            and float(probe.grad) == 1.0
            and all(moment.element_size() == 2 for moment in moments)
        )
