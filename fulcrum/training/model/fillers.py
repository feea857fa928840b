"""Records of the model's seams: routes, conditions, and which weights learn."""

from collections.abc import Callable, Collection
from math import isqrt
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from fulcrum.spec import slots
from fulcrum.spec.flops import learned_weights, sizes_of, smallest_side, vector_multiply_adds
from fulcrum.spec.record import Factor, Fraction, Part, Width, Within
from fulcrum.spec.run import AllWeights
from fulcrum.spec.slots import Chance, GroupedSubset, Need, Subset

if TYPE_CHECKING:
    from torch import Tensor

    from fulcrum.training.model.transformer import Backbone, Condition, Route, Tokens


class Dense(slots.RouteFiller):
    """Every block sees every token."""

    kind = "dense"

    def build(self, ctx: Any) -> None:
        return None


# counted from zero; negative counts from the end
BlockNumber = Annotated[int, Within("[-1024, 1023]")]


class SpanRoute(slots.RouteFiller):
    """What routes with a span share: its blocks, and that a share `drop` of the tokens is not seen
    there."""

    #: first routed block; none: by the route's own rule for this depth
    start: BlockNumber | None = None
    end: BlockNumber | None = None  # last routed block, inclusive; none: as above
    drop: Part  # share of tokens that the span does not see

    def usual_span(self, depth: int) -> tuple[int, int]:
        """First and last block where nobody chose them."""
        return 1, depth - 2

    def kept(self, tokens: int) -> int:
        return max(1, round(tokens * (1 - self.drop)))

    def bounds(self, depth: int) -> tuple[int, int]:
        chosen = zip((self.start, self.end), self.usual_span(depth), strict=True)
        first, last = (
            usual if block is None else depth + block if block < 0 else block
            for block, usual in chosen
        )
        return first, last

    def draws(self, grid: tuple[int, int]) -> dict[str, Need]:
        tokens = grid[0] * grid[1]
        kept = self.kept(tokens)
        return {"keep": Subset(tokens, kept)} if kept < tokens else {}


