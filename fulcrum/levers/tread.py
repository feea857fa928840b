"""TREAD: a random half of the tokens takes a shortcut around the middle blocks.  arXiv:2501.04765

tokens ──► block 0,1 ──┬── kept ──► blocks start … end ──┬──► block end+1 … ──► out
                       └── others ───────(unchanged)─────┘
"""

from typing import Any, ClassVar

from fulcrum.levers.base import Card, Claim, Cost, Lever
from fulcrum.levers.shared import price, routing
from fulcrum.model.fillers import Carry
from fulcrum.spec.edit import put
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec


class Tread(Lever):
    start: int = 1  # first routed block
    end: int = -2  # last routed block, inclusive; negative counts from the end
    drop: Fraction = 0.5  # share of tokens that takes the shortcut

    name: ClassVar[str] = "tread"
    touches: ClassVar[tuple[str, ...]] = ("model.route",)
    card: ClassVar[Card] = Card(
        says="fewer tokens in the middle blocks; pays when there are many tokens",
        claims=(
            Claim(
                metric="fid",
                change=-3.32,
                scope="1024 px pixels, 1,024 tokens, 100k steps",
                source="PRX Part 2",
                note="1.33 to 1.64 batches/s; the published arm also changed the sampler",
                carries=False,
            ),
            Claim(
                metric="fid",
                change=+3.41,
                scope="256 px latents, 256 tokens, 100k steps",
                source="PRX Part 2",
                note="3.95 to 4.11 batches/s; the published arm also changed the sampler",
                carries=False,
            ),
            Claim(
                metric="cmmd",
                change=-0.25,
                scope="1024 px pixels, 1,024 tokens, 100k steps",
                source="PRX Part 2",
                carries=False,
            ),
            Claim(
                metric="cmmd",
                change=+0.14,
                scope="256 px latents, 256 tokens, 100k steps",
                source="PRX Part 2",
                carries=False,
            ),
        ),
        train_only=True,
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "model.route", Carry(start=self.start, end=self.end, drop=self.drop))

    def needs(self, run: RunSpec) -> str | None:
        return routing.problem(run, self.drop)

    def cost(self, run: RunSpec) -> Cost:
        dense = routing.unrouted(run)
        return price.of_denoiser(dense, self.edit(dense))

    def witness(self, built: Any) -> bool:
        keep = built.feed.at(0)[1].keep
        return keep is not None and keep.shape[1] < built.run.tokens
