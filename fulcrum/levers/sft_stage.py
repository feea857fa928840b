"""SFT stage: the last part of the budget on a small curated set."""

from fulcrum.data.fillers import World
from fulcrum.levers.base import Built, Card, Lever
from fulcrum.levers.shared.stage_rate import StageRate, at_own_rate, rate_since
from fulcrum.spec.edit import during
from fulcrum.spec.record import Count, Fraction
from fulcrum.spec.run import RunSpec


class SFTStage(Lever):
    start: Fraction = 0.9  # share of the budget after which the curated set is used
    count: Count = 512  # curated pictures
    rate: StageRate | None = 1.0  # of that stage, a share of the run's own; none: the run's schedule goes on

    name = "sft_stage"
    touches = ("data.stages",)
    card = Card(
        says="a short last stage on few curated pictures: one or two objects, none small, well apart, no stripes behind, "
        "the cleanest of eight photographs (published: 3,350 pairs for 20k steps; no number was given)",
        warns="curated pictures are narrower than the reference: distances to it may grow while single pictures get better",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source = run.data.source
        if not isinstance(source, World):
            return run  # `needs` says what is missing
        curated = World(split="curated", domain="real", count=self.count, max_objects=source.max_objects)
        return at_own_rate(during(run, self.start, 1.0, "data.source", curated), self.start, self.rate)

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        return None if isinstance(source, World) else f"the data source has no curated set: {source}"

    def in_run(self, run: RunSpec) -> str:
        return rate_since(run, self.start)

    def witness(self, built: Built) -> bool:
        source = built.feed.source_at(built.run.budget.images - 1)
        return bool(source.split == "curated" and len(source) == self.count)
