"""Records of the frozen networks: codecs, text encoders, teachers."""

from typing import Any, ClassVar, Literal

from fulcrum.spec import seam
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Count


class KL(seam.Codec):
    """The embedded KL codec: 32 pixels to 8 x 8 latents of 8 channels."""

    kind: ClassVar[str] = "kl_codec"
    stride: Literal[4] = 4
    channels: Literal[8] = 8
    asset: str = "codec"

    def build(self, ctx: Any) -> Any:
        from fulcrum.encode.codec import load_codec
        return load_codec(self.asset)

    def hashes(self) -> dict[str, str]:
        from fulcrum.encode.shipped import asset_hash
        return {f"asset:{self.asset}": asset_hash(self.asset)}


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


FILLERS = (KL, Pixels, WorldText, PretrainedCodec, PretrainedText)
