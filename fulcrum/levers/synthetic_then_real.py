"""Synthetic, then real: clean pictures teach composition first, real ones texture afterwards."""

from fulcrum.data.fillers import Folder, World
from fulcrum.levers.base import Built, Card, Lever
from fulcrum.levers.shared.stage_rate import StageRate, at_own_rate, rate_since
from fulcrum.spec.edit import during
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec


class SyntheticThenReal(Lever):
    until: Fraction = 0.5  # share of the budget on synthetic pictures
    synthetic: str | None = None  # your own synthetic pictures, a folder that was imported; none: the world's
    rate: StageRate | None = 1.0  # of the real part, a share of the run's own; none: the run's schedule goes on

    name = "synthetic_then_real"
    touches = ("data.stages",)
    card = Card(
        says="the first part of the budget on the clean domain of the same scenes, or on a folder of synthetic pictures, "
        "and the run's own pictures afterwards (published in words, at a constant rate: synthetic, real, then a curated "
        "set; the one number, for all real against all synthetic, stands on the card of that decision). The real part has "
        "the run's peak rate, warmed up again and, where the recipe decays, decayed within that part",
        warns="on a recipe that decays it learns more in all than the baseline; rate=none keeps the schedule, and the real "
        "part then has what the decay leaves",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        if self.synthetic is not None:
            run = during(run, 0.0, self.until, "data.source", Folder(path=self.synthetic))
        elif isinstance(run.data.source, World):
            run = during(run, 0.0, self.until, "data.source.domain", "synthetic")
        else:
            return run  # `needs` says what is missing
        return at_own_rate(run, self.until, self.rate)

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if self.synthetic is not None:
            own = Folder(path=self.synthetic)
            same = isinstance(source, Folder) and own.hashes() == source.hashes()
            return "its synthetic pictures are the run's own" if same else None
        if not isinstance(source, World):
            return f"{source} has no synthetic domain: name your own, synthetic_then_real(synthetic='FOLDER')"
        return None if source.domain == "real" else "the run's own data is synthetic already"

    def in_run(self, run: RunSpec) -> str:
        return rate_since(run, self.until)

    def witness(self, built: Built) -> bool:
        first, last = (built.feed.source_at(at) for at in (0, built.run.budget.images - 1))
        if self.synthetic is not None:
            return bool(first.fingerprint() != last.fingerprint())
        return [getattr(getattr(source, "inner", source), "domain", "") for source in (first, last)] == [
            "synthetic",
            "real",
        ]
