"""The plan of a study: everything that is fixed before the first cell runs, and its hash."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fulcrum.judge.card import JUDGED, METRICS
from fulcrum.judge.looks import require_looks
from fulcrum.spec.edit import digest
from fulcrum.spec.errors import nearest
from fulcrum.spec.record import (
    Count,
    Fraction,
    Positive,
    Record,
    Seed,
    Share,
    Threads,
    Within,
    tree,
)
from fulcrum.spec.run import Device, MeshName, Recompute
from fulcrum.studies.fraction import fraction_table

# --------------------------------------------------------------------------------------------------
# Arms of a plan that are held against another arm instead of the baseline: levers added to it, or
# in its place.


class OwnBaseArm(Record):
    """Levers that need others: held against another arm of the study, the base that they are added
    to."""

    add: Annotated[str, Field(min_length=1)]
    #: levers on the baseline, or the name of such an arm; the study has it too
    to: Annotated[str, Field(min_length=1)]

    @property
    def name(self) -> str:
        return f"{self.add} on {self.to}"

    @property
    def base(self) -> str:
        return self.to


class InsteadArm(Record):
    """A lever in the place of another, or with other settings: held against the arm that has the
    other."""

    add: Annotated[str, Field(min_length=1)]
    #: levers on the baseline; the study has that arm too
    instead_of: Annotated[str, Field(min_length=1)]

    @property
    def name(self) -> str:
        return f"{self.add} instead of {self.instead_of}"

    @property
    def base(self) -> str:
        return self.instead_of


BasedArm = OwnBaseArm | InsteadArm  # held against another arm, not against the baseline


# --------------------------------------------------------------------------------------------------
# The plan of a study: everything that is fixed before the first cell runs, and its hash.


# of one plan: more are a mistake, and would take hours to be laid out
MOST_ARMS, MOST_SEEDS = 1_000, 1_000
# What shows, keeps or waits for cells, and decides nothing of them.
LOOKING_ON = ("track", "keep_checkpoints", "save_every", "timeout", "axis")


class Scale(Record):
    """One size at which the arms are compared, with a baseline of its own."""

    name: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=40)]
    settings: tuple[str, ...] = Field(min_length=1)  # path=value, after the plan's own
    at: float | None = None  # place on the trend's axis; none = log2 of the training FLOPs


class Sweep(Record):
    """The same small search for every arm, on validation pictures, counted in the cost."""

    sweep: tuple[Positive, ...]  # multiples of the recipe's rate
    share: Fraction = 0.25  # of the budget, for each try
    seeds: tuple[Seed, ...] = Field(default=(1000,), min_length=1)  # none of the study's own

    @field_validator("sweep", "seeds")
    @classmethod
    def _once(cls, values: tuple[float, ...], about: ValidationInfo) -> tuple[float, ...]:
        _require_once(values, "a value of the sweep")
        if about.field_name == "sweep" and len(values) < 2:
            raise ValueError(
                "a sweep tries at least two multiples of the recipe's rate, such as [0.5, 1, 2]"
            )
        return values

    def __str__(self) -> str:
        return (
            f"swept over {', '.join(f'{one:g}' for one in self.sweep)} times the recipe's rate for"
            f" every arm alike, {self.share:.0%} of the budget, chosen by validation loss on seeds"
            f" {', '.join(map(str, self.seeds))}"
        )


class StopEarly(Record):
    """When an arm may end before its budget: see `stopping`."""

    successive: Annotated[int, Field(ge=2)] = 3  # evaluation points that must agree
    level: Fraction = 0.99  # of the intervals that must exclude the baseline


class Plan(Record):
    title: str
    baseline: str  # a phrase
    arms: tuple[
        str | BasedArm, ...
    ] = ()  # levers on the baseline, on another arm, or instead of another: a phrase part each
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
    trunk: str | None = None  # a phrase, trained once per seed: every arm begins from it
    trunk_images: Count | None = None  # its budget
    seeds: tuple[Seed, ...]
    #: pairs at which arms are judged one after the other; none = once, at the end
    looks: tuple[Count, ...] = ()
    images: Count | None = None  # budget; None = the recipe's own
    settings: tuple[str, ...] = ()  # path=value, the same for every arm
    samples: Annotated[int, Field(ge=64, le=1_000_000)] = 512  # pictures drawn for each evaluation
    #: shares of the budget at which pictures are drawn and measured
    evaluations: tuple[Share, ...] = (1.0,)
    #: one guide for all arms, or as each arm's levers say
    guidance: Literal["shared", "per_arm"] = "shared"
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
    threads: Threads = 1  # per process; cells run side by side
    processes: Count = 1  # per cell: more than one are started by torchrun and share it
    device: Device = "cpu"  # cuda: each process of a cell has a GPU of its own
    mesh: MeshName = "fsdp"  # of many processes: ddp, fsdp, or replicas x shards
    microbatch: Count | None = None  # rows of a process per backward pass; none = all it has
    #: blocks whose activations are computed again instead of kept: none, selective, full
    recompute: Recompute = "none"
    #: images between two checkpoints; none = as often as costs little
    save_every: Count | None = None
    #: seconds that one process waits for another; none = 600
    timeout: Annotated[float, Within("[1, 1e6]")] | None = None
    compile: bool = True
    #: shared: the recipe's rate; nothing was tuned per arm
    learning_rates: Literal["shared"] | Sweep = "shared"
    stop_early: StopEarly | None = None
    track: tuple[str, ...] = ()  # trackers that show the cells too: tensorboard, wandb
    #: points of a cell's training whose weights are kept
    keep_checkpoints: Annotated[int, Within("[0, 1000]")] = 0

    @field_validator("title", "baseline")
    @classmethod
    def _as_text(cls, text: str) -> str:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(
                "it holds halves of letters, which no file can hold: write it in UTF-8"
            )
        return text

    @field_validator("arms")
    @classmethod
    def _once(cls, arms: tuple[str | BasedArm, ...]) -> tuple[str | BasedArm, ...]:
        if len(arms) > MOST_ARMS:
            raise ValueError(
                f"{len(arms):,} arms are more than one study can compare, at most {MOST_ARMS:,}"
            )
        names = [arm if isinstance(arm, str) else arm.name for arm in arms]
        _require_once(names, "an arm, which is one comparison with its baseline,")
        plain = [arm.add for arm in arms if isinstance(arm, BasedArm) and arm.base == "baseline"]
        if plain:
            raise ValueError(
                f"'{plain[0]}' against the baseline is a plain arm: arms = [\"{plain[0]}\"]"
            )
        if "baseline" in names:
            raise ValueError("the baseline is an arm of every study: leave it out of `arms`")
        return arms

    @field_validator("seeds")
    @classmethod
    def _paired(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(seeds) > MOST_SEEDS:
            raise ValueError(
                f"{len(seeds):,} seeds are more than one study can run, at most {MOST_SEEDS:,}"
            )
        _require_once(seeds, "a seed, which is one pair,")
        if len(seeds) < 2:
            raise ValueError(
                "a study compares pairs over at least 2 seeds, and 6 reach significance; found"
                f" {len(seeds)}"
            )
        return seeds

    @field_validator("stack")
    @classmethod
    def _stacked(cls, stack: tuple[str, ...]) -> tuple[str, ...]:
        _require_once(stack, "a lever of the stack")
        return stack

    @field_validator("interactions")
    @classmethod
    def _pairs(cls, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        _require_once([" and ".join(sorted(pair)) for pair in pairs], "an interaction")
        same = [pair[0] for pair in pairs if pair[0] == pair[1]]
        if same:
            raise ValueError(f"'{same[0]}' has no interaction with itself; name two levers")
        return pairs

    @field_validator("scales")
    @classmethod
    def _scales(cls, scales: tuple[Scale, ...]) -> tuple[Scale, ...]:
        _require_once([scale.name for scale in scales], "a scale")
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

    @field_validator("evaluations")
    @classmethod
    def _points(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if not shares or shares[-1] != 1.0 or list(shares) != sorted(set(shares)) or shares[0] <= 0:
            raise ValueError(
                f"expected rising shares of the budget that end with 1.0, found {list(shares)}"
            )
        return shares

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
    def _fits(self) -> "Plan":
        if self.design == "leave_one_out":
            if len(self.stack) < 2:
                raise ValueError(
                    "leave_one_out takes a stack of at least two levers: stack = [...]"
                )
            if self.arms or self.interactions:
                raise ValueError(
                    "leave_one_out makes its own arms from the stack; others belong into another"
                    " plan"
                )
        elif self.design == "fractional":
            self._require_fraction()
        elif self.stack:
            raise ValueError('a stack belongs to design = "leave_one_out" or "fractional"')
        elif not self.arms and not self.interactions:
            raise ValueError("a plan has at least 1 arm: arms = [...]")
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
        if (self.trunk is None) != (self.trunk_images is None):
            raise ValueError(
                "trunk and trunk_images belong together: a phrase, and the images it is trained"
                " with"
            )
        if isinstance(self.learning_rates, Sweep) and set(self.learning_rates.seeds) & set(
            self.seeds
        ):
            raise ValueError(
                "the seeds of the sweep must not be the study's own: a rate chosen on a seed"
                " flatters it"
            )
        if self.stop_early and len(self.evaluations) <= self.stop_early.successive:
            raise ValueError(
                f"stop_early asks {self.stop_early.successive} successive evaluations to agree"
                f" before the end: name at least {self.stop_early.successive + 1} in `evaluations`;"
                " where the learning rate decays, only those within its decay count"
            )
        return self

    def _require_fraction(self) -> None:
        if self.arms:
            raise ValueError(
                "a fractional design makes its own arms from the stack; others belong into another"
                " plan"
            )
        for name, why in (
            ("scales", "give each scale a plan, finished cells are shared"),
            (
                "looks",
                (
                    "every effect needs all combinations of a seed: name the seeds as a list, seeds"
                    " = [0, 1, ...]"
                ),
            ),
            ("stop_early", "every effect needs all combinations to the end"),
        ):
            if getattr(self, name):
                raise ValueError(f"a fractional design has no {name}: {why}")
        if self.confirm == "all":
            raise ValueError(
                "a fractional design confirms the primary metric only: leave `confirm` out"
            )
        # refused in words where there is none
        fraction_table(self.stack, self.interactions, self.combinations)

    def _require_sequence(self) -> None:
        require_looks(self.looks, self.alpha)
        if self.looks[-1] != len(self.seeds):
            raise ValueError(
                f"the last look, at {self.looks[-1]} pairs, must have all {len(self.seeds)} seeds"
                " of the plan"
            )
        if self.stop_early:
            raise ValueError(
                "looks and stop_early are two rules that end an arm, and neither knows what the"
                " other hides: leave one out"
            )
        if any(isinstance(arm, BasedArm) for arm in self.arms):
            raise ValueError(
                "looks end each arm by itself, and an arm with a base of its own needs that base:"
                " name the seeds as a list, seeds = [0, 1, ...]"
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

    @property
    def frozen(self) -> dict[str, Any]:
        """What may not change once cells run, as plain data; no number depends on what looks on."""
        late = (
            "judges",
            "processes",
            "device",
            "looks",
            "margins",
            "margin_deviations",
            "confirm",
            "combinations",
            "mesh",
            "microbatch",
            "recompute",
        )  # hashes of before stay
        unsaid = {name for name in late if getattr(self, name) == Plan.model_fields[name].default}
        fields = {
            name: value for name, value in tree(self).items() if name not in {*LOOKING_ON, *unsaid}
        }
        # as it was written into every plan before it could be left out
        if self.smallest_relative is None:
            fields["smallest_relative"] = 0.05
        return fields

    @property
    def hash(self) -> str:
        return digest(self.frozen)[:16]

    @property
    def rate_policy(self) -> str:
        return "shared" if isinstance(self.learning_rates, str) else str(self.learning_rates)


def _require_once(values: Iterable[Any], what: str) -> None:
    twice = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise ValueError(f"{what} is named twice: {twice[0]}")
