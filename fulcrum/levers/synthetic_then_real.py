"""Synthetic, then real: clean pictures teach composition first, real ones texture afterwards."""

from fulcrum.data.fillers import World
from fulcrum.levers.base import Built, Card, Lever
from fulcrum.levers.shared.stage_rate import StageRate, at_own_rate, rate_since
from fulcrum.spec.edit import during
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec


class SyntheticThenReal(Lever):
    until: Fraction = 0.5  # share of the budget on synthetic pictures
    rate: StageRate | None = 1.0  # of the real part, a share of the run's own; none: the run's schedule goes on

    name = "synthetic_then_real"
    touches = ("data.stages",)
    card = Card(
        says="the first part of the budget on the clean domain of the same scenes (published in words: synthetic, real, "
        "then a curated set; the one number, for all real against all synthetic, stands on the card of that decision)"
    )

    def edit(self, run: RunSpec) -> RunSpec:
        if not isinstance(run.data.source, World):
            return run  # `needs` says what is missing
        run = during(run, 0.0, self.until, "data.source.domain", "synthetic")
        return at_own_rate(run, self.until, self.rate)

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if not isinstance(source, World):
            return f"the data source has no synthetic and real domain: {source}"
        return None if source.domain == "real" else "the run's own data is synthetic already"

    def in_run(self, run: RunSpec) -> str:
        return rate_since(run, self.until)

    def witness(self, built: Built) -> bool:
        first, last = (built.feed.source_at(at) for at in (0, built.run.budget.images - 1))
        return [getattr(source, "inner", source).domain for source in (first, last)] == ["synthetic", "real"]
