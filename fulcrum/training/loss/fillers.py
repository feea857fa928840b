"""Fillers of the loss slot: settings of every term."""

from math import cos, isqrt, pi
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from fulcrum.spec import slots
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import INPUT_ONLY, TEXT_TOKENS, TRAINING, sizes_of, stem_flops
from fulcrum.spec.record import Count, Factor, Fraction, Share, Until, Width, Within
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images, phases

if TYPE_CHECKING:
    from fulcrum.training.build import Context
    from fulcrum.training.loss.terms import Term


# --------------------------------------------------------------------------------------------------
# Records of the terms that look at the predicted picture through a frozen network.


PATCH = 4  # px per token of the embedded teacher, as in encode.teacher
SAVED = 105  # numbers per pixel that its backward reads, as counted
VGG_PACKAGE = "stlpips-pytorch"
VGG_LEAST = 18  # px of a side: below it nothing is left to blur before the last stage


class PictureTerm(slots.TermFiller):
    """What terms share that look at the predicted picture through a frozen network."""

    weight: Factor

    def problem(self, run: RunSpec) -> str | None:
        """What keeps the term from working in this run, in words, or None."""
        codec = run.encode.codec
        if codec.stride != 1 or codec.channels != 3:
            return (
                f"it looks at pictures, but the denoiser sees {codec.channels} channels, stride"
                f" {codec.stride}; it needs pixels, 3 channels at a stride of 1: add pixels +"
                " x_prediction"
            )
        if run.flow.predict.kind != "x":
            return (
                "it looks at the predicted clean picture, and the network predicts"
                f" '{run.flow.predict.kind}' (flow.predict=x predicts the picture)"
            )
        return next(filter(None, (self.misfit(phase.run.data.size) for phase in phases(run))), None)

    def misfit(self, size: int) -> str | None:
        """Why its network cannot look at pictures of this size, in words, or None."""
        return None

    def flops(self, run: RunSpec) -> float:
        """Of one image, on average over the budget: the network on both pictures, and back to the
        predicted one."""
        return mean_over_images(
            run, lambda phase: 3 * self.forward_flops(phase.data.size) if self in phase.terms else 0
        )

    def forward_flops(self, size: int) -> float:
        """Convolutions of the network on one picture, up to where the term reads it."""
        raise BadInput(
            f"{type(self).__name__} does not say what it costs", "define forward_flops(size)"
        )

    def parameters(self, run: RunSpec) -> int:
        return 0  # its network is frozen

    def saved(self, size: int) -> float:
        """Numbers that the backward of one picture of this size reads."""
        raise BadInput(f"{type(self).__name__} does not say what it keeps", "define saved(size)")

    def numbers(self, run: RunSpec) -> float:
        """That the backward of one image reads."""
        return max(
            self.saved(phase.run.data.size) for phase in phases(run) if self in phase.run.terms
        )


