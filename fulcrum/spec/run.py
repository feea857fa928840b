"""RunSpec: the frozen tree that decides everything scientific about a run, and System, which
decides only speed."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializeAsAny,
    field_validator,
    model_validator,
)

from fulcrum.spec import slots
from fulcrum.spec.record import (
    Count,
    Factor,
    Filler,
    Positive,
    Record,
    Share,
    Threads,
    Width,
    Within,
    tree,
)

# --------------------------------------------------------------------------------------------------
# The version of the science: raised whenever a change makes equal specs train or draw differently.


SCIENCE = 3
FIRST_SCIENCE = 1  # runs and studies that name no version were made by this one


# --------------------------------------------------------------------------------------------------
# RunSpec: the one frozen tree that decides everything scientific about a run.


Dtype = Literal["fp32", "bf16"]
# a stage that has it runs a schedule of its own: fulcrum/training/optim/schedule.py
RATE = "optim.lr"


class During(Record):
    """From one share of the budget to another, `path` has this value instead of the run's own."""

    start: Share
    end: Share
    path: str
    value: Any

    @model_validator(mode="after")
    def _runs(self) -> "During":
        if not self.start < self.end:
            raise ValueError(
                f"a stage must run: it starts at {self.start} and ends at {self.end} of the budget"
            )
        return self

    @property
    def name(self) -> str:
        return f"{self.start:g}-{self.end:g}:{self.path}"


class Data(Record):
    source: SerializeAsAny[slots.SourceFiller]
    caption: SerializeAsAny[slots.CaptionFiller]
    size: Annotated[int, Within("[1, 8192]")]  # pixels on a side
    #: values for a part of the budget; a set: kept in one order, so that levers commute
    stages: tuple[During, ...] = ()

    @field_validator("stages")
    @classmethod
    def _one_order(cls, stages: tuple[During, ...]) -> tuple[During, ...]:
        unique = {(stage.name, str(stage.value)): stage for stage in stages}
        ordered = tuple(unique[name] for name in sorted(unique))
        for i, one in enumerate(ordered):
            for other in ordered[i + 1 :]:
                if _at_odds(one, other):
                    raise ValueError(
                        f"stages {one.name} and {other.name} give"
                        f" {min(one.path, other.path, key=len)} two values at the same time"
                    )
        return ordered


def _at_odds(one: During, other: During) -> bool:
    """Would a path have two values at one time? Of rates, the stage that began last has its own:
    only a tie is refused."""
    nested = f"{one.path}.".startswith(f"{other.path}.") or f"{other.path}.".startswith(
        f"{one.path}."
    )
    same = one.path == other.path and one.value == other.value
    within = one.path == other.path == RATE and one.start != other.start
    return nested and one.start < other.end and other.start < one.end and not same and not within


class Encode(Record):
    codec: SerializeAsAny[slots.CodecFiller]
    text: SerializeAsAny[slots.TextFiller]
    #: frozen vision networks; a set: kept in one order
    teachers: tuple[SerializeAsAny[slots.TeacherFiller], ...] = ()

    @field_validator("teachers")
    @classmethod
    def _one_order(
        cls, teachers: tuple[slots.TeacherFiller, ...]
    ) -> tuple[slots.TeacherFiller, ...]:
        return tuple(sorted(teachers, key=lambda teacher: teacher.name))

    def teacher(self, name: str) -> slots.TeacherFiller | None:
        """Who teaches what a term asks of this name: one that takes its place, else the one that
        has it."""
        instead = [
            teacher for teacher in self.teachers if getattr(teacher, "instead_of", "") == name
        ]
        return next(
            (
                teacher
                for teacher in (*instead, *self.teachers)
                if teacher in instead or teacher.name == name
            ),
            None,
        )


class Flow(Record):
    time: SerializeAsAny[slots.TimeFiller]
    predict: SerializeAsAny[slots.PredictFiller]
    weight: SerializeAsAny[slots.WeightFiller]
    drop_text: Share = 0.1  # share of captions replaced by the empty prompt
    noise_scale: Factor = 1.0  # multiplies eps in training and sampling


class AllWeights(slots.LearnedFiller):
    """Every weight of the denoiser learns. It stands here as it is what a description means that
    says nothing of it."""

    kind: ClassVar[str] = "all_weights"
    partial: ClassVar[bool] = False

    def build(self, ctx: Any) -> Callable[[Any], None]:
        return lambda backbone: None


