"""Records of the frozen networks: codecs, text encoders, teachers."""

from functools import cache
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator

from fulcrum.spec import slots
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.record import Count, Factor, Fraction, Width
from fulcrum.spec.slots import Need, Normal

if TYPE_CHECKING:
    from fulcrum.networks.codec import IdentityCodec, KLCodec, TunedCodec
    from fulcrum.networks.pretrained.codec import PretrainedCodec
    from fulcrum.networks.pretrained.teacher import PretrainedTeacher
    from fulcrum.networks.pretrained.text import PretrainedText
    from fulcrum.networks.teacher import Teacher
    from fulcrum.networks.text import WorldText
    from fulcrum.training.build import Context


# pictures, and pixels on a side, that a deviation is measured on
LOOKED_AT, LOOKED_AT_SIZE = 64, 32


class KL(slots.CodecFiller):
    """An embedded KL codec: 32 pixels to 8 x 8 latents of `channels` channels."""

    kind: ClassVar[str] = "kl_codec"
    stride: Literal[4] = 4
    channels: Width = 8
    asset: str = "codec"

    @model_validator(mode="after")
    def _as_the_card_says(self) -> "KL":
        """A denoiser built for other channels than the codec has would fail much later."""
        from fulcrum.files.shipped import card

        if not self.asset.isidentifier():
            raise ValueError(f"'{self.asset}' is not the name of a shipped codec")
        try:
            about = card(self.asset)
        except FulcrumError as error:
            raise ValueError(error.message) from None
        if about["kind"] != "KLCodec":
            raise ValueError(f"the part '{self.asset}' is a {about['kind']}, not a KL codec")
        if about["config"]["channels"] != self.channels:
            raise ValueError(
                f"the codec '{self.asset}' has {about['config']['channels']} channels, not"
                f" {self.channels}; write kl_codec(asset={self.asset},"
                f" channels={about['config']['channels']})"
            )
        return self

    def build(self, ctx: "Context | None") -> "KLCodec":
        from fulcrum.networks.codec import load_codec

        return load_codec(self.asset)

    def deviation(self, source: slots.SourceFiller) -> float | None:
        """As its card says, over the channels; of a user's pictures as of the world's real ones."""
        from fulcrum.files.shipped import card

        channels = (
            card(self.asset)
            .get("quality", {})
            .get(f"latent_std_{getattr(source, 'domain', 'real')}")
        )
        return (
            round(sqrt(sum(value**2 for value in channels) / len(channels)), 3)
            if channels
            else None
        )

    def hashes(self) -> dict[str, str]:
        from fulcrum.files.shipped import asset_hash

        return {f"asset:{self.asset}": asset_hash(self.asset)}


class TunedKL(KL):
    """Starts as the embedded codec and is trained with the denoiser; its statistics follow what it
    says."""

    kind: ClassVar[str] = "tuned_kl"
    trained: ClassVar[bool] = True
    half_life: Fraction = 0.02  # of the latents' running statistics, share of the budget
    lr_ratio: Factor = 0.03  # of the codec's learning rate to the run's
    sampled: bool = False  # is the denoiser shown a sample of the posterior, or its mean?

    def draws(self) -> dict[str, Need]:
        """Random numbers that it needs in training, by name."""
        return {"noise": Normal()}  # of a sample, in the latent's shape

    def build(self, ctx: "Context | None") -> "TunedCodec":
        """The codec as a run begins with it: no gradient, no keyed start; `ctx` says how long the
        run is."""
        from fulcrum.networks.codec import TunedCodec

        steps = 1.0 if ctx is None else ctx.run.budget.images / ctx.run.budget.batch
        codec = TunedCodec.begin(
            self.asset, keep=0.5 ** (1 / max(self.half_life * steps, 1.0)), rate=self.lr_ratio
        )
        codec.sampled = self.sampled
        return codec


