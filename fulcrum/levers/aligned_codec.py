"""Aligned codec: the tokenizer was drawn towards a vision teacher when it was made; frozen as the baseline's is.

The swap of REPA-E (arXiv:2504.10483), without its end-to-end training.
"""

from fulcrum.levers.base import Built, Card
from fulcrum.levers.shared.codec_lever import ShippedCodec
from fulcrum.levers.shared.published import claim
from fulcrum.levers.shared.teacher_caution import told_nothing
from fulcrum.networks.fillers import KL

SCOPE = "REPA-E VAE instead of FLUX.1's, 256 px latents, 1.2 B parameters, 100k steps"


class AlignedCodec(ShippedCodec):
    name = "aligned_codec"
    asset, channels = "codec_aligned", 8
    card = Card(
        says="latents that already say what a vision teacher sees: easier to denoise, worse to decode",
        claims=(
            claim("fid", -6.12, SCOPE, also="REPA"),
            claim("cmmd", -0.15, SCOPE, also="REPA"),
        ),
        warns="pictures come back at 30.5 dB instead of 32.3 (32 px, real), the price of the alignment: steps and "
        "pictures of the fitting are the same; validation losses of two latent spaces cannot be compared; "
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
