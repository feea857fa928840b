"""Levers that replace the codec or the text encoder, or train the codec along."""

from typing import Annotated, Any, ClassVar, Literal

from fulcrum.levers import published as price
from fulcrum.levers.alignment import or_supervised, told_nothing, with_teacher
from fulcrum.levers.base import ANY, Built, Card, Cost, Lever
from fulcrum.levers.folder_lever import CodecFromFolder, FromFolder
from fulcrum.levers.published import claim
from fulcrum.networks.codec_flops import codec_parameters, tuning_flops
from fulcrum.networks.fillers import KL, WORLD_TEACHERS, FolderText, Pixels, TunedKL
from fulcrum.networks.pretrained.config_facts import TEXT_PARTS, text_facts
from fulcrum.spec.edit import put, put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.record import Count, Factor, Fraction, Share, Within
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import Velocity
from fulcrum.training.loss.fillers import (
    Alignment,
    CodecAlignment,
    CodecPerceptual,
    CodecReconstruction,
    EndToEndAlignment,
)

# --------------------------------------------------------------------------------------------------
# What the levers that swap the embedded codec for another shipped one share: the edit, and that
# nothing else undid it.


class ShippedCodec(Lever):
    """A lever that puts a shipped part in the place of the run's KL codec; a subclass says which,
    and its channels."""

    touches = ("encode.codec",)
    asset: ClassVar[str]
    channels: ClassVar[int]
    verb: ClassVar[str] = "swaps"

    def edit(self, run: RunSpec) -> RunSpec:
        codec = run.encode.codec
        if not isinstance(codec, KL):
            raise BadInput(
                f"'{self.name}' {self.verb} an embedded codec, and this run has '{codec.kind}'"
            )
        return put(
            run,
            "encode.codec",
            type(codec)(**{**dict(codec), "asset": self.asset, "channels": self.channels}),
        )

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        swapped = isinstance(codec, KL) and codec.asset == self.asset
        return None if swapped else f"something else replaced the codec by {codec}"


# --------------------------------------------------------------------------------------------------
# What the levers that train the codec with the denoiser share: the codec, its terms, what it costs,
# and a witness.


class TrainedCodec(Lever):
    """A lever whose run goes on training its embedded codec; a subclass says by which terms."""

    half_life: Fraction = 0.02  # of the latents' running statistics, share of the budget
    lr_ratio: Factor = 0.03  # of the codec's learning rate to the run's; see the card

    sampled: ClassVar[bool]  # is the denoiser shown a sample of the posterior, or its mean?

    def terms(self) -> tuple[Any, ...]:
        """The terms that train the codec."""
        raise BadInput(f"{type(self).__name__} defines no `terms`")

    def edit(self, run: RunSpec) -> RunSpec:
        codec = run.encode.codec
        if not isinstance(codec, KL):
            raise BadInput(
                f"'{self.name}' trains an embedded codec, and this run has '{codec.kind}'"
            )
        tuned = TunedKL(
            channels=codec.channels,
            asset=codec.asset,
            half_life=self.half_life,
            lr_ratio=self.lr_ratio,
            sampled=self.sampled,
        )
        run = put(run, "encode.codec", tuned)
        for term in self.terms():
            run = put(run, f"terms.{term.name}", term)
        return run

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        if not isinstance(codec, TunedKL):
            return f"something else replaced the codec by {codec}"
        problems = (term.problem(run) for term in self.terms())
        return next(filter(None, problems), None)

    def cost(self, run: RunSpec) -> Cost:
        """Against the run with the terms that it has already."""
        edited, terms = self.edit(run), self.terms()
        asset = edited.encode.codec.asset  # type: ignore[attr-defined]
        before = denoiser_training_flops(run) + sum(term.flops(run) or 0.0 for term in run.terms)
        more = tuning_flops(edited, asset) + sum(term.flops(edited) or 0.0 for term in terms)
        learned = codec_parameters(asset) + sum(term.parameters(edited) for term in terms)
        share = learned / (parameters(run) + sum(term.parameters(run) for term in run.terms))
        return Cost(flops=1 + more / before, memory=1 + share, parameters=1 + share)

    def witness(self, built: Built) -> bool:
        """Its terms are on, they are its own, and the codec gets gradients."""
        codec, on = (
            built.step.codec,
            {term.name for term in self.terms()} <= built.weights(0).keys(),
        )
        return bool(
            codec is not None and on and all(weight.requires_grad for weight in codec.parameters())
        )