class Pixels(slots.CodecFiller):
    """No codec: the denoiser sees pixels in [-1, 1]."""

    kind: ClassVar[str] = "pixels"
    stride: Literal[1] = 1
    channels: Literal[3] = 3

    def build(self, ctx: "Context | None") -> "IdentityCodec":
        from fulcrum.networks.codec import IdentityCodec

        return IdentityCodec()

    def deviation(self, source: slots.SourceFiller) -> float | None:
        """Of the world's pixels in [-1, 1]. A user's pictures may be elsewhere when a run is drawn
        with: not measured."""
        return _pixel_deviation(source) if getattr(source, "has_scenes", True) else None


@cache
def _pixel_deviation(source: slots.SourceFiller) -> float | None:
    """About its mean, over the first pictures, small: the same whatever the run's size."""
    pictures = source.glimpse(LOOKED_AT_SIZE, LOOKED_AT)
    return None if pictures is None else round(float(pictures.std()) / 127.5, 3)


class EmbeddedText(slots.TextFiller):
    """The embedded text encoder."""

    kind: ClassVar[str] = "world_text"
    width: Literal[96] = 96
    asset: str = "text"

    def build(self, ctx: "Context | None") -> "WorldText":
        from fulcrum.networks.text import load_text

        return load_text(self.asset)

    def hashes(self) -> dict[str, str]:
        from fulcrum.files.shipped import asset_hash

        return {f"asset:{self.asset}": asset_hash(self.asset)}


class FolderCodec(slots.CodecFiller):
    """An autoencoder of diffusers, from a folder or a hub id; without a path only described. The
    key holds the hash of its files, not where they lie."""

    kind: ClassVar[str] = "pretrained_codec"
    stride: Width
    channels: Width
    name: str = ""
    path: str = ""  # a folder, org/name in the hub's cache, or hub:org/name/part
    network: str = ""  # the class that the folder must hold

    @model_validator(mode="before")
    @classmethod
    def _from_folder(cls, given: Any) -> Any:
        from fulcrum.networks.pretrained.config_facts import CODEC_PARTS, completed, fitting_codec

        return completed(given, CODEC_PARTS, ("stride", "channels", "network"), fitting_codec)

    def build(self, ctx: "Context | None") -> "PretrainedCodec":
        if not self.path:
            raise BadInput(f"the codec '{self.name}' does not travel with Fulcrum", _give("codec"))
        from fulcrum.networks.pretrained.codec import load_codec

        return load_codec(self.path, self.stride, self.channels, self.network)

    def deviation(self, source: slots.SourceFiller) -> float | None:
        """One: scale and shift of its config are its authors' measure, and a loaded one says how
        near it comes."""
        return 1.0

    def hashes(self) -> dict[str, str]:
        from fulcrum.networks.pretrained.config_facts import CODEC_PARTS
        from fulcrum.networks.pretrained.folder import content_hash, locate

        return (
            {"pretrained:codec": content_hash(locate(self.path, CODEC_PARTS))} if self.path else {}
        )

    def identity(self) -> dict[str, Any]:
        sizes = {"stride": self.stride, "channels": self.channels}
        return sizes if self.path else {**sizes, "name": self.name}


class FolderText(slots.TextFiller):
    """A text encoder of transformers with its tokenizer, from a folder or a hub id; without a path
    only described."""

    kind: ClassVar[str] = "pretrained_text"
    width: Width
    name: str = ""
    path: str = ""
    max_tokens: Count = 256  # longer prompts are cut, and counted

    @model_validator(mode="before")
    @classmethod
    def _from_folder(cls, given: Any) -> Any:
        from fulcrum.networks.pretrained.config_facts import TEXT_PARTS, completed, fitting_text

        return completed(given, TEXT_PARTS, ("width",), fitting_text)

    def build(self, ctx: "Context | None") -> "PretrainedText":
        if not self.path:
            raise BadInput(
                f"the text encoder '{self.name}' does not travel with Fulcrum", _give("text")
            )
        from fulcrum.networks.pretrained.text import load_text

        return load_text(self.path, self.width, self.max_tokens)

    def most_tokens(self) -> int:
        """Of a prompt: no more than the folder's network and tokenizer take, as far as the folder
        is here."""
        from fulcrum.networks.pretrained.config_facts import TEXT_PARTS, text_limit
        from fulcrum.networks.pretrained.folder import locate

        if not self.path:
            return self.max_tokens
        try:
            return text_limit(locate(self.path, TEXT_PARTS, online=False), self.max_tokens)
        except BadInput:  # it is asked for when it is built
            return self.max_tokens

    def hashes(self) -> dict[str, str]:
        from fulcrum.networks.pretrained.config_facts import TEXT_PARTS
        from fulcrum.networks.pretrained.folder import content_hash, locate, tokenizer_files

        if not self.path:
            return {}
        folder = locate(self.path, TEXT_PARTS)
        return {"pretrained:text": content_hash(folder, tokenizer_files(folder))}

    def identity(self) -> dict[str, Any]:
        return {
            "width": self.width,
            **({"max_tokens": self.max_tokens} if self.path else {"name": self.name}),
        }


