"""The design of a study: what judging reads of a plan, and its arms as values."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from fulcrum.judge.card import JUDGED, METRICS
from fulcrum.judge.fraction import FractionTable, fraction_table
from fulcrum.judge.looks import require_looks
from fulcrum.spec.errors import nearest
from fulcrum.spec.record import Count, Fraction, Positive, Record, Seed

MAX_SEEDS = 1_000  # of one plan: more are a mistake
BASELINE = "baseline"  # name of the first arm of every study


class JudgedArm(NamedTuple):
    """An arm of a study, as far as judging reads it."""

    name: str
    against: str = BASELINE  # name of the arm it is compared with; a baseline names itself
    scale: str = ""
    #: fields of a metric card that the arm openly changes; None: not known, cards are not compared
    may_differ: tuple[str, ...] | None = ()
    own_loss: bool = False  # its held-out loss is not that of the arm it is compared with
    decays: bool = False  # its learning rate falls towards the end of its budget
    tokens: int = 0  # this and the next two: known of baselines where a study has scales
    parameters: int = 0
    flops: float = 0.0  # of its whole training

    @property
    def is_baseline(self) -> bool:
        return self.name == self.against


def at_scale(name: str, scale: str) -> str:
    """Name of an arm at one scale."""
    return f"{name} [{scale}]" if scale else name


def interaction_arms(pair: tuple[str, str]) -> tuple[str, str, str]:
    """Names of a, b, and both."""
    return pair[0], pair[1], f"{pair[0]} + {pair[1]}"


class Scale(Record):
    """One size at which the arms are compared, with a baseline of its own."""

    name: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=40)]
    settings: tuple[str, ...] = Field(min_length=1)  # path=value, after the plan's own
    at: float | None = None  # place on the trend's axis; none = log2 of the training FLOPs


class Design(Record):
    """Everything that judging reads of a plan. It is fixed before the first cell runs."""

    design: Literal["one_at_a_time", "leave_one_out", "fractional"] = "one_at_a_time"
    #: leave_one_out: the baseline has all, each arm all but one; fractional: each on or off
    stack: tuple[str, ...] = ()
    #: fractional: how many of them are run; none = the fewest that are enough
    combinations: Count | None = None
    #: pairs of levers: a, b, a + b, and what ab adds to both
    interactions: tuple[tuple[str, str], ...] = ()
    scales: tuple[Scale, ...] = ()  # the same arms at each; none = the recipe's own
    axis: Annotated[str, Field(max_length=60)] = (
        ""  # what one step of the scales' `at` is, such as "doubling of the tokens"
    )
    seeds: tuple[Seed, ...]
    #: pairs at which arms are judged one after the other; none = once, at the end
    looks: tuple[Count, ...] = ()
    judges: tuple[str, ...] = ()  # real networks of installed packages: lite0, vgg
    primary: str = "attribute_f1"
    #: of interest, on the primary metric, in its unit; none = as on the others
    smallest_effect: Positive | None = 0.02
    #: smallest effects of interest on other metrics, each in its own unit
    margins: dict[str, Positive] = {}
    #: where none is given: so many deviations of the baseline over its seeds
    margin_deviations: Positive = 1.0
    #: of plans before: a share of the baseline, instead of deviations
    smallest_relative: Positive | None = None
    #: what gets verdicts: all = one joint test over arms and metrics
    confirm: Literal["primary", "all"] = "primary"
    alpha: Fraction = 0.05

    @field_validator("stack")
    @classmethod
    def _stacked(cls, stack: tuple[str, ...]) -> tuple[str, ...]:
        require_once(stack, "a lever of the stack")
        return stack

    @field_validator("interactions")
    @classmethod
    def _pairs(cls, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        require_once([" and ".join(sorted(pair)) for pair in pairs], "an interaction")
        same = [pair[0] for pair in pairs if pair[0] == pair[1]]
        if same:
            raise ValueError(f"'{same[0]}' has no interaction with itself; name two levers")
        return pairs

    @field_validator("scales")
    @classmethod
    def _scales(cls, scales: tuple[Scale, ...]) -> tuple[Scale, ...]:
        require_once([scale.name for scale in scales], "a scale")
        if len(scales) == 1:
            raise ValueError(
                "a trend needs at least two scales; for one, write its settings into `settings`"
            )
        return scales

    @field_validator("axis")
    @classmethod
    def _plain(cls, axis: str) -> str:
        if not axis.isprintable():
            raise ValueError(
                'expected some plain words on one line, such as "doubling of the tokens"'
            )
        return axis

    @field_validator("seeds")
    @classmethod
    def _paired(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(seeds) > MAX_SEEDS:
            raise ValueError(
                f"{len(seeds):,} seeds are more than one study can run, at most {MAX_SEEDS:,}"
            )
        require_once(seeds, "a seed, which is one pair,")
        if len(seeds) < 2:
            raise ValueError(
                "a study compares pairs over at least 2 seeds, and 6 reach significance; found"
                f" {len(seeds)}"
            )
        return seeds

    @field_validator("primary")
    @classmethod
    def _known(cls, primary: str) -> str:
        if primary not in METRICS:
            raise ValueError(f"no metric is called '{primary}'; {nearest(primary, METRICS)}")
        return primary

    @field_validator("alpha")
    @classmethod
    def _level(cls, alpha: float) -> float:
        if not 0.001 <= alpha < 0.5:
            raise ValueError(
                f"an error of {alpha:g} cannot be held: ties ask the interval at 1 - 2 alpha, and"
                " p-values are counted to 1 in 20,000; choose between 0.001 and 0.5, such as 0.05"
            )
        return alpha

    @field_validator("margins")
    @classmethod
    def _metrics(cls, margins: dict[str, float]) -> dict[str, float]:
        unknown = [name for name in margins if name not in METRICS]
        if unknown:
            raise ValueError(f"no metric is called '{unknown[0]}'; {nearest(unknown[0], METRICS)}")
        return margins

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        self.require_whole()
        return self

    def require_whole(self) -> None:
        """Refuse (ValueError) fields that do not fit each other."""
        if self.design == "leave_one_out" and len(self.stack) < 2:
            raise ValueError("leave_one_out takes a stack of at least two levers: stack = [...]")
        if self.design == "fractional":
            self._require_fraction()
        if self.design == "one_at_a_time" and self.stack:
            raise ValueError('a stack belongs to design = "leave_one_out" or "fractional"')
        if self.combinations is not None and self.design != "fractional":
            raise ValueError('combinations belong to design = "fractional"')
        if self.axis and (not self.scales or any(scale.at is None for scale in self.scales)):
            raise ValueError(
                "`axis` names what the scales' `at` counts: give every scale an `at`, or leave"
                " `axis` out"
            )
        if self.scales and self.interactions:
            raise ValueError(
                "interactions and scales are two questions: give each a plan, finished cells are"
                " shared"
            )
        unknown = [name for name in self.judges if name not in JUDGED]
        if unknown:
            raise ValueError(f"no judge is called '{unknown[0]}'; judges: {', '.join(JUDGED)}")
        by = self.primary.partition(".")[0]
        if "." in self.primary and by not in self.judges:
            raise ValueError(
                f"the primary metric '{self.primary}' needs its judge: judges = [\"{by}\"]"
            )
        if self.primary in self.margins:
            raise ValueError(
                f"the margin of the primary metric is smallest_effect: leave '{self.primary}' out"
                " of `margins`"
            )
        if self.looks:
            self._require_sequence()

    def _require_fraction(self) -> None:
        for name, why in (
            ("scales", "give each scale a plan, finished cells are shared"),
            (
                "looks",
                (
                    "every effect needs all combinations of a seed: name the seeds as a list, seeds"
                    " = [0, 1, ...]"
                ),
            ),
        ):
            if getattr(self, name):
                raise ValueError(f"a fractional design has no {name}: {why}")
        if self.confirm == "all":
            raise ValueError(
                "a fractional design confirms the primary metric only: leave `confirm` out"
            )
        fraction_of(self)  # refused in words where there is none

    def _require_sequence(self) -> None:
        require_looks(self.looks, self.alpha)
        if self.looks[-1] != len(self.seeds):
            raise ValueError(
                f"the last look, at {self.looks[-1]} pairs, must have all {len(self.seeds)} seeds"
                " of the plan"
            )
        if self.interactions or self.scales or self.design == "fractional":
            raise ValueError(
                "looks end each arm by itself, but interactions, scales and fractions compare arms"
                " over the same seeds: name the seeds as a list, seeds = [0, 1, ...]"
            )
        if self.confirm == "all":
            raise ValueError(
                "looks judge the primary metric alone: leave `confirm` out, or name the seeds as a"
                " list"
            )


def fraction_of(plan: Design) -> FractionTable:
    """Which levers are on in which arm of a fractional design."""
    return fraction_table(plan.stack, plan.interactions, plan.combinations)


def require_once(values: Iterable[Any], what: str) -> None:
    """Refuse (ValueError) values of which one is named twice."""
    twice = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise ValueError(f"{what} is named twice: {twice[0]}")
