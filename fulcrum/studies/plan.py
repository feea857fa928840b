"""The plan of a study: everything that is fixed before the first cell runs, and its hash."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from fulcrum.judge.design import Design, require_once
from fulcrum.spec.edit import digest
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


MAX_ARMS = 1_000  # of one plan: more are a mistake, and would take hours to be laid out
# What shows, keeps or waits for cells, and decides nothing of them.
LOOKING_ON = ("track", "keep_checkpoints", "save_every", "timeout", "axis")


class Sweep(Record):
    """The same small search for every arm, on validation pictures, counted in the cost."""

    sweep: tuple[Positive, ...]  # multiples of the recipe's rate
    share: Fraction = 0.25  # of the budget, for each try
    seeds: tuple[Seed, ...] = Field(default=(1000,), min_length=1)  # none of the study's own

    @field_validator("sweep", "seeds")
    @classmethod
    def _once(cls, values: tuple[float, ...], about: ValidationInfo) -> tuple[float, ...]:
        require_once(values, "a value of the sweep")
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


class Plan(Design):
    """A design, and how its arms are trained."""

    title: str
    baseline: str  # a phrase
    arms: tuple[
        str | BasedArm, ...
    ] = ()  # levers on the baseline, on another arm, or instead of another: a phrase part each
    trunk: str | None = None  # a phrase, trained once per seed: every arm begins from it
    trunk_images: Count | None = None  # its budget
    images: Count | None = None  # budget; None = the recipe's own
    settings: tuple[str, ...] = ()  # path=value, the same for every arm
    samples: Annotated[int, Field(ge=64, le=1_000_000)] = 512  # pictures drawn for each evaluation
    #: shares of the budget at which pictures are drawn and measured
    evaluations: tuple[Share, ...] = (1.0,)
    #: one guide for all arms, or as each arm's levers say
    guidance: Literal["shared", "per_arm"] = "shared"
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
        if len(arms) > MAX_ARMS:
            raise ValueError(
                f"{len(arms):,} arms are more than one study can compare, at most {MAX_ARMS:,}"
            )
        names = [arm if isinstance(arm, str) else arm.name for arm in arms]
        require_once(names, "an arm, which is one comparison with its baseline,")
        plain = [arm.add for arm in arms if isinstance(arm, BasedArm) and arm.base == "baseline"]
        if plain:
            raise ValueError(
                f"'{plain[0]}' against the baseline is a plain arm: arms = [\"{plain[0]}\"]"
            )
        if "baseline" in names:
            raise ValueError("the baseline is an arm of every study: leave it out of `arms`")
        return arms

    @field_validator("evaluations")
    @classmethod
    def _points(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if not shares or shares[-1] != 1.0 or list(shares) != sorted(set(shares)) or shares[0] <= 0:
            raise ValueError(
                f"expected rising shares of the budget that end with 1.0, found {list(shares)}"
            )
        return shares

    def require_whole(self) -> None:
        if self.design == "fractional" and self.arms:
            raise ValueError(
                "a fractional design makes its own arms from the stack; others belong into another"
                " plan"
            )
        if self.design == "fractional" and self.stop_early:
            raise ValueError(
                "a fractional design has no stop_early: every effect needs all combinations to the"
                " end"
            )
        super().require_whole()
        if self.design == "one_at_a_time" and not self.arms and not self.interactions:
            raise ValueError("a plan has at least 1 arm: arms = [...]")
        if self.design == "leave_one_out" and (self.arms or self.interactions):
            raise ValueError(
                "leave_one_out makes its own arms from the stack; others belong into another plan"
            )
        if self.looks and self.stop_early:
            raise ValueError(
                "looks and stop_early are two rules that end an arm, and neither knows what the"
                " other hides: leave one out"
            )
        if self.looks and any(isinstance(arm, BasedArm) for arm in self.arms):
            raise ValueError(
                "looks end each arm by itself, and an arm with a base of its own needs that base:"
                " name the seeds as a list, seeds = [0, 1, ...]"
            )
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
