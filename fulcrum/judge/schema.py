"""The records of a study's result: arms, findings, numbers and their certainty."""

import json
import math
from collections import Counter
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from fulcrum.judge.claims import Claim
from fulcrum.spec.record import Change, Frozen
from fulcrum.spec.remark import Remark

# --------------------------------------------------------------------------------------------------
# Numbers as people read them: as many digits as the uncertainty deserves, a true minus sign.


MINUS, NONE = "\u2212", "\u2013"


def decimals(scale: float) -> int:
    """Decimals that fit an uncertainty of `scale`: two digits of it if it begins with 1 or 2, else
    one."""
    if scale == 0 or not math.isfinite(scale):
        return 3
    power = math.floor(math.log10(abs(scale)))
    return min(8, max(0, (1 if abs(scale) < 3 * 10.0**power else 0) - power))


def plain(value: float | None, places: int | None = None) -> str:
    """With as many decimals as asked for, or else three significant digits without idle zeros."""
    if value is None:
        return NONE
    if places is None:
        decimals = min(8, max(0, 2 - math.floor(math.log10(abs(value))))) if value else 0
        text = f"{abs(value):,.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{abs(value):,.{places}f}"
    return (MINUS if value < 0 and float(text.replace(",", "")) else "") + text


def signed(value: float | None, places: int) -> str:
    text = plain(value, places)
    return text if value is None or value <= 0 or text.startswith(MINUS) else "+" + text


def change(mean: float | None, low: float | None, high: float | None) -> str:
    """'−0.21 [−0.25, −0.17]'; without an interval the mean alone. An end that is not zero does not
    read as zero where the interval has a sign."""
    if mean is None:
        return NONE
    if low is None or high is None:
        return ("+" if mean > 0 else "") + plain(mean)
    places = decimals((high - low) / 2)
    nearest = min(abs(low), abs(high)) if low * high > 0 else 0.0
    while nearest and places < 8 and not round(nearest, places):
        places += 1
    return f"{signed(mean, places)} [{signed(low, places)}, {signed(high, places)}]"


def spread(mean: float | None, sd: float | None) -> str:
    if mean is None:
        return NONE
    return plain(mean) if not sd else f"{plain(mean, decimals(sd))} ± {plain(sd, decimals(sd))}"


def probability(value: float | None) -> str:
    if value is None:
        return NONE
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def short(value: float) -> str:
    """An axis tick: 20k, 1.5M, 3e15."""
    size = abs(value)
    if size >= 1e12 or 0 < size < 1e-4:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}".replace("-", MINUS)
    for unit, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.6g}{mark}".replace("-", MINUS)
    return f"{value:.6g}".replace("-", MINUS)


def literal(value: Any) -> str:
    """A setting's value as it stands in the spec."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def changed_settings(arm: "ArmResult") -> list[tuple[str, str, str]]:
    """Path, former and present value of every setting in which an arm differs from its baseline."""
    return [(one.path, literal(one.before), literal(one.after)) for one in arm.diff]


def card_rows(metric: "ShownMetric") -> list[tuple[str, str]]:
    """Name and value of the facts of a metric's card."""
    shown = {name: fact for name, fact in metric.card.items() if name not in ("floors", "ceiling")}
    return [(name, literal(fact)) for name, fact in shown.items()]


# --------------------------------------------------------------------------------------------------
# What a study finds: one record for each kind of finding, filled by the statistics and shown by the
# page as it is.


# what a trend is told per, where the plan names no other axis
DOUBLED = "doubling of the training FLOPs"
LARGEST = 1e100  # no measurement is beyond it, and the page adds and squares what it shows


def _finite(value: Any) -> Any:
    """NaN and infinity have no JSON form: a reading that diverged is a missing one, and so is one
    beyond all measure."""
    return (
        None
        if isinstance(value, float) and not (math.isfinite(value) and abs(value) <= LARGEST)
        else value
    )


Reading = Annotated[float | None, BeforeValidator(_finite)]


