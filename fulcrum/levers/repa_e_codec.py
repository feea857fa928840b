"""REPA-E's autoencoder, e2e-flux-vae: FLUX.1's format, tuned end to end by its authors, frozen here.  arXiv:2504.10483"""

from fulcrum.levers.base import ANY, Card
from fulcrum.levers.shared.folder_lever import CodecFromFolder
from fulcrum.levers.shared.published import claim

REPA_E_SCOPE = "REPA-E VAE instead of FLUX.1's, 256 px latents, 1.2 B parameters, 100k steps"
REPA_E_FOLDER = {"path": ANY}


class RepaECodec(CodecFromFolder):
    name = "repa_e_codec"
    network, title, channels = "AutoencoderKL", "REPA-E e2e-flux-vae", 16
    card = Card(
        says="latents of an autoencoder that its authors tuned with a denoiser and an alignment; takes its folder, and "
        "only describes the run without one",
        claims=(
            claim("fid", -6.12, REPA_E_SCOPE, also="REPA", settings=REPA_E_FOLDER),
            claim("cmmd", -0.15, REPA_E_SCOPE, also="REPA", settings=REPA_E_FOLDER),
            claim("dino_mmd", -0.21, REPA_E_SCOPE, also="REPA", settings=REPA_E_FOLDER),
        ),
        warns="FLUX.1's own autoencoder has the same class and sizes: the folder decides which it is, and its hash is in "
        "the run's key; validation losses of two latent spaces cannot be compared",
    )