class Model(Record):
    later: ClassVar[tuple[str, ...]] = ("learned",)
    width: Annotated[int, Within("[4, 65536]")]  # features of a token
    depth: Annotated[int, Within("[1, 1024]")]  # blocks
    heads: Width  # of the attention; the width is divided among them
    patch: Width  # latents, or pixels, on a side that make one token
    #: the hidden layer of a block over its width
    mlp_ratio: Annotated[float, Within("[0.25, 64]")] = 3.5
    bottleneck: Width | None = None  # two linears instead of one for wide patches
    theta: Positive = 10_000.0  # base of the rotary positions
    route: SerializeAsAny[slots.RouteFiller]
    condition: SerializeAsAny[slots.ConditionFiller]
    learned: SerializeAsAny[slots.LearnedFiller] = AllWeights()


class Optim(Record):
    rule: SerializeAsAny[slots.RuleFiller]
    lr: Annotated[float, Within("(0, 1]")]  # learning rate at its height
    clip: Positive = 1.0  # largest norm of the gradient
    warmup: Share = 0.01  # share of the budget
    #: final share of the budget, linear to zero; of a stage with a rate of its own, its final share
    decay: Share = 0.0
    #: share of a stage with a rate of its own, in which that is warmed up from zero
    rewarm: Share = 0.1
    not_finite: Literal["stop", "skip"] = "stop"  # what a non-finite step does


class Precision(Record):
    """What numbers are kept and computed in. An operation in bf16 takes and gives bf16 numbers, and
    sums in fp32 inside."""

    storage: Dtype = "fp32"  # of weights
    gradient: Dtype = "fp32"  # what the optimizer is given
    optimizer: Dtype = "fp32"  # what it remembers
    reduce: Dtype = "fp32"  # of sums over processes
    #: of an update to what the storage can hold
    rounding: Literal["nearest", "stochastic"] = "nearest"
    compute: Dtype = "fp32"  # of matrix products
    norm: Dtype = "fp32"  # of the stream, of queries and keys
    softmax: Dtype = "fp32"  # of the attention
    rope: Dtype = "fp32"  # the rotary table, and what is turned by it
    time: Dtype = "fp32"  # as the denoiser is told it
    loss: Dtype = "fp32"  # what every term is given and gives


class Sample(Record):
    steps: Annotated[int, Within("[1, 10000]")]  # of the solver from noise to a picture
    guide: SerializeAsAny[slots.GuideFiller]
    #: the captions that pictures are drawn from and judged by
    prompts: SerializeAsAny[slots.CaptionFiller]
    shift: Factor = 1.0  # of the sampling grid


class Budget(Record):
    images: Count  # seen in training, repeats counted
    batch: Count  # images of one step, over all processes


Named = Annotated[tuple[SerializeAsAny[slots.TermFiller], ...], Field(min_length=1)]