class FolderTeacher(slots.TeacherFiller):
    """A vision network of transformers, from a folder or a hub id: DINOv2, DINOv3, CLIP."""

    kind: ClassVar[str] = "pretrained_teacher"
    patch: Width  # pictures are resized so that its tokens cover this much
    width: Width
    path: str = ""  # none: only described
    instead_of: str = ""  # the teacher of the run's terms whose place it takes

    @model_validator(mode="before")
    @classmethod
    def _from_folder(cls, given: Any) -> Any:
        from fulcrum.networks.pretrained.config_facts import (
            TEACHER_PARTS,
            completed,
            fitting_teacher,
        )

        return completed(given, TEACHER_PARTS, ("width", "patch"), fitting_teacher)

    def build(self, ctx: "Context | None") -> "PretrainedTeacher":
        if not self.path:
            raise BadInput(
                f"the teacher '{self.name}' does not travel with Fulcrum", _by_lever(self.name)
            )
        from fulcrum.networks.pretrained.teacher import load_teacher

        return load_teacher(self.path, self.width, self.patch)

    def hashes(self) -> dict[str, str]:
        from fulcrum.networks.pretrained.config_facts import TEACHER_PARTS
        from fulcrum.networks.pretrained.folder import content_hash, locate

        return (
            {f"pretrained:teacher:{self.name}": content_hash(locate(self.path, TEACHER_PARTS))}
            if self.path
            else {}
        )

    def identity(self) -> dict[str, Any]:
        instead = {"instead_of": self.instead_of} if self.instead_of else {}
        return {"name": self.name, "patch": self.patch, "width": self.width, **instead}


def _give(slot: str) -> str:
    return (
        f"give its folder: --set encode.{slot}.path=FOLDER (what save_pretrained writes), or"
        " hub:org/name to ask the hub\n  this recipe needs both, encode.codec.path and"
        " encode.text.path, unless it trains on pixels; to train with embedded parts use pocket or"
        " pocket_pixels\n  a part that a lever names gets its folder there:"
        f" {_by_lever('flux2_codec')}"
    )


def _by_lever(name: str) -> str:
    return (
        f"{name}(path='FOLDER'), FOLDER what save_pretrained writes, or hub:org/name to ask the hub"
    )


# what levers call them, and their assets
WORLD_TEACHERS = {"world": "teacher", "supervised": "teacher_supervised"}


class WorldTeacher(slots.TeacherFiller):
    """An embedded vision teacher: one token per 4 x 4 pixels. The default has never been told what
    a picture shows."""

    kind: ClassVar[str] = "world_teacher"
    world_only: ClassVar[bool] = True
    name: str = "world"
    patch: Literal[4] = 4
    width: Literal[128] = 128
    asset: Literal["teacher", "teacher_supervised"] = "teacher"

    def build(self, ctx: "Context | None") -> "Teacher":
        from fulcrum.networks.teacher import load_teacher

        return load_teacher(self.asset)

    def hashes(self) -> dict[str, str]:
        from fulcrum.files.shipped import asset_hash

        return {f"asset:{self.asset}": asset_hash(self.asset)}


FILLERS = (KL, TunedKL, Pixels, EmbeddedText, FolderCodec, FolderText, WorldTeacher, FolderTeacher)
