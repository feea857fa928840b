"""Records of the frozen networks: codecs, text encoders, teachers."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from fulcrum.spec import seam
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.record import Count, Fraction


class KL(seam.Codec):
    """An embedded KL codec: 32 pixels to 8 x 8 latents of `channels` channels."""

    kind: ClassVar[str] = "kl_codec"
    stride: Literal[4] = 4
    channels: Count = 8
    asset: str = "codec"

    @model_validator(mode="after")
    def _as_the_card_says(self) -> "KL":
        """A denoiser built for other channels than the codec has would fail much later."""
        from fulcrum.encode.shipped import card
        if not self.asset.isidentifier():
            raise ValueError(f"'{self.asset}' is not the name of a shipped codec")
        try:
            about = card(self.asset)
        except FulcrumError as error:
            raise ValueError(error.message) from None
        if about["kind"] != "KLCodec":
            raise ValueError(f"the part '{self.asset}' is a {about['kind']}, not a KL codec")
        if about["config"]["channels"] != self.channels:
            raise ValueError(f"the codec '{self.asset}' has {about['config']['channels']} channels, not {self.channels}; "
                             f"write kl_codec(asset={self.asset}, channels={about['config']['channels']})")
        return self

    def build(self, ctx: Any) -> Any:
        from fulcrum.encode.codec import load_codec
        return load_codec(self.asset)

    def hashes(self) -> dict[str, str]:
        from fulcrum.encode.shipped import asset_hash
        return {f"asset:{self.asset}": asset_hash(self.asset)}


class TunedKL(KL):
    """Starts as the embedded codec and is trained with the denoiser; its statistics follow what it says."""

    kind: ClassVar[str] = "tuned_kl"
    trained: ClassVar[bool] = True
    half_life: Fraction = 0.02                               # of the latents' running mean and variance, share of the budget

    def build(self, ctx: Any) -> Any:
        """The codec as a run begins with it: no gradient, no keyed start; `ctx` says how long the run is."""
        from fulcrum.encode.codec import TunedCodec
        steps = 1.0 if ctx is None else ctx.run.budget.images / ctx.run.budget.batch
        return TunedCodec.begin(self.asset, keep=0.5 ** (1 / max(self.half_life * steps, 1.0)))


class Pixels(seam.Codec):
    """No codec: the denoiser sees pixels in [-1, 1]."""

    kind: ClassVar[str] = "pixels"
    stride: Literal[1] = 1
    channels: Literal[3] = 3

    def build(self, ctx: Any) -> Any:
        from fulcrum.encode.codec import IdentityCodec
        return IdentityCodec()


class WorldText(seam.TextEncoder):
    """The embedded text encoder."""

    kind: ClassVar[str] = "world_text"
    width: Literal[96] = 96
    asset: str = "text"

    def build(self, ctx: Any) -> Any:
        from fulcrum.encode.text import load_text
        return load_text(self.asset)

    def hashes(self) -> dict[str, str]:
        from fulcrum.encode.shipped import asset_hash
        return {f"asset:{self.asset}": asset_hash(self.asset)}


class PretrainedCodec(seam.Codec):
    """A codec of the ecosystem, described by what the denoiser must know of it."""

    kind: ClassVar[str] = "pretrained_codec"
    stride: Count
    channels: Count
    name: str

    def build(self, ctx: Any) -> Any:
        raise BadInput(f"the codec '{self.name}' does not travel with Fulcrum, and this version cannot load one yet",
                       "sizes, keys and parameter counts of this recipe work; to train here use pocket or pocket_pixels")


class PretrainedText(seam.TextEncoder):
    """A text encoder of the ecosystem, described by its width."""

    kind: ClassVar[str] = "pretrained_text"
    width: Count
    name: str

    def build(self, ctx: Any) -> Any:
        raise BadInput(f"the text encoder '{self.name}' does not travel with Fulcrum, and this version cannot load one yet",
                       "sizes, keys and parameter counts of this recipe work; to train here use pocket or pocket_pixels")


class WorldTeacher(seam.Teacher):
    """The embedded vision teacher: one token per 4 x 4 pixels."""

    kind: ClassVar[str] = "world_teacher"
    name: str = "world"
    patch: Literal[4] = 4
    width: Literal[128] = 128
    asset: str = "teacher"

    def build(self, ctx: Any) -> Any:
        from fulcrum.encode.teacher import load_teacher
        return load_teacher(self.asset)

    def hashes(self) -> dict[str, str]:
        from fulcrum.encode.shipped import asset_hash
        return {f"asset:{self.asset}": asset_hash(self.asset)}


FILLERS = (KL, TunedKL, Pixels, WorldText, PretrainedCodec, PretrainedText, WorldTeacher)
