"""End-to-end codec: tokenizer and denoiser are trained together.  REPA-E, arXiv:2504.10483

pixels ──► encoder ──► latent ──┬──► decoder ──► squared and absolute error, KL
                                ├──► projector ──► 1 - cosine with the teacher's tokens
                                └──× (no gradient) ──► running mean and variance ──► denoiser ──► flow matching
"""

from fulcrum.cost.codec_training import codec_parameters, tuning_flops
from fulcrum.cost.denoiser import parameters, training_flops
from fulcrum.encode.fillers import KL, TunedKL, WorldTeacher
from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.levers.shared.teacher_caution import told_nothing
from fulcrum.loss.fillers import CodecAlignment, CodecReconstruction
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Factor, Fraction
from fulcrum.spec.run import RunSpec


class EndToEndCodec(Lever):
    align: Factor = 1.5  # weight of the latent's alignment
    reconstruct: Factor = 1.0  # weight of the reconstruction
    half_life: Fraction = 0.02  # of the latents' running statistics, share of the budget
    lr_ratio: Factor = 0.03  # of the codec's learning rate to the run's; see the card

    name = "end_to_end_codec"
    touches = (
        "encode.codec",
        "encode.teachers",
        "terms.codec_reconstruction",
        "terms.codec_alignment",
    )
    card = Card(
        says="the codec goes on learning with the denoiser, by reconstruction and alignment, never by the diffusion loss",
        warns="a codec's forward and backward in every step, and no latent can be cached; an average of the weights is of "
        "the denoiser alone, the codec draws with its last; the gradient is clipped over both together; validation "
        "losses cannot be compared with any other run's, and the denoiser cannot be exported. At the denoiser's own "
        "rate the codec is lost before it is found: 31.3 dB fell to 17.7 in five steps of spark; with lr_ratio=0.03 "
        "to 29.4, and came back to 30.4 in eighty; " + told_nothing("the teacher"),
    )

    def terms(self) -> tuple[CodecReconstruction, CodecAlignment]:
        return CodecReconstruction(weight=self.reconstruct), CodecAlignment(weight=self.align)

    def edit(self, run: RunSpec) -> RunSpec:
        codec = run.encode.codec
        if not isinstance(codec, KL):
            raise BadInput(f"'{self.name}' trains an embedded codec, and this run has '{codec.kind}'")
        run = put(
            run,
            "encode.codec",
            TunedKL(channels=codec.channels, asset=codec.asset, half_life=self.half_life, lr_ratio=self.lr_ratio),
        )
        if not any(teacher.name == "world" for teacher in run.encode.teachers):
            run = put(run, "encode.teachers.world", WorldTeacher())
        for term in self.terms():
            run = put(run, f"terms.{term.name}", term)
        return run

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        return None if isinstance(codec, TunedKL) else f"something else replaced the codec by {codec}"

    def cost(self, run: RunSpec) -> Cost:
        edited, (_, alignment) = self.edit(run), self.terms()
        asset = edited.encode.codec.asset  # type: ignore[attr-defined]
        learned = parameters(run) + codec_parameters(asset) + alignment.parameters(edited)
        return Cost(
            flops=1 + (tuning_flops(edited, asset) + alignment.flops(edited)) / training_flops(run),
            memory=learned / parameters(run),
            parameters=learned / parameters(run),
        )

    def witness(self, built: Built) -> bool:
        codec = built.step.codec
        on = {"codec_reconstruction", "codec_alignment"} <= built.weights(0).keys()
        return bool(codec is not None and on and all(p.requires_grad for p in codec.parameters()))