class Effect(Frozen):
    """The paired difference arm minus baseline, in the metric's own sign; `unit` says what was held
    equal."""

    arm: str
    metric: str
    unit: str
    n: int
    mean: Reading
    low: Reading
    high: Reading
    correlation: Reading
    p_adjusted: Reading
    verdict: str
    claim_verdict: str | None
    note: str = ""  # such as: stopped early, counted as censored
    #: a true difference of this size would be seen in four studies of five
    detectable: Reading = None
    #: the mean without the flattery of having been picked out: what a headline says
    shrunk: Reading = None
    #: the interval that a tie is asked of: at level alpha an equivalence test takes 1 - 2 alpha
    tie_low: Reading = None
    tie_high: Reading = None
    margin: Reading = None  # smallest effect of interest on this metric
    planned: int = 0  # pairs that the plan asks for
    failed: int = 0  # of them: pairs of which the arm's own side failed
    unlike: int = 0  # of the n: pairs whose two sides ran on unlike machines
    exploratory: bool = False  # not what the plan set out to decide: read it, but it has no badge
    warnings: tuple[str, ...] = ()  # such as: 5 of 6 seeds agree, one is 13 margins off
    codes: tuple[Remark, ...] = ()  # of the parts of the note and of the warnings

    def noted(self, *remarks: Remark | None) -> Self:
        """The effect with more parts of its note; None adds nothing."""
        found = [one for one in remarks if one is not None]
        note = "; ".join(filter(None, (self.note, *(one.text for one in found))))
        return self.model_copy(update={"note": note, "codes": (*self.codes, *found)})

    def warned(self, *remarks: Remark) -> Self:
        """The effect with more warnings."""
        warnings = (*self.warnings, *(one.text for one in remarks))
        return self.model_copy(update={"warnings": warnings, "codes": (*self.codes, *remarks)})

    def without_note(self) -> Self:
        codes = tuple(one for one in self.codes if one.text in self.warnings)
        return self.model_copy(update={"note": "", "codes": codes})


class Noise(Frozen):
    """How far repeated baselines scatter."""

    metric: str
    mean: Reading
    sd: Reading
    cv: Reading  # sd / |mean|; None where the mean is zero
    n: int


class Interaction(Frozen):
    """What two levers do together beyond the sum of what each does alone: (ab - base) - (a - base)
    - (b - base)."""

    a: str
    b: str
    metric: str
    n: int
    mean: Reading
    low: Reading
    high: Reading
    unit: str = "images"
    p_adjusted: Reading = None
    verdict: str = ""  # adds up, better together, worse together, inconclusive, exploratory


class AliasString(Frozen):
    """Pairs of levers that a fractional design cannot tell apart, and what they do together beyond
    their sums."""

    pairs: tuple[tuple[str, str], ...]
    metric: str
    n: int
    mean: Reading
    low: Reading
    high: Reading
    p_adjusted: Reading = None


class FractionFacts(Frozen):
    """Many levers in few combinations: which were on in which, and what cannot be told apart."""

    levers: tuple[str, ...]
    on: tuple[tuple[bool, ...], ...]  # combination by combination, the baseline first
    rule: str  # how few or many seeds decide, in words
    aliased: str  # what stands together with what, in words
    strings: tuple[AliasString, ...] = ()  # of pairs that were not chosen, on the primary metric
    by_seed: dict[str, dict[int, float]] = {}  # lever -> seed -> its effect on the primary metric
    codes: tuple[Remark, ...] = ()  # of the rule


class ScaleFacts(Frozen):
    """One size at which the same arms were compared; arms name it in `scale`."""

    name: str
    at: Reading  # place on the trend's axis
    settings: tuple[str, ...] = ()
    tokens: int | None = None
    parameters: int | None = None
    flops: Reading = None  # of the baseline's whole training


class Trend(Frozen):
    """How a lever's effect moves with scale; `arm` is the name without a scale."""

    arm: str
    metric: str
    slope: Reading  # change of the effect per `axis`
    low: Reading
    high: Reading
    n: int
    axis: str = DOUBLED
    unit: str = "images"
    #: grows, fades, crossing (it changes its sign), holds, inconclusive, exploratory
    verdict: str = ""


class Target(Frozen):
    """What an arm needs to reach the baseline's final value, as a share of what the baseline
    needs."""

    arm: str
    metric: str
    target: Reading
    unit: str  # images, time, flops
    n: int  # pairs
    reached: int  # of them
    ratio: Reading = None  # arm's over baseline's; below one is sooner
    low: Reading = None
    high: Reading = None


class Try(Frozen):
    rate: float
    seed: int
    value: Reading  # None where the training diverged


