"""SPRINT: the middle blocks see a quarter of the tokens, and a learned linear joins them with all.  arXiv:2510.21986

    tokens ──► block 0 … ──┬── kept ──► blocks start … end ──► on a grid of mask tokens ──┐
                           └──────────────────── dense ───────────────────────────────────┴─► W [dense; sparse] + b ──► …

With probability `path_drop` a sample gets mask tokens only; the last part of the budget keeps every token.
"""

from typing import Any, ClassVar

from fulcrum.levers.base import Card, Claim, Cost, Lever
from fulcrum.levers.shared import price, routing
from fulcrum.model.fillers import DropAndFuse
from fulcrum.spec.edit import during, put
from fulcrum.spec.record import Fraction, Part, Until
from fulcrum.spec.run import RunSpec

LATER = "by the published code, which has no path-drop, no guidance with it and no full-token stage: they are the paper's"


class Sprint(Lever):
    drop: Fraction = 0.75  # share of tokens that the span does not see
    start: int = 1  # first routed block
    end: int = -2  # last routed block, inclusive; negative counts from the end
    path_drop: Part = 0.05  # share of samples that learn to do without the span
    full_from: Until | None = 0.9  # from here on, a share, no token is dropped

    name: ClassVar[str] = "sprint"
    touches: ClassVar[tuple[str, ...]] = ("model.route", "data.stages")
    card: ClassVar[Card] = Card(
        says="few tokens in the middle blocks, joined with all by a learned linear; pays when there are many tokens",
        claims=(
            Claim(
                metric="fid",
                change=-0.52,
                scope="1024 px pixels, 1,024 tokens, 100k steps",
                source="PRX Part 2",
                note=f"1.33 to 1.89 batches/s; {LATER}",
                carries=False,
            ),
            Claim(
                metric="fid",
                change=+4.36,
                scope="256 px latents, 256 tokens, 100k steps",
                source="PRX Part 2",
                note=f"3.95 to 4.20 batches/s; {LATER}",
                carries=False,
            ),
            Claim(
                metric="cmmd",
                change=-0.20,
                scope="1024 px pixels, 1,024 tokens, 100k steps",
                source="PRX Part 2",
                carries=False,
            ),
            Claim(
                metric="cmmd",
                change=+0.31,
                scope="256 px latents, 256 tokens, 100k steps",
                source="PRX Part 2",
                carries=False,
            ),
        ),
        warns="published at 75 % dropped beside TREAD at 50 %: the two were never compared at one budget. "
        "The model keeps the joining linear and cannot be exported to diffusers",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        run = put(run, "model.route", DropAndFuse(start=self.start, end=self.end, drop=self.drop, path_drop=self.path_drop))
        if self.full_from is None or self.full_from == 1:
            return run
        return during(run, self.full_from, 1.0, "model.route.drop", 0.0)

    def needs(self, run: RunSpec) -> str | None:
        return routing.problem(run, self.drop)

    def cost(self, run: RunSpec) -> Cost:
        dense = routing.unrouted(run)
        return price.of_denoiser(dense, self.edit(dense))

    def witness(self, built: Any) -> bool:
        """The built model joins two paths, and the first step keeps a part of the tokens."""
        keep = built.feed.at(0)[1].keep
        return bool(built.step.backbone.route.fuses) and keep is not None and keep.shape[1] < built.run.tokens
