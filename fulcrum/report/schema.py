"""What a study hands to the report: frozen records, the one contract between `study` and `report`."""

from collections import Counter
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fulcrum.report.arm_result import ArmResult
from fulcrum.report.finding import (
    Effect,
    FractionFacts,
    Front,
    Interaction,
    Noise,
    Probes,
    RateSearch,
    Reading,
    ScaleFacts,
    Target,
    Trend,
)
from fulcrum.spec.record import Frozen
from fulcrum.spec.remark import Remark

# A picture is part of the page, never a link: anything but an inline PNG would be a request to somewhere.
Picture = Annotated[str, Field(pattern=r"^data:image/png;base64,[A-Za-z0-9+/]+={0,2}$")]


class PlanFacts(Frozen):
    hash: str
    baseline: str
    primary_metric: str
    seeds: tuple[int, ...]
    images: int
    smallest_effect: float
    alpha: float
    threads_per_cell: int
    guidance: float
    learning_rate_policy: str
    sample_count: int
    settings: tuple[str, ...] = ()  # path=value, the same for every arm
    data: str = ""  # what the baseline trains on, and what reads its captions, in words
    text: str = ""
    looks: tuple[int, ...] = ()  # pairs at which a sequential plan decides; empty: once, at the end
    spending: tuple[float, ...] = ()  # share of alpha that may be spent by each look


class Provenance(Frozen):
    version: str
    date: str
    command: str
    machine: str
    seconds: Reading = None


class ShownMetric(Frozen):
    name: str
    label: str
    unit: str
    better: Literal["lower", "higher"]
    explain: str
    card: dict[str, Any]
    floors: dict[str, Reading] = {}  # what pictures that show nothing get: noise, grey, another scene's picture
    ceiling: Reading = None  # what real pictures get
    agreement: str = ""  # how far a second judge agrees with the first, in words; empty: there is none
    codes: tuple[Remark, ...] = ()  # of the agreement


class GridArm(Frozen):
    arm: str
    seed: int
    images: tuple[Picture, ...]


class Grids(Frozen):
    prompts: tuple[str, ...]
    arms: tuple[GridArm, ...]
    reference: tuple[Picture, ...] | None = None


class CellCounts(Frozen):
    done: int
    total: int
    failed: int = 0  # of the total: cells whose training came to nothing
    seconds_left: Reading = None