class Perceptual(PictureTerm):
    """What the terms share that look through an embedded teacher."""

    world_only: ClassVar[bool] = True
    #: an alignment teacher; never a metric's network
    asset: Literal["teacher", "teacher_supervised"] = "teacher"

    def hashes(self) -> dict[str, str]:
        from fulcrum.files.shipped import asset_hash

        return {f"asset:{self.asset}": asset_hash(self.asset)}

    def network(self) -> Any:
        from fulcrum.networks.teacher import load_teacher

        return load_teacher(self.asset)

    def misfit(self, size: int) -> str | None:
        return (
            f"its network needs sides that are multiples of {PATCH} px, found {size} px"
            if size % PATCH
            else None
        )

    def saved(self, size: int) -> float:
        return SAVED * size**2

    def forward_flops(self, size: int) -> float:
        from fulcrum.files.shipped import card

        config = card(self.asset)["config"]
        fine, coarse = int(config["fine"]), int(config["coarse"])
        halves, quarters = (size // 2) ** 2, (size // PATCH) ** 2
        wide = len(config["dilations"]) * 2 * 9 * coarse**2
        return 2.0 * (halves * 9 * 12 * fine + quarters * (4 * fine * coarse + wide))


class PerceptualFeatures(Perceptual):
    """1 - cosine of patch tokens of the predicted and the true picture."""

    kind = "perceptual_features"
    name: str = "perceptual_features"
    weight: Factor = 0.01

    def forward_flops(self, size: int) -> float:
        from fulcrum.files.shipped import card

        config = card(self.asset)["config"]
        return super().forward_flops(size) + 2.0 * (size // PATCH) ** 2 * int(
            config["coarse"]
        ) * int(config["width"])

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.perceptual import FeatureTerm

        return FeatureTerm(self.network(), ctx.system.device)


class LPIPS(Perceptual):
    """Squared differences of unit-normalised features of the network's stages."""

    kind = "lpips"
    name: str = "lpips"
    weight: Factor = 0.1

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.perceptual import StageTerm

        return StageTerm(self.network(), ctx.system.device)


class VGGLPIPS(PictureTerm):
    """LPIPS through VGG16 and its learned weights, from the package stlpips-pytorch (blurred
    pooling: arXiv:2207.13686)."""

    kind = "vgg_lpips"
    name: str = "lpips"
    weight: Factor = 0.1

    def hashes(self) -> dict[str, str]:
        from fulcrum.networks.pretrained.folder import PACKAGES

        return {
            f"package:{VGG_PACKAGE}/{path}": sha
            for path, sha in PACKAGES[VGG_PACKAGE].files.items()
        }

    def problem(self, run: RunSpec) -> str | None:
        from fulcrum.networks.pretrained.folder import installed

        if problem := super().problem(run):
            return problem
        installed(VGG_PACKAGE)  # refused here, and never replaced by another network
        return None

    def misfit(self, size: int) -> str | None:
        return (
            f"VGG needs sides of at least {VGG_LEAST} px, found {size} px"
            if size < VGG_LEAST
            else None
        )

    def forward_flops(self, size: int) -> float:
        from fulcrum.networks.pretrained.vision import convolutions

        return 2.0 * sum(
            side**2 * 9 * inputs * outputs for side, inputs, outputs in convolutions(size)
        )

    def saved(self, size: int) -> float:
        from fulcrum.networks.pretrained.vision import convolutions

        total, before, channels = 0.0, size, 3
        for side, inputs, outputs in convolutions(size):
            # the stage's difference; then of a blur: where the largest stood, those, and mirrored
            # edges
            if inputs == 1:
                total += outputs * (before**2 + 3 * (before - 1) ** 2 + (before + 3) ** 2)
            total += outputs * side**2
            before, channels = side, outputs
        return total + channels * before**2

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.networks.pretrained.vision import load_vgg
        from fulcrum.training.loss.perceptual import VGGTerm

        return VGGTerm(load_vgg(), ctx.system.device)


# --------------------------------------------------------------------------------------------------
# Records of the other loss terms.


class FlowMatching(slots.TermFiller):
    kind = "flow_matching"
    name: str = "flow_matching"
    weight: Annotated[float, Within("[0, 1000]")] = 1.0  # zero: off, for a stage

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.terms import FlowMatchingTerm

        return FlowMatchingTerm(ctx.run.flow.weight.build(ctx))


class Contrastive(slots.TermFiller):
    """Away from the velocities of other samples; compared inside chunks of fixed size."""

    kind = "contrastive"
    name: str = "contrastive"
    weight: Fraction = 0.05  # lambda; the term itself is negative
    #: rows that are compared with each other; a part of the run, not of the machine
    chunk: Count = 8

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.terms import ContrastiveTerm

        return ContrastiveTerm(self.chunk, ctx.run.flow.weight.build(ctx))


class Alignment(slots.TermFiller):
    """1 - cosine between a projected layer and a frozen teacher's tokens on the same grid, mean
    over tokens."""

    kind = "alignment"
    name: str = "alignment"
    weight: Factor = 0.5
    teacher: str = "world"
    layer: int | None = None  # negative counts from the end; None = the middle, 8th of 16
    projector: Literal["mlp", "conv"] = "mlp"
    normalise: bool = False  # the teacher's tokens, over space
    #: share of their mean over tokens that is taken away then; runs from before it had all of it
    alpha: Share = 1.0
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

    def record(self, run: RunSpec) -> slots.TeacherFiller | None:
        """The run's teacher of this name, or the one that takes its place."""
        return run.encode.teacher(self.teacher)

    def problem(self, run: RunSpec) -> str | None:
        """What keeps the term from working in this run, in words, or None."""
        depth = run.model.depth
        if not 0 <= self.tap(depth) < depth:
            return f"it reads block {self.layer}, but the model has blocks 0 to {depth - 1}"
        return next(
            filter(
                None, (self._misfit(phase.run) for phase in phases(run) if self in phase.run.terms)
            ),
            None,
        )

    def _misfit(self, run: RunSpec) -> str | None:
        teacher, size = self.record(run), run.data.size
        if teacher is None:
            known = ", ".join(one.name for one in run.encode.teachers) or "none"
            return f"no teacher is called '{self.teacher}'; teachers of this run: {known}"
        if size % teacher.patch:
            return (
                f"the teacher '{self.teacher}' needs sides that are multiples of {teacher.patch}"
                f" px, found {size} px"
            )
        own, side = size // teacher.patch, isqrt(run.tokens)
        if own < side:
            return (
                f"at {size} px the teacher '{self.teacher}' has {own} x {own} tokens, too few for"
                f" the model's {side} x {side}: a token is {teacher.patch} px of the teacher's,"
                f" {size // side} px of the model's; larger tokens fit: --set"
                f" model.patch={-(-teacher.patch // run.encode.codec.stride)}"
            )
        if self.normalise and side == 1:
            return "the teacher's tokens cannot be normalised over space: the model has one token"
        return None

    def parameters(self, run: RunSpec) -> int:
        width, out = run.model.width, self._width(run)
        return (
            9 * width * out + out
            if self.projector == "conv"
            else 2 * (width * width + width) + width * out + out
        )

    def flops(self, run: RunSpec) -> float:
        """Of one image, forward and backward, on average over the budget; the teacher's tokens come
        from the cache."""
        images, spent = run.budget.images, 0.0
        for phase in phases(run):
            if self in phase.run.terms:
                on = min(phase.end, self.until * images) - phase.start
                spent += max(on, 0.0) * self._flops(phase.run)
        return spent / images

    def _flops(self, run: RunSpec) -> float:
        width, out = run.model.width, self._width(run)
        return (
            TRAINING
            * 2.0
            * self._tokens(run)
            * width
            * (9 * out if self.projector == "conv" else 2 * width + out)
        )

    def numbers(self, run: RunSpec) -> float:
        """That the backward of one image reads, where the term sees most tokens; counted in an
        eager pass."""
        return max(
            self._kept_numbers(phase.run) for phase in phases(run) if self in phase.run.terms
        )

    def _kept_numbers(self, run: RunSpec) -> float:
        """Of a convolution over a routed block: the whole grid, and the block's tokens as they are
        put into it."""
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
                f"the term '{self.name}' reads the teacher '{self.teacher}'; teachers of this run:"
                f" {known}",
                "a term of a stage is counted in a phase that has it (fulcrum.spec.stage.phases):"
                " its teacher is there too",
            )
        return teacher.width

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.terms import AlignmentTerm, ConvProjector, MLPProjector

        runs = [phase.run for phase in phases(ctx.run) if self in phase.run.terms]
        make = ConvProjector if self.projector == "conv" else MLPProjector
        projector = make(ctx.run.model.width, self._width(runs[0]))
        return AlignmentTerm(
            self.tap(ctx.run.model.depth), self.teacher, projector, self.normalise, self.alpha
        )


