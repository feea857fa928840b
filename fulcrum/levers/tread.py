"""TREAD: a random half of the tokens takes a shortcut around the middle blocks.  arXiv:2501.04765

    tokens ──► block 0,1 ──┬── kept ──► blocks start … end ──┬──► block end+1 … ──► out
                           └── others ───────(unchanged)─────┘
"""

from typing import Any, ClassVar

from fulcrum.levers.base import Card, Claim, Cost, Lever
from fulcrum.model.cost import training_flops
from fulcrum.model.fillers import Carry, Dense
from fulcrum.spec.edit import put
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec


class Tread(Lever):
    start: int = 1                                           # first routed block
    end: int = -2                                            # last routed block, inclusive; negative counts from the end
    drop: Fraction = 0.5                                     # share of tokens that takes the shortcut

    name: ClassVar[str] = "tread"
    touches: ClassVar[tuple[str, ...]] = ("model.route",)
    card: ClassVar[Card] = Card(
        says="fewer tokens in the middle blocks; pays when there are many tokens",
        claims=(Claim(metric="fid", change=-3.32, scope="1024 px pixels, 1,024 tokens, 100k steps", source="PRX Part 2",
                      carries=False),
                Claim(metric="fid", change=+3.41, scope="256 px latents, 256 tokens, 100k steps", source="PRX Part 2",
                      carries=False)),
        train_only=True)

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "model.route", Carry(start=self.start, end=self.end, drop=self.drop))

    def needs(self, run: RunSpec) -> str | None:
        start, end = Carry(start=self.start, end=self.end, drop=self.drop).bounds(run.model.depth)
        if not 0 <= start <= end < run.model.depth:
            return f"it routes blocks {start} to {end}, but the model has {run.model.depth}"
        return None

    def cost(self, run: RunSpec) -> Cost:
        dense = put(run, "model.route", Dense())
        return Cost(flops=training_flops(self.edit(run)) / training_flops(dense))

    def witness(self, built: Any) -> bool:
        keep = built.feed.at(0)[1].keep
        return keep is not None and keep.shape[1] < built.run.tokens
