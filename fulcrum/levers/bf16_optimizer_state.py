"""BF16 optimizer state: moments and momentum are remembered in bf16, updates and weights stay fp32."""

from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.flops import bytes_per_parameter
from fulcrum.spec.run import RunSpec


class BF16OptimizerState(Lever):
    name = "bf16_optimizer_state"
    touches = ("precision.optimizer",)
    card = Card(
        says="the optimizer remembers in half the bytes: with two moments 12 instead of 16 bytes a parameter; the update "
        "itself is computed in fp32",
        warns="bf16 keeps 8 bits of precision: a moment that should fade by less than 1/256 in a step (beta above 0.996) "
        "does not fade",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.optimizer", "bf16")

    def cost(self, run: RunSpec) -> Cost:
        # Weight 4 + gradient 4 + two moments 8 -> 4 bytes; activations are not counted.
        plain = put(run, "precision.optimizer", "fp32")
        return Cost(memory=bytes_per_parameter(self.edit(run)) / bytes_per_parameter(plain))

    def witness(self, built: Built) -> bool:
        kept = [value for name, value in built.optimizer.state().items() if not name.startswith("count/")]
        return bool(kept) and all(value.element_size() == 2 for value in kept)
