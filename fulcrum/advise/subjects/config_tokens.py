"""How many image tokens a configuration trains on, where it says enough to know."""

import re

from fulcrum.advise.subjects.config_file import ConfigFile

STRIDE = 8.0  # of the usual autoencoders
PATCHED = r"flux[._-]?1|^flux$|stable-diffusion-3|(^|[^a-z])sd3"  # models whose patches of 2 x 2 latents are known


def image_tokens(config: ConfigFile, usual_stride: bool = False) -> float | None:
    """`usual_stride`: take an autoencoder whose stride is not stated for one of the usual kind."""
    given = config.number(r"(^|[._])(num_|image_)tokens$")
    if given is not None:
        return given
    side = config.number(r"(^|[._])(resolution|image_size|img_size|imagesize)$") or _square(config)
    patch = config.number(r"(^|[._])patch(_?size)?$")
    stride = config.number(r"(vae|autoencoder|codec|tokenizer|first_stage)\w*[._](stride|downsample\w*|scale_factor|f)$")
    if patch is None and stride is None and usual_stride and config.mentions(PATCHED):
        patch, stride = 2.0, STRIDE
    if stride is None and usual_stride and config.mentions(r"(^|[._])(vae|autoencoder|first_stage)|autoencoderkl|latent"):
        stride = STRIDE
    return (side / (patch * stride)) ** 2 if side and patch and stride else None


def _square(config: ConfigFile) -> float | None:
    """kohya's resolution = "1024,1024"; the root of the area where it is none."""
    entry = config.first(r"(^|[._])resolution$")
    sides = re.fullmatch(r"\s*(\d+)\s*[,x]\s*(\d+)\s*", str(entry.value)) if entry is not None else None
    return (float(sides[1]) * float(sides[2])) ** 0.5 if sides else None