class StudyResult(Frozen):
    title: str
    state: Literal["running", "stopped", "finished"]
    plan: PlanFacts
    made: Provenance
    metrics: tuple[ShownMetric, ...]
    arms: Annotated[tuple[ArmResult, ...], Field(min_length=1)]  # the first is the baseline
    effects: tuple[Effect, ...] = ()
    noise: tuple[Noise, ...] = ()
    detectable: dict[str, Reading] = {}
    grids: Grids | None = None
    remarks: tuple[str, ...] = ()
    codes: tuple[Remark, ...] | None = None  # of the remarks; None: the result was written before there were codes
    interactions: tuple[Interaction, ...] = ()
    scales: tuple[ScaleFacts, ...] = ()
    trends: tuple[Trend, ...] = ()
    time_to_target: tuple[Target, ...] = ()
    sweeps: tuple[RateSearch, ...] = ()
    pareto: tuple[Front, ...] = ()  # empty: the page draws its own from means and costs
    probes: Probes | None = None
    progress: CellCounts
    fraction: FractionFacts | None = None  # then the arms are the baseline and the levers, each with its mean effect
    combinations: tuple[ArmResult, ...] = ()  # of a fraction: what was trained beside the baseline

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        """Every name used was introduced; a misspelt one would silently vanish from the page."""
        arms, metrics = [arm.name for arm in self.arms], [metric.name for metric in self.metrics]
        for kind, names in (("arm", arms), ("metric", metrics)):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise ValueError(f"expected every {kind} once, found {twice} more than once: give each its own name")
        trained = [*arms, *(arm.name for arm in self.combinations)]
        compared, roots = [arm.name for arm in self.compared], [arm.root for arm in self.compared]
        scales = [scale.name for scale in self.scales]
        claims = [claim.seen for arm in self.arms for claim in arm.claims if claim.seen]
        for place, kind, known, used in (
            ("plan.primary_metric", "metric", metrics, [self.plan.primary_metric]),
            ("arms.against", "arm", arms, [arm.against for arm in self.arms if arm.against]),
            ("arms.scale", "scale", scales, [arm.scale for arm in self.arms if arm.scale]),
            ("effects", "compared arm", compared, [effect.arm for effect in self.effects]),
            ("effects", "metric", metrics, [effect.metric for effect in self.effects]),
            ("claims", "metric", metrics, claims),
            ("noise", "metric", metrics, [row.metric for row in self.noise]),
            ("detectable", "metric", metrics, list(self.detectable)),
            ("grids.arms", "arm", trained, [row.arm for row in self.grids.arms] if self.grids else []),
            ("interactions", "arm", roots, [name for row in self.interactions for name in (row.a, row.b)]),
            ("interactions", "metric", metrics, [row.metric for row in self.interactions]),
            ("trends", "arm", roots, [row.arm for row in self.trends]),
            ("trends", "metric", metrics, [row.metric for row in self.trends]),
            ("time_to_target", "arm", compared, [row.arm for row in self.time_to_target]),
            ("time_to_target", "metric", metrics, [row.metric for row in self.time_to_target]),
            ("sweeps", "arm", trained, [row.arm for row in self.sweeps]),
            ("pareto", "arm", arms, [point.arm for front in self.pareto for point in front.points]),
            ("pareto", "metric", metrics, [front.metric for front in self.pareto]),
        ):
            strange = sorted(set(used) - set(known))
            if strange:
                raise ValueError(f"{place}: expected a {kind} out of {known}, found {strange}: list it, or mend the name")
        return self

    @property
    def baseline(self) -> ArmResult:
        return self.arms[0]

    @cached_property
    def compared(self) -> tuple[ArmResult, ...]:
        """All arms but the baselines; every scale has a baseline of its own, which is held against itself. An arm that
        others are held against is compared itself as well."""
        return tuple(arm for arm in self.arms[1:] if arm.against != arm.name)

    @property
    def trained(self) -> tuple[ArmResult, ...]:
        """What has cells: all arms, or of a fraction the baseline and the combinations."""
        return self.arms if self.fraction is None else (self.arms[0], *self.combinations)

    @cached_property
    def decisions(self) -> tuple[str, ...]:
        """Names of what is compared, once for all scales, in the order of the plan."""
        return tuple(dict.fromkeys(arm.root for arm in self.compared))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {arm.name: place for place, arm in enumerate(self.arms)}

    @cached_property
    def _bases(self) -> frozenset[str]:
        return frozenset(self._places) - {arm.name for arm in self.compared}

    def place_of(self, arm: ArmResult) -> int:
        """Where an arm stands in the plan; the first is the baseline."""
        return self._places[arm.name]

    def is_base(self, arm: ArmResult) -> bool:
        return arm.name in self._bases

    def base_of(self, arm: ArmResult) -> ArmResult:
        """What an arm is compared with; a baseline is its own."""
        return self.arms[self._places[arm.against or self.arms[0].name]]

    @property
    def primary(self) -> ShownMetric:
        return self.metric(self.plan.primary_metric)

    def metric(self, name: str) -> ShownMetric:
        return next(metric for metric in self.metrics if metric.name == name)

    @cached_property
    def with_curves(self) -> frozenset[str]:
        """Metrics that were read during training too."""
        return frozenset(name for arm in self.arms for cell in arm.cells for point in cell.curve for name in point.values)

    @cached_property
    def _effects(self) -> dict[str, dict[str, list[Effect]]]:
        by_arm: dict[str, dict[str, list[Effect]]] = {}
        for row in self.effects:
            by_arm.setdefault(row.arm, {}).setdefault(row.metric, []).append(row)
        return by_arm

    def effects_of(self, arm: ArmResult) -> list[Effect]:
        """Every comparison that was made for an arm, metric by metric."""
        return [row for rows in self._effects.get(arm.name, {}).values() for row in rows]

    def effect(self, arm: str, metric: str) -> Effect | None:
        """The headline comparison of an arm: at equal images if there is one, else the first that was made."""
        rows = self._effects.get(arm, {}).get(metric, [])
        return next((row for row in rows if row.unit in ("images", "steps")), rows[0] if rows else None)

    @cached_property
    def ranked(self) -> tuple[ArmResult, ...]:
        """All arms, best first on the primary metric, the baseline at zero; arms without an answer come last.

        A study of several scales ranks each by itself, one after the other.
        """
        sign, scales = 1.0 if self.primary.better == "higher" else -1.0, [scale.name for scale in self.scales]

        def place(arm: ArmResult) -> tuple[int, bool, float]:
            scale = scales.index(arm.scale) if arm.scale else len(scales)
            if self.is_base(arm):
                return scale, False, 0.0
            effect = self.effect(arm.name, self.primary.name)
            return (scale, True, 0.0) if effect is None or effect.mean is None else (scale, False, -sign * effect.mean)

        return tuple(sorted(self.arms, key=place))

    @cached_property
    def best_first(self) -> tuple[ArmResult, ...]:
        """What is compared, as it is ranked."""
        return tuple(arm for arm in self.ranked if not self.is_base(arm))

    @cached_property
    def marks(self) -> dict[str, str]:
        """Arm -> its number in the ranking of its scale; a baseline is B."""
        marks, last = {name: "B" for name in self._bases}, dict[str, int]()
        marks |= {arm.name: f"c{place}" for place, arm in enumerate(self.combinations, 1)}
        for arm in self.best_first:
            last[arm.scale] = last.get(arm.scale, 0) + 1
            marks[arm.name] = str(last[arm.scale])
        return marks

    def __copy__(self) -> Self:
        """A copy may be given other fields: nothing that was worked out from these goes with it."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied
