"""The seams: one base record for each named place where runs may differ. Rooms derive their fillers
from these."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Builds, Filler, Width, undefined

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from fulcrum.data.captions import Chooser
    from fulcrum.data.source import Source
    from fulcrum.networks.protocols import Codec, TeacherNetwork, TextEncoder
    from fulcrum.networks.rows import Cache
    from fulcrum.spec.run import RunSpec
    from fulcrum.training.average import Average
    from fulcrum.training.flow.sampling import Denoise
    from fulcrum.training.loss.terms import Term
    from fulcrum.training.model.transformer import Backbone, Condition, Route
    from fulcrum.training.optim.optimizers import Rule


# ruff: noqa: F401  (the protocols are in quotes, where only a type checker reads them)


# --------------------------------------------------------------------------------------------------
# Random numbers that a filler declares, per image of a step: `fulcrum.training.flow.noise` makes
# them, keyed by (seed, purpose, image index).


class Uniform(NamedTuple):
    """n uniform numbers."""

    n: int = 1


class Subset(NamedTuple):
    """`kept` of n positions."""

    n: int
    kept: int


class GroupedSubset(NamedTuple):
    """`kept` of the four positions of every 2 x 2 group of a grid."""

    rows: int
    columns: int
    kept: int


class Chance(NamedTuple):
    """Yes with probability p."""

    p: float


class Normal(NamedTuple):
    """Standard normal numbers in a shape; an empty shape means that of the run's latent."""

    shape: tuple[int, ...] = ()


Need = Uniform | Subset | GroupedSubset | Chance | Normal


# --------------------------------------------------------------------------------------------------
# The base records, one for each slot. `build` of a source, of captions and of times takes a
# `DataContext`; that of a frozen network takes nothing; all others take `training.build.Context`.


class DataContext(NamedTuple):
    """What the `build` of a source, of captions or of times may ask for."""

    run: "RunSpec"
    cache: "Cache | None" = None  # keeps what frozen networks said; None: nothing is kept
    say: "Callable[[str], None] | None" = None


class SourceFiller(Filler, Builds["Source"]):
    """data.source: where samples come from."""

    #: pictures of the embedded world, whose teacher knows no others
    is_world: ClassVar[bool] = False

    def caption_names(self) -> tuple[str, ...] | None:
        """Of the captions that every picture has; None: not known before it is built."""
        return None

    def pictures(self) -> int | None:
        """How many are trained on; None: not known before it is built."""
        return None

    def geometry_missing(self) -> str | None:
        """Why it cannot tell its pictures' original sizes and crops, in words, or None: what it
        builds has `geometry`."""
        return f"the source '{self.kind}' does not know what its pictures were cut from"

    def geometry_varies(self) -> bool:
        """Do its pictures differ in original size or crop? Asked where none is missing."""
        return True

    def held_out(self, split: str, count: int) -> "SourceFiller":
        """Pictures to judge by that no run trains on: truly captioned, whatever this source does to
        its own."""
        raise BadInput(
            f"{type(self).__name__} has no held-out pictures", "define held_out(split, count)"
        )

    def glimpse(self, size: int, count: int) -> "NDArray[np.uint8] | None":
        """The first `count` pictures that training may see, (count, 3, size, size), read without a
        cache; None: they cannot be had by themselves."""
        return None


class CaptionFiller(Filler, Builds["Chooser"]):
    """data.caption: which text a sample gets."""

    def caption_names(self) -> tuple[str, ...]:
        """Of the captions that it may choose, as far as they are known before it is built."""
        return ()


class CodecFiller(Filler, Builds["Codec"]):
    """encode.codec: pixels to what the denoiser sees, and back."""

    trained: ClassVar[bool] = False  # part of the step, which then reads pixels
    stride: Width
    channels: Width

    def draws(self) -> dict[str, Need]:
        """Return the random numbers that it needs in training, by name."""
        return {}

    def deviation(self, source: SourceFiller) -> float | None:
        """Of what it gives of a source's pictures, as measured; None: nobody has measured it."""
        return None


class TextFiller(Filler, Builds["TextEncoder"]):
    """encode.text: prompts to token embeddings with a mask."""

    width: Width

    def most_tokens(self) -> int | None:
        """Of a prompt; None where captions alone decide."""
        return None


class TeacherFiller(Filler, Builds["TeacherNetwork"]):
    """encode.teachers: frozen vision features by name."""

    world_only: ClassVar[bool] = False  # refused where the pictures are not the embedded world's
    name: str
    patch: Width  # pixels of a token, along each side
    width: Width


class TimeFiller(Filler, Builds["Callable[[Tensor], Tensor]"]):
    """flow.time: a uniform number to the time of a sample."""

    def __call__(self, u: "Tensor") -> "Tensor":
        """u (B,) in (0, 1) -> t (B,) in (0, 1]: t = 1 is noise."""
        raise undefined(self, "__call__")

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        return self


class PredictFiller(Filler, Builds["PredictFiller"]):
    """flow.predict: what the network's output means.

    Every tensor is (B, C, h, w); t is (B,).
    """

    def inputs(self, x_t: "Tensor", t: "Tensor") -> "Tensor":
        """Return what the network sees of x_t."""
        return x_t

    def ideal(self, x0: "Tensor", eps: "Tensor", t: "Tensor") -> "Tensor":
        """Return what a perfect network gives for x_t = (1 - t) x0 + t eps."""
        raise undefined(self, "ideal")

    def to_v(self, pred: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """Turn the network's output into the velocity v = eps - x0."""
        raise undefined(self, "to_v")

    def to_x(self, pred: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """Turn the network's output into the clean picture x0."""
        raise undefined(self, "to_x")

    def build(self, ctx: Any) -> "PredictFiller":
        return self


class WeightFiller(Filler, Builds["Callable[[Tensor], Tensor]"]):
    """flow.weight: how much a time counts in the loss."""

    def __call__(self, t: "Tensor") -> "Tensor":
        """t (B,) -> the weight (B,) of the squared error of v."""
        raise undefined(self, "__call__")

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        return self


class RouteFiller(Filler, Builds["Route | None"]):
    """model.route: which tokens a span of blocks sees. What is not overridden is a model without a
    span."""

    fuses: ClassVar[bool] = False  # a path leads around the span: it may be left out

    def kept(self, tokens: int) -> int:
        """How many tokens of a square sample the span sees in training; for costs."""
        return tokens

    def bounds(self, depth: int) -> tuple[int, int]:
        """First and last block of the span."""
        return (depth, depth - 1)  # no block

    def parameters(self, width: int) -> int:
        """That it adds to a model of this width; for costs."""
        return 0

    def draws(self, grid: tuple[int, int]) -> dict[str, Need]:
        """Random numbers that it needs in training, for tokens on a grid of (rows, columns):
        `keep`, `drop_path`."""
        return {}


class ConditionFiller(Filler, Builds["Condition | None"]):
    """model.condition: what is added to the time vector; None: nothing is."""

    geometry: ClassVar[bool] = False  # is it told the original size and the crop of each picture?

    def parameters(self, width: int) -> int:
        """That it adds to a model of this width; for costs."""
        return 0

    def multiply_adds(self, width: int) -> int:
        """Of one image, forward; for costs."""
        return 0


class LearnedFiller(Filler, Builds["Callable[[Backbone], None]"]):
    """model.learned: which of the denoiser's weights learn; what it builds prepares a denoiser that
    has no values yet.

    A weight is known by its words: its role, and what its layer is for
    (`fulcrum.training.model.parameters`).
    """

    partial: ClassVar[bool] = True  # does it leave weights as they began?

    def learns(self, words: Collection[str], block: int | None, depth: int) -> bool:
        """Does such a weight learn itself? `block` is None outside of the blocks."""
        return not self.partial

    def rank_beside(self, words: Collection[str]) -> int:
        """Of the product that learns beside such a layer; 0: nothing does."""
        return 0

    def problem(self, run: Any) -> str | None:
        """Why nothing good can come of it in this run, in words, or None. Asked when the run is
        whole: a start may have brought other sizes than the recipe's."""
        if not self.partial or run.start.kind != "fresh":
            return None
        return (
            "only a part of the weights learns, and the rest would stay as it was drawn at random:"
            " begin from trained weights, --start RUN or the folder of a pipeline"
        )


class TermFiller(Filler, Builds["Term"]):
    """terms: one addend of the loss, known by its name."""

    world_only: ClassVar[bool] = False  # it looks through the embedded world's teacher
    name: str
    weight: float

    def weight_at(self, progress: float) -> float:
        """How much it counts when this share of the budget is done; at zero the term is off and
        costs nothing."""
        return self.weight

    def rows_compared(self) -> int:
        """Rows that it compares with each other, as its setting `chunk: Count = 8` says. A batch, a
        process and a backward pass hold whole chunks of them."""
        return int(getattr(self, "chunk", 1))

    def teachers(self) -> tuple[str, ...]:
        """Names of the teachers whose tokens it reads from the batch."""
        return ()

    def draws(self) -> dict[str, Need]:
        """Return the random numbers that it needs, by name: `view.draw.extra["NAME OF TERM/name"]`
        holds them."""
        return {}

    def problem(self, run: "RunSpec") -> str | None:
        """Why it cannot work in this run, in words, or None."""
        return None

    def flops(self, run: "RunSpec") -> float | None:
        """Of one image, forward and backward, on average over the budget; None: not counted."""
        return None

    def numbers(self, run: "RunSpec") -> float:
        """That the backward of one image reads; for costs."""
        return 0.0

    def parameters(self, run: "RunSpec") -> int:
        """That it learns; for costs."""
        return 0


class RuleFiller(Filler, Builds["Rule"]):
    """optim.rule: how gradients become updates.

    `build(ctx)` returns an optimizer: see `UpdateRule` in `fulcrum.training.optim.optimizers`.
    """

    #: numbers that it keeps for each parameter; for memory
    remembers: ClassVar[int] = 2


class AverageFiller(Filler, Builds["Average"]):
    """average: which average of the weights is drawn and measured with."""

    keeps: ClassVar[bool] = True  # is it updated after a step?


class StartFiller(Filler, Builds["Mapping[str, Tensor] | None"]):
    """start: the weights a run begins from, by the denoiser's names; None: every parameter begins
    by its key."""

    def require_fit(self, run: Any) -> None:
        """Refuse weights that do not fit this run, before anything is made."""


class GuideFiller(Filler, Builds["Callable[[Denoise, Tensor, Tensor], Tensor]"]):
    """sample.guide: how the prompt steers sampling."""

    def missing(self, run: Any) -> str | None:
        """Return what this run lacks to be drawn with the guide, in words. None: nothing."""
        return None

    def __call__(self, denoise: "Denoise", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """x_t (B, C, h, w), t (B,) -> v (B, C, h, w), from the velocities that `denoise` gives."""
        raise undefined(self, "__call__")

    def build(self, ctx: Any) -> "Callable[[Denoise, Tensor, Tensor], Tensor]":
        if reason := self.missing(ctx.run):
            raise BadInput(
                f"sample.guide={self.kind} cannot draw with this run: {reason}",
                "draw with sample.guide=cfg",
            )
        return self


if not TYPE_CHECKING:  # a type checker should go on finding names that are written wrongly

    def __getattr__(name: str) -> Any:
        """Files that people wrote before derive from `seam.Term`; keys hold their bytes, so they
        must go on to work."""
        if (
            name.startswith("_")
            or (record := globals().get(f"{name.removesuffix('Encoder')}Filler")) is None
        ):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return record
