"""Rule: the denoiser is built for other channels than the autoencoder has."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.model_folder import ModelFolder

CODEC = (
    r"(vae|autoencoder|codec|tokenizer)\w*\.(latent_channels|channels|out_channels|z_channels)$"
    r"|(^|[._])(latent_channels|vae_channels|z_channels)$"
)
DENOISER = r"(model|transformer|unet|denoiser|backbone|dit)\w*\.in_channels$|^in_channels$"


class ChannelsMismatch(AuditRule):
    id = "channels-mismatch"
    family = "tokenizer"
    severity = "error"
    gain = 1.0
    why = (
        "a denoiser for 3 channels cannot read 16 of latents: the first step fails, or a projection was added that "
        "nobody sees"
    )
    size = "the training cannot run as it is written"
    source = "docs/published.md, A13"
    published = "A13"
    fix = (
        "set the denoiser's in_channels to the autoencoder's latent_channels (times patch squared, if it is given "
        "packed latents)"
    )

    def in_config(self, config: ConfigFile) -> Sightings:
        codec, denoiser = config.first(CODEC), config.first(DENOISER)
        if codec and denoiser and codec.number and denoiser.number and not _fit(codec.number, denoiser.number):
            yield Sighting(
                config.at(denoiser),
                f"{denoiser.path} = {denoiser.value}, and {codec.path} = {codec.value}",
                f"set {denoiser.path} to {codec.value}",
            )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        vae, denoiser = folder.part("vae"), folder.part("transformer", "unet")
        latent = vae.config.get("latent_channels") if vae else None
        given = denoiser.config.get("in_channels") if denoiser else None
        if denoiser and isinstance(latent, int) and isinstance(given, int) and not _fit(latent, given):
            yield Sighting(f"{denoiser.name}/config.json", f"in_channels is {given}, and the autoencoder gives {latent}")


def _fit(latent: float, given: float) -> bool:
    """As they are, packed two by two, with a mask and a masked picture beside (inpainting), or with an edited picture."""
    return given in {latent, 4 * latent, 2 * latent, 2 * latent + 1, 16 * latent, 4 * (2 * latent + 64), 8 * latent}
