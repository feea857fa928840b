"""What a study finds: one record for each kind of finding, filled by the statistics and shown by the page as it is."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator

from fulcrum.spec.record import Frozen
from fulcrum.spec.remark import Remark

DOUBLED = "doubling of the training FLOPs"  # what a trend is told per, where the plan names no other axis
LARGEST = 1e100  # no measurement is beyond it, and the page adds and squares what it shows


def _finite(value: Any) -> Any:
    """NaN and infinity have no JSON form: a reading that diverged is a missing one, and so is one beyond all measure."""
    return None if isinstance(value, float) and not (math.isfinite(value) and abs(value) <= LARGEST) else value


Reading = Annotated[float | None, BeforeValidator(_finite)]


class Effect(Frozen):
    """The paired difference arm minus baseline, in the metric's own sign; `unit` says what was held equal."""

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
    detectable: Reading = None  # a true difference of this size would be seen in four studies of five
    shrunk: Reading = None  # the mean without the flattery of having been picked out: what a headline says
    tie_low: Reading = None  # the interval that a tie is asked of: at level alpha an equivalence test takes 1 - 2 alpha
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
    """What two levers do together beyond the sum of what each does alone: (ab - base) - (a - base) - (b - base)."""

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
    """Pairs of levers that a fractional design cannot tell apart, and what they do together beyond their sums."""

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
    verdict: str = ""  # grows, fades, crossing (it changes its sign), holds, inconclusive, exploratory


class Target(Frozen):
    """What an arm needs to reach the baseline's final value, as a share of what the baseline needs."""

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
