"""SFT stage: the last part of the budget on a small curated set, at a rate of its own, told in several lengths."""

from typing import Literal

from fulcrum.data.fillers import Folder, World, varied_captions
from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.levers.shared import price
from fulcrum.levers.shared.stage_rate import StageRate, at_own_rate, rate_since
from fulcrum.spec.edit import during
from fulcrum.spec.record import Count, Fraction
from fulcrum.spec.run import RunSpec
from fulcrum.spec.slots import SourceFiller

WORLDS = 512  # curated pictures of the embedded world, unless told


class SFTStage(Lever):
    start: Fraction = 0.9  # share of the budget after which the curated set is used
    source: str | None = None  # your own curated pictures, a folder that was imported; none: the world's
    count: Count | None = None  # curated pictures; none: 512 of the world, all of a folder
    captions: Literal["varied", "kept"] = "varied"  # of the stage: of all lengths there are, or those of the run
    rate: StageRate | None = 1.0  # of that stage, a share of the run's own; none: the run's schedule goes on

    name = "sft_stage"
    touches = ("data.stages",)
    card = Card(
        says="a short last stage on few curated pictures with captions of several lengths (published in words: 3,350 pairs "
        "for 20,000 steps after a run at a constant rate; no number was given). Of the world: one or two objects, none "
        "small, well apart, no stripes behind, the cleanest of eight photographs. The stage has the run's peak rate, "
        "warmed up again and, where the recipe decays, decayed within the stage",
        warns="pictures, caption lengths and rate change together, as published: rate=none and captions=kept change "
        "the pictures alone, and a recipe whose rate decays then leaves them next to nothing to teach. Curated pictures "
        "are narrower than the reference: distances to it may grow while single pictures get better",
    )

    def _curated(self, source: SourceFiller) -> World | Folder | None:
        if self.source is not None:
            return Folder(path=self.source, count=self.count)
        if not isinstance(source, World):
            return None
        return World(split="curated", domain="real", count=self.count or WORLDS, max_objects=source.max_objects)

    def edit(self, run: RunSpec) -> RunSpec:
        curated = self._curated(run.data.source)
        if curated is None:
            return run  # `needs` says what is missing
        run = during(run, self.start, 1.0, "data.source", curated)
        mixed = varied_captions(curated) if self.captions == "varied" else None
        run = run if mixed is None else during(run, self.start, 1.0, "data.caption", mixed)
        return at_own_rate(run, self.start, self.rate)

    def needs(self, run: RunSpec) -> str | None:
        curated = self._curated(run.data.source)
        if curated is None:
            return f"{run.data.source} has no curated set: name your own, sft_stage(source='FOLDER')"
        if self.captions == "varied" and varied_captions(curated) is None:
            return f"the curated pictures are captioned in one length, {curated}: write captions=kept"
        return None

    def cost(self, run: RunSpec) -> Cost:
        """Shorter captions are read in the stage."""
        mixed = (
            varied_captions(run.data.source) if isinstance(run.data.source, World) and self.captions == "varied" else None
        )
        ratio = price.of_captions(run, mixed).flops if mixed else 1.0
        return Cost(flops=1 + (1 - self.start) * (ratio - 1))

    def in_run(self, run: RunSpec) -> str:
        return rate_since(run, self.start)

    def witness(self, built: Built) -> bool:
        """The last phase is on this curated set, and captions vary there."""
        last, wanted = built.phases[-1].run.data, self._curated(built.run.data.source)
        if wanted is None or last.source != wanted:
            return False
        read = len(built.feed.source_at(built.run.budget.images - 1))
        return read <= (wanted.count or read) and (self.captions == "kept" or last.caption == varied_captions(wanted))
