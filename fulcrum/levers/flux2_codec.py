"""FLUX.2's autoencoder: 32 channels at a stride of 8, normalised by its batch norm's statistics.

It has a class of its own, AutoencoderKLFlux2: read through FLUX.1's, as the published study did (its fault A20), the
statistics are dropped and the latent space is another. A folder of the other class is refused.
"""

from fulcrum.levers.base import ANY, Card
from fulcrum.levers.shared.folder_lever import CodecFromFolder
from fulcrum.levers.shared.published import claim

FLUX2_SCOPE = "FLUX.2 autoencoder instead of FLUX.1's, 256 px latents, 1.2 B parameters, 100k steps"
FOLDER = {"path": ANY}


class Flux2Codec(CodecFromFolder):
    name = "flux2_codec"
    network, title, channels = "AutoencoderKLFlux2", "FLUX.2 AutoencoderKLFlux2", 32
    card = Card(
        says="latents of FLUX.2's autoencoder, 32 channels; takes its folder, and only describes the run without one",
        claims=(
            claim(
                "fid",
                -6.13,
                FLUX2_SCOPE,
                settings=FOLDER,
                note="read there through FLUX.1's class, which drops its statistics, and encoded online: 1.79 batches/s "
                "against 3.95, a cost that cached latents do not have",
            ),
            claim("cmmd", -0.32, FLUX2_SCOPE, settings=FOLDER),
            claim("dino_mmd", -0.31, FLUX2_SCOPE, settings=FOLDER),
        ),
        warns="validation losses of two latent spaces cannot be compared; where the run's codec has another stride, the "
        "patches change so that the tokens stay as many",
    )