class RunSpec(Record):
    data: Data
    encode: Encode
    flow: Flow
    model: Model
    terms: Named
    optim: Optim
    precision: Precision = Precision()
    average: SerializeAsAny[slots.AverageFiller]
    start: SerializeAsAny[slots.StartFiller]
    sample: Sample
    budget: Budget

    @field_validator("terms")
    @classmethod
    def _by_name(cls, terms: tuple[slots.TermFiller, ...]) -> tuple[slots.TermFiller, ...]:
        names = [term.name for term in terms]
        if len(set(names)) < len(names):
            raise ValueError(f"every term of the loss needs its own name, found {names}")
        return tuple(sorted(terms, key=lambda term: term.name))

    @model_validator(mode="after")
    def _fits(self) -> "RunSpec":
        """Sizes that cannot work are refused here, before anything is built."""
        model, data, stride = self.model, self.data, self.encode.codec.stride
        if model.width % model.heads:
            raise ValueError(
                f"model.width {model.width} cannot be divided among model.heads {model.heads}"
            )
        if (model.width // model.heads) % 4:
            raise ValueError(
                f"a head is {model.width // model.heads} wide; two rotary axes need a multiple of 4"
            )
        unit = stride * model.patch
        sizes = {data.size} | {stage.value for stage in data.stages if stage.path == "data.size"}
        for size in sorted(sizes):
            if size % unit:
                raise ValueError(
                    f"data.size {size} is not a multiple of {unit} (codec stride {stride} x patch"
                    f" {model.patch})"
                )
        if self.optim.rewarm + self.optim.decay > 1 and any(
            stage.path == RATE for stage in data.stages
        ):
            raise ValueError(
                f"a stage with a rate of its own has optim.rewarm {self.optim.rewarm} and"
                f" optim.decay {self.optim.decay} in it: shares of the stage, together at most 1"
            )
        images, batch = self.budget.images, self.budget.batch
        if images % batch:
            below, above = images // batch * batch, (images // batch + 1) * batch
            raise ValueError(
                f"budget.images {images} is not a whole number of batches of {batch}: take "
                + (f"{below} or {above}" if below else f"{above}")
            )
        return self

    @property
    def tokens(self) -> int:
        """Image tokens of one sample at the run's own size."""
        return (self.data.size // (self.encode.codec.stride * self.model.patch)) ** 2

    def fillers(self) -> list[Filler]:
        """Every filler in the run, staged ones included."""
        return list(_fillers(self))

    def plain(self) -> dict[str, Any]:
        """The run as plain data, for files and hashes."""
        whole: dict[str, Any] = tree(self)
        return whole


def _fillers(value: Any) -> Iterator[Filler]:
    if isinstance(value, Filler):
        yield value
    parts = (
        [getattr(value, name) for name in type(value).model_fields]
        if isinstance(value, Record)
        else value
    )
    if isinstance(parts, list | tuple):
        for part in parts:
            yield from _fillers(part)


# --------------------------------------------------------------------------------------------------
# What should only change speed: device, threads, compilation, processes. Outside the key, recorded
# in checkpoints.
#
# So is what is done when a run goes wrong: it changes no run that goes well.


def cores() -> int:
    """Cores that this process may use; macOS knows no such bound, only their number."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Device = Literal["cpu", "cuda"]  # never chosen by itself: another device gives other last bits
Products = Literal["auto", "native", "emulated"]  # auto: native where the device has units for bf16


def _mesh(text: str) -> str:
    if text not in ("ddp", "fsdp") and not re.fullmatch(r"[1-9]\d{0,5}x[1-9]\d{0,5}", text):
        raise ValueError(f"must be ddp, fsdp, or replicas x shards such as 2x4, found '{text}'")
    return text


def _recompute(said: Any) -> Any:
    # as checkpoints of before have it
    return {False: "none", True: "full"}[said] if isinstance(said, bool) else said


# how processes share the weights: fulcrum/training/dist/collectives.py
MeshName = Annotated[str, AfterValidator(_mesh)]
# of no block, every other, all
Recompute = Annotated[Literal["none", "selective", "full"], BeforeValidator(_recompute)]


def _alarm(said: object) -> object:
    """Read `skip` and `roll_back`, which releases before 0.2 had, as `stop`."""
    return "stop" if said in ("skip", "roll_back") else said


OnAlarm = Annotated[Literal["tell", "stop"], BeforeValidator(_alarm)]


class System(Record):
    device: Device = "cpu"
    processes: Count = 1  # that share the model and every batch
    #: cores that this process uses; one per process when cells run side by side
    threads: Threads = 1
    #: compile the denoiser: a shallow stack in one graph, a deep one by blocks
    compile: bool = False
    mesh: MeshName = "fsdp"  # of many processes: who holds which weights
    microbatch: Count | None = None  # rows of a process per backward pass; None = all it has
    #: blocks whose activations are computed again in the backward instead of kept
    recompute: Recompute = "none"
    #: images between two checkpoints; None = as often as costs little
    save_every: Count | None = None
    #: what is done when a sentinel sees something wrong: docs/when-a-run-goes-wrong.md
    on_alarm: OnAlarm = "tell"
    #: products of a run that computes in bf16: the device's own, or rounded numbers in fp32
    bf16: Products = "auto"

    def bare(self) -> "System":
        """The same device and nothing else that was asked for: what draws and measures, however the
        run was trained."""
        return System().model_copy(update={"device": self.device})

    def differences(self, other: "System") -> list[str]:
        """What differs from `other`, in words, for the note that a resume prints."""
        return [
            f"{name}: {getattr(other, name)} -> {getattr(self, name)}"
            for name in type(self).model_fields
            if name not in ("save_every", "on_alarm")  # change no number of a run that goes well
            and getattr(self, name) != getattr(other, name)
        ]
