"""Latent alignment: the codec goes on learning, its clean latent drawn towards a teacher.  As VA-VAE, arXiv:2501.01423

pixels ──► encoder ──► mean ──┬──► decoder (of a sample) ──► squared and absolute error, KL
                              ├──► a head of its own ──► 1 - cosine with the teacher's tokens
                              └──× (no gradient) ──► running mean and variance ──► denoiser ──► flow matching
"""

from typing import Any

from fulcrum.levers.base import Card
from fulcrum.levers.shared.teacher_caution import or_supervised
from fulcrum.levers.shared.teacher_choice import with_teacher
from fulcrum.levers.shared.trained_codec import TrainedCodec
from fulcrum.spec.record import Factor
from fulcrum.spec.run import RunSpec
from fulcrum.training.loss.fillers import CodecAlignment, CodecReconstruction


class UseLatentAlignment(TrainedCodec):
    align: Factor = 1.5  # weight of the latent's alignment
    reconstruct: Factor = 1.0  # weight of the reconstruction
    teacher: str = "world"  # or supervised, or one that the run has

    name = "latent_alignment"
    sampled = False
    touches = (
        "encode.codec",
        "encode.teachers",
        "terms.codec_reconstruction",
        "terms.codec_alignment",
    )
    card = Card(
        says="the codec goes on learning beside the denoiser: its clean latent is drawn to where a teacher points",
        warns="not REPA-E: a head of the codec's own reads the clean latent, and the denoiser has no say in what the codec "
        "learns. VA-VAE aligns so, but before there is a denoiser, of sampled latents, by a linear map, with margins "
        "and a second term for distances between tokens; ours is a cosine through three layers, beside the denoiser's "
        "training. A codec's forward and backward in every step, and no latent can be cached; an average of the weights "
        "is of the denoiser alone, the codec draws with its last; codec and denoiser are clipped apart; validation "
        "losses cannot be compared with any other run's, and a denoiser is of use only with its own codec. A step of "
        "spark takes 4.5 times as long (median over 40 steps, one thread); 32.4 dB fell to 32.2 in the first 45 steps. "
        "With the former codec and one clip for both, 31.3 dB fell to 17.7 in five steps at the denoiser's own rate "
        "(lr_ratio=1): hence 0.03; " + or_supervised("the teacher"),
    )

    def terms(self) -> tuple[Any, ...]:
        return CodecReconstruction(weight=self.reconstruct), CodecAlignment(weight=self.align, teacher=self.teacher)

    def edit(self, run: RunSpec) -> RunSpec:
        return with_teacher(super().edit(run), self.teacher)
