"""End-to-end codec: the denoiser's own alignment trains the codec too.  REPA-E, arXiv:2504.10483

pixels ──► encoder ──► sample ──┬──► decoder ──► absolute error, perceptual distance, KL
                                └──► running mean and variance ──► latent
latent ──► + noise at t ──► denoiser, weights frozen, up to the tap ──► its projector, frozen ──► 1.5 (1 - cosine) ──► codec
latent ──× (no gradient) ──► + noise at t ──► denoiser ──► flow matching, 0.5 (1 - cosine) ──► denoiser
"""

from typing import Annotated, Any, Literal

from fulcrum.levers.base import Built, Card, Cost
from fulcrum.levers.shared.teacher_caution import or_supervised
from fulcrum.levers.shared.teacher_choice import with_teacher
from fulcrum.levers.shared.trained_codec import TrainedCodec
from fulcrum.networks.fillers import WORLD_TEACHERS
from fulcrum.spec.edit import put
from fulcrum.spec.record import Factor, Share, Within
from fulcrum.spec.run import RunSpec
from fulcrum.training.loss.fillers import Alignment, CodecPerceptual, CodecReconstruction, EndToEndAlignment


class EndToEndCodec(TrainedCodec):
    align: Factor = 1.5  # weight of the alignment through the denoiser
    reconstruct: Factor = 1.0  # weight of the absolute error and of what stands beside it
    perceptual: Annotated[float, Within("[0, 1000]")] = 1.0  # weight of the perceptual distance; zero: there is none
    teacher: Literal["world", "supervised"] = "world"  # whose eyes the perceptual distance has
    kl: Share = 3e-4  # of the KL, mean over the latent

    name = "end_to_end_codec"
    sampled = True
    touches = (
        "encode.codec",
        "terms.codec_reconstruction",
        "terms.codec_perceptual",
        "terms.end_to_end_alignment",
    )
    card = Card(
        says="the denoiser's own alignment trains the codec too, through the denoiser; its diffusion loss never does",
        warns="needs a denoiser that is aligned, in all stages. As the authors: a sampled latent, running statistics, "
        "captions kept in the codec's pass, weights 1.5 and (the denoiser's own) 0.5, codec and denoiser clipped apart. "
        "Not as they: no GAN (0.1 there); the perceptual network is the embedded teacher, not VGG; the denoiser's "
        "latents too are normalised by running statistics, theirs by the batch's own; KL 3e-4 of the mean, 1e-6 of the "
        "sum there; the codec's rate is 0.03 of the run's (3e-4 in spark; 1e-4 there, as the denoiser's); theirs was "
        "ImageNet by class, with a teacher without labels. A codec's forward and backward in every step, and no latent "
        "can be cached: a step of spark with an aligned denoiser takes 5.9 times as long (median over 40 steps, one "
        "thread). 32.4 dB stayed 32.4 over the first 45 steps. An average of the weights is of the denoiser alone, the "
        "codec draws with its last; validation losses cannot be compared with any other run's, and a denoiser is of use "
        "only with its own codec; " + or_supervised("the perceptual network"),
    )

    def terms(self) -> tuple[Any, ...]:
        distance = {"weight": self.perceptual, "asset": WORLD_TEACHERS[self.teacher]}
        return (
            CodecReconstruction(weight=self.reconstruct, squared=0.0, absolute=1.0, kl=self.kl),
            *([CodecPerceptual.model_validate(distance)] if self.perceptual else []),
            EndToEndAlignment(weight=self.align),
        )

    def cost(self, run: RunSpec) -> Cost:
        """Against a run whose denoiser is aligned already; where it is not yet, as if it were."""
        if EndToEndAlignment().alignment(run) is None:
            run = put(with_teacher(run, Alignment().teacher), "terms.alignment", Alignment())
        return super().cost(run)

    def witness(self, built: Built) -> bool:
        """And the codec is trained through the denoiser's first blocks, which get no gradient from it."""
        stem = built.step.stem
        return super().witness(built) and stem is not None and not any(w.requires_grad for w in stem.backbone.parameters())
