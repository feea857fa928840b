"""SFT stage: the last part of the budget on a small curated set."""

from typing import Any, ClassVar

from fulcrum.data.fillers import World
from fulcrum.levers.base import Card, Lever
from fulcrum.spec.edit import during
from fulcrum.spec.record import Count, Fraction
from fulcrum.spec.run import RunSpec


class SFTStage(Lever):
    start: Fraction = 0.9                                    # share of the budget after which the curated set is used
    count: Count = 512                                       # curated pictures

    name: ClassVar[str] = "sft_stage"
    touches: ClassVar[tuple[str, ...]] = ("data.stages",)
    card: ClassVar[Card] = Card(says="a short last stage on few, clean, curated pictures "
                                     "(published: 3,350 pairs for 20k steps; no number was given)")

    def edit(self, run: RunSpec) -> RunSpec:
        curated = World(split="curated", domain="real", count=self.count)
        return during(run, self.start, 1.0, "data.source", curated)

    def witness(self, built: Any) -> bool:
        return bool(built.phases[-1].run.data.source.split == "curated")
