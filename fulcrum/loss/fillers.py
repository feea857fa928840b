"""Records of the loss terms; those that look through a network stand in `perceptual_fillers.py`."""

from math import cos, isqrt, pi
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fulcrum.loss.perceptual_fillers import LPIPS as LPIPS  # others may build on all that stands in here
from fulcrum.loss.perceptual_fillers import VGGLPIPS as VGGLPIPS
from fulcrum.loss.perceptual_fillers import Perceptual as Perceptual
from fulcrum.loss.perceptual_fillers import PerceptualFeatures as PerceptualFeatures
from fulcrum.loss.perceptual_fillers import PictureTerm as PictureTerm
from fulcrum.spec import slots as seam
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import TRAINING
from fulcrum.spec.record import Count, Factor, Fraction, Share, Until, Within
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases

if TYPE_CHECKING:
    from fulcrum.loss.term import Term


class FlowMatching(seam.TermFiller):
    kind = "flow_matching"
    name: str = "flow_matching"
    weight: Annotated[float, Within("[0, 1000]")] = 1.0  # zero: off, for a stage

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.flow_matching import FlowMatchingTerm

        return FlowMatchingTerm(ctx.run.flow.weight.build(ctx))


class Contrastive(seam.TermFiller):
    """Away from the velocities of other samples; compared inside chunks of fixed size."""

    kind = "contrastive"
    name: str = "contrastive"
    weight: Fraction = 0.05  # lambda; the term itself is negative
    chunk: Count = 8  # rows that are compared with each other; a part of the run, not of the machine

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.contrastive import ContrastiveTerm

        return ContrastiveTerm(self.chunk, ctx.run.flow.weight.build(ctx))


class Alignment(seam.TermFiller):
    """1 - cosine between a projected layer and a frozen teacher's tokens on the same grid, mean over tokens."""

    kind = "alignment"
    name: str = "alignment"
    weight: Factor = 0.5
    teacher: str = "world"
    layer: int | None = None  # negative counts from the end; None = the middle, 8th of 16
    projector: Literal["mlp", "conv"] = "mlp"
    normalise: bool = False  # the teacher's tokens, over space
    alpha: Share = 1.0  # share of their mean over tokens that is taken away then; runs from before it had all of it
    schedule: Literal["constant", "cosine"] = "constant"  # as it is, or falling to zero
    until: Until = 1.0  # share of the budget after which it is off

    def weight_at(self, progress: float) -> float:
        if self.until < 1 and progress >= self.until:
            return 0.0
        if self.schedule == "cosine":
            return self.weight * (1 + cos(pi * progress / self.until)) / 2
        return self.weight

    def teachers(self) -> tuple[str, ...]:
        return (self.teacher,)

    def tap(self, depth: int) -> int:
        """The block that is read, counted from zero; it may lie outside the model."""
        layer = (depth - 1) // 2 if self.layer is None else self.layer
        return layer + depth if layer < 0 else layer

    def record(self, run: RunSpec) -> seam.TeacherFiller | None:
        """The run's teacher of this name, or the one that takes its place."""
        return run.encode.teacher(self.teacher)

    def problem(self, run: RunSpec) -> str | None:
        """What keeps the term from working in this run, in words, or None."""
        depth = run.model.depth
        if not 0 <= self.tap(depth) < depth:
            return f"it reads block {self.layer}, but the model has blocks 0 to {depth - 1}"
        return next(filter(None, (self._misfit(phase.run) for phase in phases(run) if self in phase.run.terms)), None)

    def _misfit(self, run: RunSpec) -> str | None:
        teacher, size = self.record(run), run.data.size
        if teacher is None:
            known = ", ".join(one.name for one in run.encode.teachers) or "none"
            return f"no teacher is called '{self.teacher}'; teachers of this run: {known}"
        if size % teacher.patch:
            return f"the teacher '{self.teacher}' needs sides that are multiples of {teacher.patch} px, found {size} px"
        own, side = size // teacher.patch, isqrt(run.tokens)
        if own < side:
            return (
                f"at {size} px the teacher '{self.teacher}' has {own} x {own} tokens, too few for the model's "
                f"{side} x {side}: a token is {teacher.patch} px of the teacher's, {size // side} px of the model's; "
                f"larger tokens fit: --set model.patch={-(-teacher.patch // run.encode.codec.stride)}"
            )
        if self.normalise and side == 1:
            return "the teacher's tokens cannot be normalised over space: the model has one token"
        return None

    def parameters(self, run: RunSpec) -> int:
        width, out = run.model.width, self._width(run)
        return 9 * width * out + out if self.projector == "conv" else 2 * (width * width + width) + width * out + out

    def flops(self, run: RunSpec) -> float:
        """Of one image, forward and backward, on average over the budget; the teacher's tokens come from the cache."""
        images, spent = run.budget.images, 0.0
        for phase in phases(run):
            on = min(phase.end, self.until * images) - phase.start if self in phase.run.terms else 0.0
            spent += max(on, 0.0) * self._flops(phase.run)
        return spent / images

    def _flops(self, run: RunSpec) -> float:
        width, out = run.model.width, self._width(run)
        return TRAINING * 2.0 * self._tokens(run) * width * (9 * out if self.projector == "conv" else 2 * width + out)

    def numbers(self, run: RunSpec) -> float:
        """That the backward of one image reads, where the term sees most tokens; counted in an eager pass."""
        return max(self._kept_numbers(phase.run) for phase in phases(run) if self in phase.run.terms)

    def _kept_numbers(self, run: RunSpec) -> float:
        """Of a convolution over a routed block: the whole grid, and the block's tokens as they are put into it."""
        seen, width, conv = self._seen(run), run.model.width, self.projector == "conv"
        grid = run.tokens + (seen if seen < run.tokens else 0)
        return (grid if conv else 5 * seen) * width + 2 * seen * self._width(run)

    def _tokens(self, run: RunSpec) -> int:
        """That the projector computes: those of its block, or the whole grid of a convolution."""
        return run.tokens if self.projector == "conv" else self._seen(run)

    def _seen(self, run: RunSpec) -> int:
        """Tokens of the block that is drawn towards the teacher."""
        route = run.model.route
        start, end = route.bounds(run.model.depth)
        return route.kept(run.tokens) if start <= self.tap(run.model.depth) <= end else run.tokens

    def _width(self, run: RunSpec) -> int:
        teacher = self.record(run)
        if teacher is None:
            known = ", ".join(one.name for one in run.encode.teachers) or "none"
            raise BadInput(
                f"the term '{self.name}' reads the teacher '{self.teacher}'; teachers of this run: {known}",
                "a term of a stage is counted in a phase that has it (fulcrum.spec.stage.phases): its teacher is there too",
            )
        return teacher.width

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.alignment import AlignmentTerm, ConvProjector, MLPProjector

        runs = [phase.run for phase in phases(ctx.run) if self in phase.run.terms]
        make = ConvProjector if self.projector == "conv" else MLPProjector
        projector = make(ctx.run.model.width, self._width(runs[0]))
        return AlignmentTerm(self.tap(ctx.run.model.depth), self.teacher, projector, self.normalise, self.alpha)


FILLERS = (FlowMatching, Contrastive, Alignment, PerceptualFeatures, LPIPS, VGGLPIPS)
