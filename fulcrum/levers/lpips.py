"""LPIPS-like: the predicted and the true picture compared stage by stage inside a frozen network.  arXiv:1801.03924"""

from typing import Any, ClassVar

from fulcrum.levers import price
from fulcrum.levers.base import Card, Cost, Lever
from fulcrum.loss.fillers import LPIPS
from fulcrum.spec.edit import put
from fulcrum.spec.record import Factor
from fulcrum.spec.run import RunSpec


class UseLPIPS(Lever):
    weight: Factor = 0.1

    name: ClassVar[str] = "lpips"
    touches: ClassVar[tuple[str, ...]] = ("terms.lpips",)
    card: ClassVar[Card] = Card(
        says="squared differences of unit-normalised features, early stages included: texture and edges count (used in PRX "
             "Part 3 with weight 0.1, never ablated alone)",
        train_only=True,
        warns="LPIPS-like: the embedded alignment teacher instead of VGG, all channels weighted alike; never a metric's "
              "network or the judge, which would be training on the test. At this size the network costs more than the "
              "denoiser")

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "terms.lpips", LPIPS(weight=self.weight))

    def needs(self, run: RunSpec) -> str | None:
        return LPIPS(weight=self.weight).problem(run)

    def cost(self, run: RunSpec) -> Cost:
        return price.of_term(LPIPS(weight=self.weight), run, self.edit(run))

    def witness(self, built: Any) -> bool:
        if "lpips" not in built.weights(0):
            return False
        view = built.step.look(*built.feed.at(0, 2))
        return bool((built.step.terms["lpips"](view) > 0).all())
