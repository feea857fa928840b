"""Wide codec: a tokenizer with twice the channels, frozen as the baseline's is."""

from fulcrum.levers.base import Built, Card, Cost
from fulcrum.levers.shared.codec_lever import ShippedCodec
from fulcrum.levers.shared.published import claim
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.run import RunSpec

WIDE_SCOPE = "FLUX.2 autoencoder (32 channels) instead of FLUX.1's (16), 256 px latents, 1.2 B parameters, 100k steps"


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
                note="the published arm changed the whole autoencoder, not its channels alone, and encoded online: "
                "1.79 batches/s against 3.95, a cost that cached latents do not have",
            ),
            claim("cmmd", -0.32, WIDE_SCOPE),
        ),
        warns="pictures come back at 35.3 dB instead of 32.3 (32 px, real), after the same steps of fitting on "
        "the same pictures; validation losses of two latent spaces cannot be compared",
    )

    def cost(self, run: RunSpec) -> Cost:
        edited = self.edit(run)
        return Cost(
            flops=denoiser_training_flops(edited) / denoiser_training_flops(run),
            parameters=parameters(edited) / parameters(run),
        )

    def witness(self, built: Built) -> bool:
        return bool(built.step.backbone.channels == built.feed.codec().channels == 16)