class RateSearch(Frozen):
    """The search for an arm's learning rate."""

    arm: str
    metric: str  # what chose; need not be one of the study's metrics
    better: Literal["lower", "higher"] = "lower"
    tries: tuple[Try, ...]
    chosen: float
    images: int = 0  # spent on the search
    note: str = ""  # such as: the best lies at the edge
    codes: tuple[Remark, ...] = ()  # of the note


class FrontPoint(Frozen):
    arm: str
    cost: Reading
    mean: Reading
    low: Reading = None
    high: Reading = None
    front: bool = False


class Front(Frozen):
    """Quality against cost; `front`: no other arm is better and cheaper."""

    metric: str
    cost: Literal["time_ratio", "flops_ratio", "memory_ratio", "parameters_ratio"]
    points: tuple[FrontPoint, ...]


class ProbeCell(Frozen):
    """What one known fault did to one metric."""

    probe: str
    metric: str
    declared: Literal["worse", "better", "stays", "depends"] | None = None
    found: Literal["worse", "better", "stays"]
    value: Reading = None
    low: Reading = None
    high: Reading = None


class ProbeFair(Frozen):
    """A metric's value on the pictures as they are, without any fault."""

    metric: str
    better: Literal["lower", "higher"]
    value: Reading
    low: Reading = None
    high: Reading = None


class Probes(Frozen):
    """Which metric sees which fault: the measurement room's table as it dumps it."""

    n: int
    pictures: str
    probes: dict[str, str]  # name -> what was done to the pictures
    fair: tuple[ProbeFair, ...]
    cells: tuple[ProbeCell, ...]
    extractors: tuple[dict[str, Any], ...] = ()


# --------------------------------------------------------------------------------------------------
# An arm as a study hands it to the report: what it changes, what it costs, what is claimed of it,
# what its cells found.


CellState = Literal["waiting", "running", "done", "failed", "stopped"]


class ArmCost(Frozen):
    """Each ratio is the arm's over the baseline's of its scale, whatever it is compared with; below
    one is cheaper."""

    flops_ratio: Reading = None
    time_ratio: Reading = None
    memory_ratio: Reading = None
    parameters_ratio: Reading = None
    #: FLOPs of one seed: denoiser, terms, codec, text, teachers, evaluation
    parts: dict[str, float] = {}


class TimedCost(ArmCost):
    """An arm over the baseline of its scale: the report's record, all of it known."""

    flops_ratio: float
    time_ratio: float
    memory_ratio: float = 1.0
    parameters_ratio: float
    #: of one eager step on this machine, median
    step_seconds: float | None = Field(default=None, exclude=True)


class ClaimResult(Claim):
    """A lever's published claim, and how it fared in this study."""

    model_config = ConfigDict(strict=False)

    #: this and the next are of the lever's card only
    carries: bool = Field(default=True, exclude=True)
    settings: dict[str, Any] = Field(default={}, exclude=True)
    also: str = Field(default="", exclude=True)
    recipe: str = Field(default="", exclude=True)
    #: replicated, opposite here, contradicted, underpowered, out of scope, not comparable
    verdict: str | None = None
    seen: str = ""  # name of our metric that stands for the claim's; empty: none does
    #: the verdict's reason: what is not comparable, or what stood for the published setting
    why: str = ""
    codes: tuple[Remark, ...] = ()  # of the reason


class CurvePoint(Frozen):
    images: int
    seconds: Reading = None
    flops: Reading = None
    values: dict[str, Reading]


class LossPoint(Frozen):
    images: int
    loss: Reading


class CellResult(Frozen):
    seed: int
    key: str
    state: CellState
    images: int
    budget: int | None = None  # images it is to see; none: the plan's
    final: dict[str, Reading] = {}
    curve: tuple[CurvePoint, ...] = ()
    loss: tuple[LossPoint, ...] = ()
    failure: str = ""  # why a cell failed: an outcome, not a missing value
    machine: str = ""  # processor and versions that it ran with; empty: not known


