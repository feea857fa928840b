"""Synthetic, then real: clean pictures teach composition first, real ones texture afterwards."""

from typing import Any, ClassVar

from fulcrum.data.fillers import World
from fulcrum.levers.base import Card, Claim, Lever
from fulcrum.spec.edit import during
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec


class SyntheticThenReal(Lever):
    until: Fraction = 0.5                                    # share of the budget on synthetic pictures

    name: ClassVar[str] = "synthetic_then_real"
    touches: ClassVar[tuple[str, ...]] = ("data.stages",)
    card: ClassVar[Card] = Card(
        says="the first part of the budget on the clean domain of the same scenes",
        claims=(Claim(metric="fid", change=-1.6, scope="real instead of synthetic images, 256 px, 1.2 B, 100k steps",
                      source="PRX Part 2", carries=False,
                      note="measured for all real against all synthetic: the order of both was published without a number; "
                           "CMMD and DINO-MMD were worse with real images"),))

    def edit(self, run: RunSpec) -> RunSpec:
        if not isinstance(run.data.source, World):
            return run                                       # `needs` says what is missing
        return during(run, 0.0, self.until, "data.source.domain", "synthetic")

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if not isinstance(source, World):
            return f"the data source has no synthetic and real domain: {source}"
        if any(stage.path == "data.source" and stage.start < self.until for stage in run.data.stages):
            return f"another stage replaces the data before {self.until:g} of the budget"
        return None if source.domain == "real" else "the run's own data is synthetic already"

    def witness(self, built: Any) -> bool:
        first, last = (built.feed.source_at(at) for at in (0, built.run.budget.images - 1))
        return [getattr(source, "inner", source).domain for source in (first, last)] == ["synthetic", "real"]