class Carry(SpanRoute):
    """TREAD: a random share of the tokens takes a shortcut around the blocks start … end."""

    kind = "carry"
    drop: Fraction = 0.5  # share of tokens that takes the shortcut

    def usual_span(self, depth: int) -> tuple[int, int]:
        """Blocks 2 to 12 of 16, counted from zero, scaled with the depth; one block at least stays
        dense at each end."""
        first, last = ((2 * block * depth + 16) // 32 for block in (2, 12))  # rounded, halves up
        return max(first, 1), min(last, depth - 2)

    def build(self, ctx: Any) -> "Route":
        start, end = self.bounds(ctx.run.model.depth)
        return self.model_copy(update={"start": start, "end": end})

    def split(self, tokens: "Tokens", keep: "Tensor | None") -> "Tokens":
        return tokens if keep is None else tokens.take(keep)  # (B, N, D) -> (B, K, D)

    def merge(self, before: "Tokens", after: "Tokens", dropped: "Tensor | None") -> "Tokens":
        return before.put(after)  # (B, N, D); those not kept are as they were before the span

    def around(self, before: "Tokens") -> "Tokens":
        raise ValueError(
            "this route was never trained without its span: build with a route that fuses"
        )


class DropAndFuse(SpanRoute):
    """SPRINT: the blocks start … end see few tokens; what leaves them is joined with what entered
    by a learned linear."""

    kind = "drop_and_fuse"
    fuses = True
    path_drop: Part = 0.0  # share of samples for which the whole span counts for nothing
    # The defaults of these two are what runs from before had, whose files name neither.
    #: of the tokens: from all, or as many of every 2 x 2 group
    choice: Literal["uniform", "grouped"] = "uniform"
    #: the token that stands for those not seen; frozen at zero
    mask: Literal["learned", "frozen"] = "learned"

    @model_validator(mode="after")
    def _whole_groups(self) -> "DropAndFuse":
        if self.choice == "grouped" and 4 * self.drop % 1:
            raise ValueError(
                "choice=grouped drops 1, 2 or 3 of every 2 x 2 tokens, so drop must be 0.25, 0.5"
                f" or 0.75, found {self.drop:g}; choice=uniform drops any share"
            )
        return self

    def usual_span(self, depth: int) -> tuple[int, int]:
        """Two dense blocks at each end, as its authors have it; one where there are fewer than
        eight blocks."""
        dense = 2 if depth >= 8 else 1
        return dense, depth - 1 - dense

    def kept(self, tokens: int) -> int:
        side = isqrt(tokens)
        return self._kept_on((side, side)) if self.choice == "grouped" else super().kept(tokens)

    def _kept_on(self, grid: tuple[int, int]) -> int:
        """Of every group its share, rounded up where a side is odd and the group smaller."""
        (down, odd_row), (across, odd_column) = (divmod(side, 2) for side in grid)
        of_four = round(4 * (1 - self.drop))
        return (
            down * across * of_four
            + (odd_row * across + odd_column * down) * -(-of_four // 2)
            + odd_row * odd_column
        )

    def parameters(self, width: int) -> int:
        return 2 * width * width + width + (width if self.mask == "learned" else 0)  # W, b and m

    def draws(self, grid: tuple[int, int]) -> dict[str, Need]:
        needs: dict[str, Need] = {}
        if self.choice == "uniform":
            needs = super().draws(grid)
        elif self._kept_on(grid) < grid[0] * grid[1]:
            needs["keep"] = GroupedSubset(*grid, round(4 * (1 - self.drop)))
        if self.path_drop:
            needs["drop_path"] = Chance(self.path_drop)
        return needs

    def build(self, ctx: Any) -> "Route":
        from fulcrum.training.model.transformer import FuseRoute

        width, compute = ctx.run.model.width, ctx.dtype("compute")
        return FuseRoute(*self.bounds(ctx.run.model.depth), width, compute, self.mask == "learned")


class NoCondition(slots.ConditionFiller):
    """The time vector carries the time only."""

    kind = "no_condition"

    def build(self, ctx: Any) -> None:
        return None


class Resolution(slots.ConditionFiller):
    """Height and width enter the time vector."""

    kind = "resolution"

    def parameters(self, width: int) -> int:
        return vector_multiply_adds(width) + 2 * width  # and two biases

    def multiply_adds(self, width: int) -> int:
        return vector_multiply_adds(width)

    def build(self, ctx: Any) -> "Condition":
        from fulcrum.training.model.transformer import ResolutionIn

        return ResolutionIn(ctx.run.model.width, ctx.dtype("compute"))


class SizeCrop(slots.ConditionFiller):
    """Each picture's original size and the corner of its crop enter the time vector."""

    kind = "size_crop"
    geometry = True

    def parameters(self, width: int) -> int:
        return self.multiply_adds(width) + 2 * width  # and two biases

    def multiply_adds(self, width: int) -> int:
        return vector_multiply_adds(width, numbers=4)

    def build(self, ctx: Any) -> "Condition":
        from fulcrum.training.model.transformer import SizeCropIn

        return SizeCropIn(ctx.run.model.width, ctx.dtype("compute"), ctx.run.encode.codec.stride)


LayerWord = Literal[
    "matrix", "embed", "head", "attention_in", "attention_out", "text", "feed_forward", "modulation"
]
WeightWord = LayerWord | Literal["vector"]


def one_order(chosen: Any) -> Any:
    """Words that somebody chose, one or several: sorted, so that equal choices are equal runs."""
    words = (
        (chosen,)
        if isinstance(chosen, str)
        else tuple(chosen)
        if isinstance(chosen, list | tuple)
        else chosen
    )
    if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
        return chosen  # the field says what it expected
    if not words:
        raise ValueError("names nothing: nothing would learn")
    return tuple(sorted(set(words)))


LayerWords = Annotated[tuple[LayerWord, ...], BeforeValidator(one_order)]
WeightWords = Annotated[tuple[WeightWord, ...], BeforeValidator(one_order)]


class LowRank(slots.LearnedFiller):
    """LoRA: every weight stays as it began; beside each chosen layer a product of two small
    matrices learns."""

    kind = "low_rank"
    rank: Width = 8
    alpha: Factor | None = None  # the product is scaled by alpha / rank; none: by one
    #: layers by role, or by what they are for
    targets: LayerWords = ("attention_in", "attention_out")

    def rank_beside(self, words: Collection[str]) -> int:
        return self.rank if set(self.targets) & set(words) else 0

    def problem(self, run: Any) -> str | None:
        # every target names some layer of every denoiser
        layer, side, rank = smallest_side(sizes_of(run), self)
        if rank >= side:
            return (
                f"rank {rank} is no less than the {side} inputs or outputs of '{layer}': choose a"
                " smaller one"
            )
        return super().problem(run)

    def build(self, ctx: Any) -> "Callable[[Backbone], None]":
        from fulcrum.training.model.adapter import adapt

        return lambda backbone: adapt(backbone, self.rank_beside, self.alpha or self.rank)


class ChosenWeights(slots.LearnedFiller):
    """Only the weights of the chosen roles learn, in the blocks start … end if they are given."""

    kind = "chosen_weights"
    roles: WeightWords = ("attention_in", "attention_out")  # or what a layer is for
    #: first block that learns; given this or the end, nothing outside of the blocks does
    start: BlockNumber | None = None
    end: BlockNumber | None = None  # last one, inclusive

    def learns(self, words: Collection[str], block: int | None, depth: int) -> bool:
        if not set(self.roles) & set(words):
            return False
        if self.start is None and self.end is None:
            return True
        first, last = (
            (0 if self.start is None else self.start),
            (-1 if self.end is None else self.end),
        )
        first, last = (end + depth if end < 0 else end for end in (first, last))
        return block is not None and first <= block <= last

    def problem(self, run: Any) -> str | None:
        depth = run.model.depth
        if outside := [
            end for end in (self.start, self.end) if end is not None and not -depth <= end < depth
        ]:
            return f"block {outside[0]} was asked for, but the model has blocks 0 to {depth - 1}"
        if not learned_weights(sizes_of(run), self, gains=1):
            where = (
                ""
                if self.start is None and self.end is None
                else f" in the blocks {self.start} to {self.end}"
            )
            return (
                f"nothing of the model has the role {' or '.join(self.roles)}{where}: no weight"
                " would learn"
            )
        return super().problem(run)

    def build(self, ctx: Any) -> "Callable[[Backbone], None]":
        from fulcrum.training.model.adapter import freeze

        return lambda backbone: freeze(backbone, self.learns)


FILLERS = (
    Dense,
    Carry,
    DropAndFuse,
    NoCondition,
    Resolution,
    SizeCrop,
    AllWeights,
    LowRank,
    ChosenWeights,
)