FILLERS = (FlowMatching, Contrastive, Alignment, PerceptualFeatures, LPIPS, VGGLPIPS)


# --------------------------------------------------------------------------------------------------
# Records of the terms that train a codec beside the denoiser.


class CodecReconstruction(slots.TermFiller):
    """Squared and absolute error of decoded samples, and a light KL: by default what the embedded
    codec was trained by, without its weight on objects."""

    kind = "codec_reconstruction"
    name: str = "codec_reconstruction"
    weight: Factor = 1.0
    squared: Share = 1.0
    absolute: Share = 0.1
    kl: Share = 3e-4

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.codec_terms import ReconstructionTerm

        return ReconstructionTerm(self.squared, self.absolute, self.kl)


class CodecPerceptual(Perceptual):
    """Squared differences of unit-normalised features of the network's stages, of a decoded picture
    and the true one."""

    kind = "codec_perceptual"
    name: str = "codec_perceptual"
    weight: Factor = 1.0

    def problem(self, run: RunSpec) -> str | None:
        return (
            None
            if run.encode.codec.trained
            else "it looks at what a codec decodes that is trained, and this one is not"
        )

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.perceptual import DecodedStageTerm

        return DecodedStageTerm(self.network(), ctx.system.device)


class CodecAlignment(slots.TermFiller):
    """1 - cosine between a projection of the clean latent, by a head of its own, and a frozen
    teacher's tokens, mean over the model's tokens."""

    kind = "codec_alignment"
    name: str = "codec_alignment"
    weight: Factor = 1.5
    teacher: str = "world"
    hidden: Width = 128

    def teachers(self) -> tuple[str, ...]:
        return (self.teacher,)

    def problem(self, run: RunSpec) -> str | None:
        """What keeps the term from working in this run, in words, or None."""
        if run.encode.teacher(self.teacher) is not None:
            return None
        known = ", ".join(teacher.name for teacher in run.encode.teachers) or "none"
        return f"no teacher is called '{self.teacher}'; teachers of this run: {known}"

    def widths(self, run: RunSpec) -> tuple[int, int, int]:
        """Of the projector: into, inside, out."""
        teacher = run.encode.teacher(self.teacher)
        if teacher is None:
            raise BadInput(str(self.problem(run)))
        return run.encode.codec.channels * run.model.patch**2, self.hidden, teacher.width

    def parameters(self, run: RunSpec) -> int:
        into, hidden, out = self.widths(run)
        return (into + 1) * hidden + (hidden + 1) * hidden + (hidden + 1) * out

    def flops(self, run: RunSpec) -> float:
        """Of one image, forward and backward, on average over the budget."""
        into, hidden, out = self.widths(run)
        return (
            TRAINING
            * 2.0
            * mean_over_images(run, lambda phase: phase.tokens)
            * hidden
            * (into + hidden + out)
        )

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.codec_terms import LatentAlignmentTerm

        _, hidden, out = self.widths(ctx.run)
        return LatentAlignmentTerm(
            self.teacher, ctx.run.model.patch, ctx.run.encode.codec.channels, out, hidden
        )


