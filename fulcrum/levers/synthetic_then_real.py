"""Synthetic, then real: clean pictures teach composition first, real ones texture afterwards."""

from typing import Any, ClassVar

from fulcrum.data.fillers import World
from fulcrum.levers.base import Card, Claim, Lever
from fulcrum.spec.edit import during, get
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec


class SyntheticThenReal(Lever):
    until: Fraction = 0.5                                    # share of the budget on synthetic pictures

    name: ClassVar[str] = "synthetic_then_real"
    touches: ClassVar[tuple[str, ...]] = ("data.stages",)
    card: ClassVar[Card] = Card(
        says="the first part of the budget on the clean domain of the same scenes",
        claims=(Claim(metric="fid", change=-1.6, scope="real instead of synthetic images, 256 px, 1.2 B, 100k steps",
                      source="PRX Part 2", note="CMMD and DINO-MMD were worse with real images"),))

    def edit(self, run: RunSpec) -> RunSpec:
        source: World = get(run, "data.source")
        return during(run, 0.0, self.until, "data.source", source.model_copy(update={"domain": "synthetic"}))

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if not isinstance(source, World):
            return "the data source has no synthetic domain"
        return None if source.domain == "real" else "the run's own data is synthetic already"

    def witness(self, built: Any) -> bool:
        domains = [phase.run.data.source.domain for phase in built.phases]
        return bool(domains[0] == "synthetic" and domains[-1] == "real")
