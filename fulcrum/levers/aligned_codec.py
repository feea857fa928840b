"""Aligned codec: the tokenizer was drawn towards a vision teacher when it was made; frozen as the baseline's is.

The swap of REPA-E (arXiv:2504.10483), without its end-to-end training.
"""

from typing import Any, ClassVar

from fulcrum.encode.fillers import KL
from fulcrum.levers.base import Card, Claim, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec

SCOPE = "REPA-E VAE instead of FLUX.1's, 256 px latents, 1.2 B parameters, 100k steps"


class AlignedCodec(Lever):
    name: ClassVar[str] = "aligned_codec"
    touches: ClassVar[tuple[str, ...]] = ("encode.codec",)
    card: ClassVar[Card] = Card(
        says="latents that already say what a vision teacher sees: easier to denoise, worse to decode",
        claims=(
            Claim(
                metric="fid",
                change=-6.12,
                scope=SCOPE,
                source="PRX Part 2",
                note="two changes at once: the published arm also had REPA on",
            ),
            Claim(
                metric="cmmd",
                change=-0.15,
                scope=SCOPE,
                source="PRX Part 2",
                note="two changes at once: the published arm also had REPA on",
            ),
        ),
        warns="pictures come back at 28.7 dB instead of 31.6 (32 px, real), the price of the alignment and of 4,000 steps "
        "of fitting instead of 6,000; validation losses of two latent spaces cannot be compared",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        codec = run.encode.codec
        if not isinstance(codec, KL):
            raise BadInput(f"'{self.name}' swaps an embedded codec, and this run has '{codec.kind}'")
        return put(run, "encode.codec", type(codec)(**{**dict(codec), "asset": "codec_aligned", "channels": 8}))

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        aligned = isinstance(codec, KL) and codec.asset == "codec_aligned"
        return None if aligned else f"something else replaced the codec by {codec}"

    def witness(self, built: Any) -> bool:
        """The codec that runs is the one whose card tells of an alignment."""
        from fulcrum.encode.cache import network_hash
        from fulcrum.files.shipped import card

        codec = built.run.encode.codec
        if not isinstance(codec, KL) or "align" not in card(codec.asset)["built"]:
            return False
        return codec.trained or network_hash(built.feed.codec()) == network_hash(codec.build(None))