class EndToEndAlignment(slots.TermFiller):
    """What the denoiser's own alignment term says of the codec's noised latent; its gradient is the
    codec's alone."""

    kind = "end_to_end_alignment"
    name: str = "end_to_end_alignment"
    weight: Factor = 1.5

    def alignment(self, run: RunSpec) -> Alignment | None:
        """The term whose tap, projector and teacher it shares."""
        return next((term for term in run.terms if isinstance(term, Alignment)), None)

    def problem(self, run: RunSpec) -> str | None:
        """What keeps the term from working in this run, in words, or None."""
        if not run.encode.codec.trained:
            return (
                "it aligns a codec that is trained, and the codec of this run is"
                f" {run.encode.codec}"
            )
        for phase in phases(run):
            alignment = self.alignment(phase.run)
            if alignment is None:
                return (
                    "it aligns the codec through the denoiser's own alignment, and this run has"
                    " none, or not in all of its stages: add repa or irepa, for the whole budget"
                )
            if alignment.until < 1:
                return (
                    "the denoiser's alignment, which aligns the codec too, ends after"
                    f" {alignment.until:g} of the budget, and its projector would no longer follow:"
                    " let it stay on"
                )
        return None

    def flops(self, run: RunSpec) -> float:
        """Of one image, on average over the budget: the denoiser up to the tap and the projector,
        forward, and back to their input alone."""
        return mean_over_images(run, self._flops)

    def _flops(self, run: RunSpec) -> float:
        alignment = self.alignment(run)
        if alignment is None:
            return 0.0
        kept, last = run.model.route.kept(run.tokens), alignment.tap(run.model.depth)
        return (
            stem_flops(sizes_of(run), run.tokens, TEXT_TOKENS, last, kept)
            + alignment.flops(run) * INPUT_ONLY / TRAINING
        )

    def build(self, ctx: "Context") -> "Term":
        from fulcrum.training.loss.codec_terms import EndToEndAlignmentTerm

        alignment = self.alignment(ctx.run)
        if alignment is None:
            raise BadInput(
                "the codec is aligned through the denoiser's own alignment",
                "add a term of the kind 'alignment'",
            )
        return EndToEndAlignmentTerm(alignment.name, alignment.tap(ctx.run.model.depth))


CODEC_FILLERS = (CodecReconstruction, CodecPerceptual, CodecAlignment, EndToEndAlignment)