# --------------------------------------------------------------------------------------------------
# Aligned codec: the tokenizer was drawn towards a vision teacher when it was made; frozen as the
# baseline's is.
#
# The swap of REPA-E (arXiv:2504.10483), without its end-to-end training.


SCOPE = "REPA-E VAE instead of FLUX.1's, 256 px latents, 1.2 B parameters, 100k steps"


class AlignedCodec(ShippedCodec):
    name = "aligned_codec"
    asset, channels = "codec_aligned", 8
    card = Card(
        says=(
            "latents that already say what a vision teacher sees: easier to denoise, worse to"
            " decode"
        ),
        claims=(
            claim("fid", -6.12, SCOPE, also="REPA"),
            claim("cmmd", -0.15, SCOPE, also="REPA"),
        ),
        warns=(
            "pictures come back at 30.5 dB instead of 32.3 (32 px, real), the price of the"
            " alignment: steps and pictures of the fitting are the same; validation losses of two"
            " latent spaces cannot be compared; "
        )
        + told_nothing("the codec's teacher"),
    )

    def witness(self, built: Built) -> bool:
        """The codec that runs is the one whose card tells of an alignment."""
        from fulcrum.files.shipped import card
        from fulcrum.networks.network_hash import network_hash

        codec = built.run.encode.codec
        if not isinstance(codec, KL) or "align" not in card(codec.asset)["built"]:
            return False
        return codec.trained or network_hash(built.feed.codec()) == network_hash(codec.build(None))


# --------------------------------------------------------------------------------------------------
# End-to-end codec: the denoiser's own alignment trains the codec too.  REPA-E, arXiv:2504.10483
#
# pixels ──► encoder ──► sample ──┬──► decoder ──► absolute error, perceptual distance, KL
#                                 └──► running mean and variance ──► latent
# latent ──► + noise at t ──► denoiser, weights frozen, up to the tap ──► its projector, frozen ──┐
#                                                                   codec ◄── 1.5 (1 - cosine) ◄──┘
# latent ──× (no gradient) ──► + noise at t ──► denoiser ──► flow matching, 0.5 (1 - cosine) ──┐
#                                                                                  denoiser ◄──┘


class EndToEndCodec(TrainedCodec):
    align: Factor = 1.5  # weight of the alignment through the denoiser
    reconstruct: Factor = 1.0  # weight of the absolute error and of what stands beside it
    #: weight of the perceptual distance; zero: there is none
    perceptual: Annotated[float, Within("[0, 1000]")] = 1.0
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
        says=(
            "the denoiser's own alignment trains the codec too, through the denoiser; its diffusion"
            " loss never does"
        ),
        warns=(
            "needs a denoiser that is aligned, in all stages. As the authors: a sampled latent,"
            " running statistics, captions kept in the codec's pass, weights 1.5 and (the"
            " denoiser's own) 0.5, codec and denoiser clipped apart. Not as they: no GAN (0.1"
            " there); the perceptual network is the embedded teacher, not VGG; the denoiser's"
            " latents too are normalised by running statistics, theirs by the batch's own; KL 3e-4"
            " of the mean, 1e-6 of the sum there; the codec's rate is 0.03 of the run's (3e-4 in"
            " spark; 1e-4 there, as the denoiser's); theirs was ImageNet by class, with a teacher"
            " without labels. A codec's forward and backward in every step, and no latent can be"
            " cached: a step of spark with an aligned denoiser takes 5.9 times as long (median over"
            " 40 steps, one thread). 32.4 dB stayed 32.4 over the first 45 steps. An average of the"
            " weights is of the denoiser alone, the codec draws with its last; validation losses"
            " cannot be compared with any other run's, and a denoiser is of use only with its own"
            " codec; "
        )
        + or_supervised("the perceptual network"),
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
        """And the codec is trained through the denoiser's first blocks, which get no gradient from
        it."""
        stem = built.step.stem
        return (
            super().witness(built)
            and stem is not None
            and not any(w.requires_grad for w in stem.backbone.parameters())
        )