class ArmResult(Frozen):
    name: str
    phrase: str
    says: str
    label: str
    compound: bool = False
    against: str = ""  # name of the arm it is compared with; empty: the first arm
    scale: str = ""  # name of the scale it ran at; empty: the study has only one
    labels: tuple[str, ...] = ()  # what a reader must know before believing its effect
    codes: tuple[Remark, ...] = ()  # of the labels
    diff: tuple[Annotated[Change, PlainSerializer(Change._asdict)], ...] = ()
    cost: ArmCost = ArmCost()
    claims: tuple[ClaimResult, ...] = ()
    cells: tuple[CellResult, ...] = ()

    @property
    def root(self) -> str:
        """The arm's name without its scale: 'muon [small]' and 'muon [large]' are one decision."""
        return self.name.removesuffix(f" [{self.scale}]")

    def count(self, state: CellState) -> int:
        return sum(cell.state == state for cell in self.cells)

    def finals(self, metric: str) -> dict[int, float]:
        """Seed -> final value of one metric, finished cells only."""
        values = {cell.seed: cell.final.get(metric) for cell in self.cells if cell.state == "done"}
        return {seed: value for seed, value in values.items() if value is not None}


# --------------------------------------------------------------------------------------------------
# What a study hands to the report: frozen records, the one contract between `study` and `report`.


# A picture is part of the page, never a link: anything but an inline PNG would be a request to
# somewhere.
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
    #: what pictures that show nothing get: noise, grey, another scene's picture
    floors: dict[str, Reading] = {}
    ceiling: Reading = None  # what real pictures get
    #: how far a second judge agrees with the first, in words; empty: there is none
    agreement: str = ""
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
    #: of the remarks; None: the result was written before there were codes
    codes: tuple[Remark, ...] | None = None
    interactions: tuple[Interaction, ...] = ()
    scales: tuple[ScaleFacts, ...] = ()
    trends: tuple[Trend, ...] = ()
    time_to_target: tuple[Target, ...] = ()
    sweeps: tuple[RateSearch, ...] = ()
    pareto: tuple[Front, ...] = ()  # empty: the page draws its own from means and costs
    probes: Probes | None = None
    progress: CellCounts
    #: then the arms are the baseline and the levers, each with its mean effect
    fraction: FractionFacts | None = None
    combinations: tuple[ArmResult, ...] = ()  # of a fraction: what was trained beside the baseline

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        """Every name used was introduced; a misspelt one would silently vanish from the page."""
        arms, metrics = [arm.name for arm in self.arms], [metric.name for metric in self.metrics]
        for kind, names in (("arm", arms), ("metric", metrics)):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise ValueError(
                    f"expected every {kind} once, found {twice} more than once: give each its own"
                    " name"
                )
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
            (
                "grids.arms",
                "arm",
                trained,
                [row.arm for row in self.grids.arms] if self.grids else [],
            ),
            (
                "interactions",
                "arm",
                roots,
                [name for row in self.interactions for name in (row.a, row.b)],
            ),
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
                raise ValueError(
                    f"{place}: expected a {kind} out of {known}, found {strange}: list it, or mend"
                    " the name"
                )
        return self

    @property
    def baseline(self) -> ArmResult:
        return self.arms[0]

    @cached_property
    def compared(self) -> tuple[ArmResult, ...]:
        """All arms but the baselines; every scale has a baseline of its own, which is held against
        itself. An arm that others are held against is compared itself as well."""
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
        return frozenset(
            name
            for arm in self.arms
            for cell in arm.cells
            for point in cell.curve
            for name in point.values
        )

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
        """The headline comparison of an arm: at equal images if there is one, else the first that
        was made."""
        rows = self._effects.get(arm, {}).get(metric, [])
        return next(
            (row for row in rows if row.unit in ("images", "steps")), rows[0] if rows else None
        )

    @cached_property
    def ranked(self) -> tuple[ArmResult, ...]:
        """All arms, best first on the primary metric, the baseline at zero; arms without an answer
        come last.

        A study of several scales ranks each by itself, one after the other.
        """
        sign, scales = (
            1.0 if self.primary.better == "higher" else -1.0,
            [scale.name for scale in self.scales],
        )

        def place(arm: ArmResult) -> tuple[int, bool, float]:
            scale = scales.index(arm.scale) if arm.scale else len(scales)
            if self.is_base(arm):
                return scale, False, 0.0
            effect = self.effect(arm.name, self.primary.name)
            return (
                (scale, True, 0.0)
                if effect is None or effect.mean is None
                else (scale, False, -sign * effect.mean)
            )

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


# --------------------------------------------------------------------------------------------------
# How far a reader may trust a comparison: its level, its pairs, what failed, what scatters, what
# could have been seen.


# how notes on a look begin
LOOKED = ("decided at ", "stopped at ", "undecided at ", "undecided after ")


