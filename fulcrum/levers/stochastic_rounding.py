"""Stochastic rounding: an update too small for the stored precision is made whole now and then, in the mean exactly.

Its cost, about ten integer operations a parameter and step, is nothing beside a step.
"""

from fulcrum.levers.base import Built, Card, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec


class StochasticRounding(Lever):
    name = "stochastic_rounding"
    touches = ("precision.rounding",)
    card = Card(
        says="stored weights round up or down at random, in proportion to the distance: the mean of an update is kept, at "
        "the price of noise; the cure of weights stored in bf16",
        warns="the record's `stalled` counts weights that did not move in a step: under this rounding they are not lost",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.rounding", "stochastic")

    def needs(self, run: RunSpec) -> str | None:
        if run.precision.storage == "fp32":
            return "nothing is rounded: weights are stored in fp32; --set precision.storage=bf16"
        return None

    def witness(self, built: Built) -> bool:
        """A value half-way between two neighbours goes both ways."""
        import torch

        low, high = 1.0, 1.0 + 2.0**-7
        probe = torch.full((256,), (low + high) / 2)
        built.optimizer.store.keep({"probe": probe}, at=0)
        return set(probe.tolist()) == {low, high}