# --------------------------------------------------------------------------------------------------
# Latent alignment: the codec goes on learning, its clean latent drawn towards a teacher.  As
# VA-VAE, arXiv:2501.01423
#
# pixels ──► encoder ──► mean ──┬──► decoder (of a sample) ──► squared and absolute error, KL
#                               ├──► a head of its own ──► 1 - cosine with the teacher's tokens
#                               └──× (no gradient) ──► running mean and variance ──► denoiser ──┐
#                                                                              flow matching ◄──┘


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
        says=(
            "the codec goes on learning beside the denoiser: its clean latent is drawn to where a"
            " teacher points"
        ),
        warns=(
            "not REPA-E: a head of the codec's own reads the clean latent, and the denoiser has no"
            " say in what the codec learns. VA-VAE aligns so, but before there is a denoiser, of"
            " sampled latents, by a linear map, with margins and a second term for distances"
            " between tokens; ours is a cosine through three layers, beside the denoiser's"
            " training. A codec's forward and backward in every step, and no latent can be cached;"
            " an average of the weights is of the denoiser alone, the codec draws with its last;"
            " codec and denoiser are clipped apart; validation losses cannot be compared with any"
            " other run's, and a denoiser is of use only with its own codec. A step of spark takes"
            " 4.5 times as long (median over 40 steps, one thread); 32.4 dB fell to 32.2 in the"
            " first 45 steps. With the former codec and one clip for both, 31.3 dB fell to 17.7 in"
            " five steps at the denoiser's own rate (lr_ratio=1): hence 0.03; "
        )
        + or_supervised("the teacher"),
    )

    def terms(self) -> tuple[Any, ...]:
        return CodecReconstruction(weight=self.reconstruct), CodecAlignment(
            weight=self.align, teacher=self.teacher
        )

    def edit(self, run: RunSpec) -> RunSpec:
        return with_teacher(super().edit(run), self.teacher)


# --------------------------------------------------------------------------------------------------
# FLUX.2's autoencoder: 32 channels at a stride of 8, normalised by its batch norm's statistics.
#
# It has a class of its own, AutoencoderKLFlux2: read through FLUX.1's, as the published study did
# (its fault A20), the statistics are dropped and the latent space is another. A folder of the other
# class is refused.


FLUX2_SCOPE = "FLUX.2 autoencoder instead of FLUX.1's, 256 px latents, 1.2 B parameters, 100k steps"
FOLDER = {"path": ANY}


class Flux2Codec(CodecFromFolder):
    name = "flux2_codec"
    network, title, channels = "AutoencoderKLFlux2", "FLUX.2 AutoencoderKLFlux2", 32
    card = Card(
        says=(
            "latents of FLUX.2's autoencoder, 32 channels; takes its folder, and only describes the"
            " run without one"
        ),
        claims=(
            claim(
                "fid",
                -6.13,
                FLUX2_SCOPE,
                settings=FOLDER,
                note=(
                    "read there through FLUX.1's class, which drops its statistics, and encoded"
                    " online: 1.79 batches/s against 3.95, a cost that cached latents do not have"
                ),
            ),
            claim("cmmd", -0.32, FLUX2_SCOPE, settings=FOLDER),
            claim("dino_mmd", -0.31, FLUX2_SCOPE, settings=FOLDER),
        ),
        warns=(
            "validation losses of two latent spaces cannot be compared; where the run's codec has"
            " another stride, the patches change so that the tokens stay as many"
        ),
    )


# --------------------------------------------------------------------------------------------------
# REPA-E's autoencoder, e2e-flux-vae: FLUX.1's format, tuned end to end by its authors, frozen here.
# arXiv:2504.10483


REPA_E_SCOPE = "REPA-E VAE instead of FLUX.1's, 256 px latents, 1.2 B parameters, 100k steps"
REPA_E_FOLDER = {"path": ANY}


class RepaECodec(CodecFromFolder):
    name = "repa_e_codec"
    network, title, channels = "AutoencoderKL", "REPA-E e2e-flux-vae", 16
    card = Card(
        says=(
            "latents of an autoencoder that its authors tuned with a denoiser and an alignment;"
            " takes its folder, and only describes the run without one"
        ),
        claims=(
            claim("fid", -6.12, REPA_E_SCOPE, also="REPA", settings=REPA_E_FOLDER),
            claim("cmmd", -0.15, REPA_E_SCOPE, also="REPA", settings=REPA_E_FOLDER),
            claim("dino_mmd", -0.21, REPA_E_SCOPE, also="REPA", settings=REPA_E_FOLDER),
        ),
        warns=(
            "FLUX.1's own autoencoder has the same class and sizes: the folder decides which it is,"
            " and its hash is in the run's key; validation losses of two latent spaces cannot be"
            " compared"
        ),
    )


# --------------------------------------------------------------------------------------------------
# Wide codec: a tokenizer with twice the channels, frozen as the baseline's is.


WIDE_SCOPE = (
    "FLUX.2 autoencoder (32 channels) instead of FLUX.1's (16), 256 px latents, 1.2 B parameters,"
    " 100k steps"
)