def question(result: StudyResult) -> str:
    """What the plan set out to decide, and what the rest is; empty where nothing is exploratory."""
    if not any(row.exploratory for row in result.effects):
        return ""
    joint = any(not row.exploratory and row.metric != result.primary.name for row in result.effects)
    asked = (
        "every metric, in one joint test over arms and metrics," if joint else "the primary metric"
    )
    return (
        f"The plan's question is {asked} at equal images; everything else is exploratory, for"
        " reading: where nothing is true, some of so many intervals still miss zero."
    )


def level(result: StudyResult) -> str:
    """'95 %': the one level of all intervals of a study, which is the plan's."""
    return f"{plain(round(100 * (1 - result.plan.alpha), 6))} %"


def tie_level(result: StudyResult) -> str:
    """'90 %': of the interval that a tie is asked of, as equivalence tests at the plan's level take
    it."""
    return f"{plain(round(100 * (1 - 2 * result.plan.alpha), 6))} %"


def pairs(effect: Effect) -> str:
    """'6 pairs'; '4 of 6 pairs' where the plan asks for more."""
    of = f" of {effect.planned}" if effect.n < effect.planned else ""
    return f"{effect.n}{of} pair" + ("" if effect.n == 1 and not of else "s")


def fewest(result: StudyResult) -> int:
    """The fewest pairs whose sign flips can give a p as small as the plan asks: the smallest of n
    pairs is 2 / 2^n. A plan that takes fewer seeds of a fraction is decided without sign flips."""
    if result.fraction is not None and len(result.plan.seeds) < math.ceil(
        1 - math.log2(result.plan.alpha)
    ):
        return 2
    return math.ceil(1 - math.log2(result.plan.alpha))


def too_few(result: StudyResult, effect: Effect) -> str:
    """'5 pairs cannot be decided (p ≥ 0.062): one more seed can'; empty where pairs are enough."""
    missing = fewest(result) - effect.n
    if effect.n < 1 or missing < 1:
        return ""
    more = "one more seed" if missing == 1 else f"{missing} more seeds"
    floor = probability(2.0 ** (1 - effect.n))
    pair = "1 pair" if effect.n == 1 else f"{effect.n} pairs"
    return f"{pair} cannot be decided (p ≥ {floor}): {more} can"


def failures(result: StudyResult, arm: ArmResult) -> str:
    """'2 of 6 seeds failed'; empty where none did."""
    # without seeds that it was spared
    failed, total = arm.count("failed"), len(arm.cells) - arm.count("stopped")
    effect = result.effect(arm.name, result.primary.name)
    if not failed and effect is not None:
        failed, total = effect.failed, max(effect.planned, effect.n + effect.failed)
    return f"{failed} of {total} seeds failed" if failed else ""


def survivors(result: StudyResult, arm: ArmResult) -> str:
    """What the seeds are that are left of an arm some of whose seeds failed."""
    failed, effect = failures(result, arm), result.effect(arm.name, result.primary.name)
    if not failed or effect is None or not effect.n:
        return ""
    left = "the one that is" if effect.n == 1 else f"the {effect.n} that are"
    return (
        f"{failed}; {left} compared survived, and survivors alone never make an arm better, nor a"
        " tie."
    )


def reasons(arm: ArmResult) -> list[tuple[str, str]]:
    """(which seeds, why they failed): ('2, 5', 'the loss was not finite')."""
    by: dict[str, list[int]] = {}
    for cell in arm.cells:
        if cell.state == "failed":
            by.setdefault(cell.failure or "no reason was recorded", []).append(cell.seed)
    return [(", ".join(map(str, seeds)), why) for why, seeds in by.items()]


def failed_cells(result: StudyResult) -> str:
    """'8 cells failed'"""
    failed = sum(arm.count("failed") for arm in result.arms)
    return f"{failed} cell{'' if failed == 1 else 's'} failed"


def look(effect: Effect) -> str:
    """Where a plan that decides at several looks ended an arm, as its judge noted it: 'decided at
    12 of 16 pairs'."""
    return next((part for part in notes(effect) if part.startswith(LOOKED)), "")


def seeds(result: StudyResult) -> str:
    """'6 paired seeds'; '8 to 16 paired seeds' where the plan adds them while an arm is
    undecided."""
    first = f"{result.plan.looks[0]} to " if result.plan.looks[1:] else ""
    return f"{first}{len(result.plan.seeds)} paired seeds"


