"""Records of the terms that train a codec beside the denoiser."""

from typing import TYPE_CHECKING, Any

from fulcrum.loss.fillers import Alignment
from fulcrum.loss.perceptual_fillers import Perceptual
from fulcrum.spec import slots as seam
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import INPUT_ONLY, TEXT_TOKENS, TRAINING, sizes_of, stem_flops
from fulcrum.spec.record import Factor, Share, Width
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images, phases

if TYPE_CHECKING:
    from fulcrum.loss.term import Term


class CodecReconstruction(seam.TermFiller):
    """Squared and absolute error of decoded samples, and a light KL: by default what the embedded codec was trained by,
    without its weight on objects."""

    kind = "codec_reconstruction"
    name: str = "codec_reconstruction"
    weight: Factor = 1.0
    squared: Share = 1.0
    absolute: Share = 0.1
    kl: Share = 3e-4

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.codec_terms import ReconstructionTerm

        return ReconstructionTerm(self.squared, self.absolute, self.kl)


class CodecPerceptual(Perceptual):
    """Squared differences of unit-normalised features of the network's stages, of a decoded picture and the true one."""

    kind = "codec_perceptual"
    name: str = "codec_perceptual"
    weight: Factor = 1.0

    def problem(self, run: RunSpec) -> str | None:
        return None if run.encode.codec.trained else "it looks at what a codec decodes that is trained, and this one is not"

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.perceptual import DecodedStageTerm

        return DecodedStageTerm(self.network(), ctx.system.device)


class CodecAlignment(seam.TermFiller):
    """1 - cosine between a projection of the clean latent, by a head of its own, and a frozen teacher's tokens, mean over
    the model's tokens."""

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
        return TRAINING * 2.0 * mean_over_images(run, lambda phase: phase.tokens) * hidden * (into + hidden + out)

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.codec_terms import LatentAlignmentTerm

        _, hidden, out = self.widths(ctx.run)
        return LatentAlignmentTerm(self.teacher, ctx.run.model.patch, ctx.run.encode.codec.channels, out, hidden)


class EndToEndAlignment(seam.TermFiller):
    """What the denoiser's own alignment term says of the codec's noised latent; its gradient is the codec's alone."""

    kind = "end_to_end_alignment"
    name: str = "end_to_end_alignment"
    weight: Factor = 1.5

    def alignment(self, run: RunSpec) -> Alignment | None:
        """The term whose tap, projector and teacher it shares."""
        return next((term for term in run.terms if isinstance(term, Alignment)), None)

    def problem(self, run: RunSpec) -> str | None:
        """What keeps the term from working in this run, in words, or None."""
        if not run.encode.codec.trained:
            return f"it aligns a codec that is trained, and the codec of this run is {run.encode.codec}"
        for phase in phases(run):
            alignment = self.alignment(phase.run)
            if alignment is None:
                return (
                    "it aligns the codec through the denoiser's own alignment, and this run has none, or not in all of its "
                    "stages: add repa or irepa, for the whole budget"
                )
            if alignment.until < 1:
                return (
                    f"the denoiser's alignment, which aligns the codec too, ends after {alignment.until:g} of the budget, "
                    "and its projector would no longer follow: let it stay on"
                )
        return None

    def flops(self, run: RunSpec) -> float:
        """Of one image, on average over the budget: the denoiser up to the tap and the projector, forward, and back to
        their input alone."""
        return mean_over_images(run, self._flops)

    def _flops(self, run: RunSpec) -> float:
        alignment = self.alignment(run)
        if alignment is None:
            return 0.0
        kept, last = run.model.route.kept(run.tokens), alignment.tap(run.model.depth)
        return stem_flops(sizes_of(run), run.tokens, TEXT_TOKENS, last, kept) + alignment.flops(run) * INPUT_ONLY / TRAINING

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.codec_terms import EndToEndAlignmentTerm

        alignment = self.alignment(ctx.run)
        if alignment is None:
            raise BadInput(
                "the codec is aligned through the denoiser's own alignment", "add a term of the kind 'alignment'"
            )
        return EndToEndAlignmentTerm(alignment.name, alignment.tap(ctx.run.model.depth))


CODEC_FILLERS = (CodecReconstruction, CodecPerceptual, CodecAlignment, EndToEndAlignment)