class WideCodec(ShippedCodec):
    name = "wide_codec"
    asset, channels, verb = "codec_wide", 16, "widens"
    card = Card(
        says="latents of 16 channels instead of 8: finer pictures, more to predict per token",
        claims=(
            claim(
                "fid",
                -6.13,
                WIDE_SCOPE,
                note=(
                    "the published arm changed the whole autoencoder, not its channels alone, and"
                    " encoded online: 1.79 batches/s against 3.95, a cost that cached latents do"
                    " not have"
                ),
            ),
            claim("cmmd", -0.32, WIDE_SCOPE),
        ),
        warns=(
            "pictures come back at 35.3 dB instead of 32.3 (32 px, real), after the same steps of"
            " fitting on the same pictures; validation losses of two latent spaces cannot be"
            " compared"
        ),
    )

    def cost(self, run: RunSpec) -> Cost:
        edited = self.edit(run)
        return Cost(
            flops=denoiser_training_flops(edited) / denoiser_training_flops(run),
            parameters=parameters(edited) / parameters(run),
        )

    def witness(self, built: Built) -> bool:
        return bool(built.step.backbone.channels == built.feed.codec().channels == 16)


# --------------------------------------------------------------------------------------------------
# Pixels: no codec; the denoiser sees the picture itself, in patches as wide as before.


class UsePixels(Lever):
    name = "pixels"
    touches = ("encode.codec", "model.patch")
    card = Card(
        says=(
            "no codec between the picture and the denoiser; patches grow by its stride, so the"
            " tokens stay as many"
        ),
        warns=(
            "velocity cannot be learned well where a patch is wider than the network; "
            "validation losses are not comparable with those of latents"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        if isinstance(run.encode.codec, Pixels):
            raise BadInput(
                "'pixels' would change nothing: the run has no codec already", "leave it out"
            )
        return put_all(
            run,
            [
                ("encode.codec", Pixels()),
                ("model.patch", run.model.patch * run.encode.codec.stride),
            ],
        )

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        return (
            None
            if codec.stride == 1
            else f"the denoiser still sees what {codec} makes, of stride {codec.stride}"
        )

    def idle(self, run: RunSpec) -> str:
        numbers = run.encode.codec.channels * run.model.patch**2
        if numbers <= run.model.width or not isinstance(run.flow.predict, Velocity):
            return ""
        width = run.model.width
        return (
            f"a patch has {numbers} numbers, the network {width}: velocities cannot pass through"
            " it, pictures could"
        )

    def cost(self, run: RunSpec) -> Cost:
        """The denoiser's wider patches; a frozen codec costs a step nothing, its latents come from
        the cache."""
        if isinstance(run.encode.codec, Pixels):
            return Cost()
        return price.of_denoiser(run, self.edit(run))

    def witness(self, built: Built) -> bool:
        batch = built.feed.at(0)[0]
        pictures = built.feed.source_at(0).read(batch.ids[:1].cpu().numpy()).images
        return tuple(batch.x0.shape[1:]) == pictures.shape[1:] and bool(
            built.feed.codec().stride == 1
        )


# --------------------------------------------------------------------------------------------------
# Qwen3-VL's language model as the text encoder, as the published 7 B pixel model has it instead of
# T5Gemma.


WIDTH = 2048  # of the 2 B model, if no folder is given


class Qwen3VLText(FromFolder):
    max_tokens: Count = 256  # longer prompts are cut, and counted

    name = "qwen3vl_text"
    touches = ("encode.text",)
    network, also = "Qwen3VLTextModel", ("Qwen3VLModel",)
    card = Card(
        says=(
            "prompts are read by the language half of Qwen3-VL (part of the published 7 B pixel"
            " model, never ablated alone); takes its folder with the tokenizer, and only describes"
            " the run, as the 2 B model, without one"
        ),
        warns=(
            "its tokenizer gives the empty prompt no token at all: guidance then moves away from a"
            " model that reads nothing"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        if self.path:
            self.require_class(TEXT_PARTS, text_facts)
        width = {} if self.path else {"width": WIDTH}
        given = {
            "name": "Qwen3-VL text model",
            "path": self.path,
            "max_tokens": self.max_tokens,
            **width,
        }
        return put(run, "encode.text", FolderText.model_validate(given))

    def needs(self, run: RunSpec) -> str | None:
        text = run.encode.text
        return (
            None
            if isinstance(text, FolderText)
            else f"something else replaced the text encoder by {text}"
        )

    def cost(self, run: RunSpec) -> Cost:
        """Of the denoiser's wider reading; encoded texts come from the cache."""
        return price.of_denoiser(run, self.edit(run))

    def witness(self, built: Built) -> bool:
        return getattr(built.feed.text(), "name", "") in (self.network, *self.also)