def remarks(result: StudyResult, arm: ArmResult) -> list[str]:
    """What must stand beside a verdict, as short lines: what failed, how few pairs, what looks
    odd."""
    effect, base = result.effect(arm.name, result.primary.name), result.base_of(arm)
    lines = ["" if result.is_base(base) else f"compared with {base.label}", failures(result, arm)]
    if effect is not None and effect.n:
        missing = pairs(effect) if effect.n < effect.planned else ""
        lines.append(look(effect) or too_few(result, effect) or missing)
        lines += [*effect.warnings, unlike(effect)]
    return [line for line in lines if line]


def unlike(effect: Effect) -> str:
    """'2 of 6 pairs ran on unlike machines'"""
    return f"{effect.unlike} of {effect.n} pairs ran on unlike machines" if effect.unlike else ""


def notes(effect: Effect) -> list[str]:
    """What the statistics noted, without failed seeds and missing pairs, which every answer
    tells."""
    parts = [part for part in effect.note.split("; ") if part]
    return [
        part
        for part in parts
        if not part.endswith("seeds failed") and "pairs cannot reach" not in part
    ]


def trust(result: StudyResult, effect: Effect) -> list[str]:
    """How far a reader may trust one comparison, as short sentences."""
    sentences, few = [], too_few(result, effect)
    if few:  # of what is undecided, the answer says it
        sentences += [f"{few}."] if effect.verdict != "inconclusive" else []
    elif effect.p_adjusted is not None:
        beats = "below" if effect.p_adjusted <= result.plan.alpha else "not below"
        sentences.append(
            f"p {probability(effect.p_adjusted)} over the whole family of arms, {beats} the "
            f"planned {plain(result.plan.alpha)}."
        )
    lines = [*notes(effect), *effect.warnings, unlike(effect)]
    sentences += [line[0].upper() + line[1:] + "." for line in lines if line]
    if effect.correlation is not None:
        help_ = "pairing helped" if effect.correlation > 0.3 else "pairing helped little"
        help_ = "pairing did not help" if effect.correlation < -0.1 else help_
        sentences.append(
            f"Over seeds the two arms correlate at {plain(effect.correlation, 2)}: {help_}."
        )
    if effect.detectable is not None:
        sentences.append(
            f"With the scatter of these pairs, a true difference of {_rough(effect.detectable)}"
            " would be seen in four studies of five."
        )
    return sentences


def visible(result: StudyResult) -> str:
    """What differences on the primary metric this study can see, lever by lever; empty where that
    is not known."""
    if len(result.plan.seeds) < fewest(result):
        return (
            f"So few seeds cannot decide anything, whatever is found: {fewest(result)} are the"
            " fewest that can."
        )
    rows = [result.effect(arm.name, result.primary.name) for arm in result.compared]
    sizes = [row.detectable for row in rows if row is not None and row.detectable is not None]
    loudest = result.detectable.get(result.primary.name)
    if sizes:
        least, most = _rough(min(sizes)), _rough(max(sizes))
        size = (
            least
            if least == most
            else f"{least} to {most}, depending on how much a lever scatters over seeds,"
        )
        return f"A true difference of {size} would be seen in four studies of five."
    if loudest is None:
        return ""
    return (
        f"Of the lever that scatters most, a true difference of {_rough(loudest)} would be seen in"
        " four studies of five."
    )


def looks(result: StudyResult) -> str:
    """'Decides at 8, 12 and 16 pairs; 0.031, 0.041 and 0.05 of the error may be spent by then';
    empty: once, at the end."""
    plan = result.plan
    if not plan.looks:
        return ""
    at = (
        ", ".join(map(str, plan.looks[:-1])) + f" and {plan.looks[-1]}"
        if plan.looks[1:]
        else str(plan.looks[0])
    )
    spent = ", ".join(plain(share) for share in plan.spending)
    return f"decides at {at} pairs" + (
        f", having spent at most {spent} of the error by then" if spent else ""
    )


def machines(result: StudyResult) -> list[str]:
    """Every kind of machine that cells ran on, with how many did: 'AMD EPYC, torch 2.13.0 (12
    cells)'."""
    counts: dict[str, int] = {}
    for cell in (cell for arm in result.trained for cell in arm.cells if cell.machine):
        counts[cell.machine] = counts.get(cell.machine, 0) + 1
    return [
        f"{machine} ({count} cell{'s' if count > 1 else ''})" for machine, count in counts.items()
    ]


def _rough(size: float) -> str:
    return plain(size, decimals(size))
