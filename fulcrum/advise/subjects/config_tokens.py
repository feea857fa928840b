"""How many image tokens a configuration trains on, where it says enough to know."""

from fulcrum.advise.subjects.config_file import ConfigFile

STRIDE = 8  # of the usual autoencoders


def image_tokens(config: ConfigFile, usual_stride: bool = False) -> float | None:
    """`usual_stride`: take an autoencoder whose stride is not stated for one of the usual kind."""
    given = config.number(r"(^|[._])(num_|image_)tokens$")
    if given is not None:
        return given
    side = config.number(r"(^|[._])(resolution|image_size|img_size|imagesize)$")
    patch = config.number(r"(^|[._])patch(_?size)?$")
    stride = config.number(r"(vae|autoencoder|codec|tokenizer|first_stage)\w*[._](stride|downsample\w*|scale_factor|f)$")
    if stride is None and usual_stride and config.mentions(r"(^|[._])(vae|autoencoder|first_stage)|autoencoderkl|latent"):
        stride = STRIDE
    return (side / (patch * stride)) ** 2 if side and patch and stride else None
