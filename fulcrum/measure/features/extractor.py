"""Feature networks behind one call, each with its card: embedded, Inception, CLIP, DINOv2, or your own.

    embedded                          the network that travels with Fulcrum: for the embedded world
    inception=weights.safetensors     FID's pool3, TensorFlow's resize (inception-torch: as pytorch-fid resizes)
    clip=folder                       image embeddings of a CLIP model: CMMD, and the CLIP score
    dino=folder                       class token of a DINOv2 model: FD-DINO, DINO-MMD
    lite0, vgg                        EfficientNet-Lite0 and LPIPS's VGG from installed packages (or =file): real judges

A folder is what save_pretrained writes; hub:org/name asks the hub, and nothing else does.

B images, d feature width
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.files.paths import at_home
from fulcrum.files.sealed import sha256_json
from fulcrum.measure.features.image_checks import FeatureFunction, feature_rows
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.training.dist.machine import settled

PLACES = 9  # of a scene
ScoreFunction = Callable[[Tensor, Sequence[str]], Tensor]  # uint8 (B, 3, H, W), captions -> (B,)


class Extractor(NamedTuple):
    """A feature network, what it does to a picture first, and the hash of both."""

    name: str
    hash: str  # of weights, configuration and preprocessing
    resize: str  # in words, for the card
    value_range: str  # what the network reads
    width: int
    features: FeatureFunction  # uint8 (B, 3, H, W) -> (B, d)
    score: ScoreFunction | None = None  # how well captions fit
    network: nn.Module | None = None  # what can be moved; None: a user's own computes wherever its code says

    def card(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "hash": self.hash,
            "resize": self.resize,
            "value_range": self.value_range,
            "width": self.width,
        }

    def on(self, device: str) -> "Extractor":
        """The same, computing on a device; its features come back to the CPU, its hash is what it was."""
        if self.network is None or device == "cpu":
            return self
        settled(self.network, device)
        features, score = self.features, self.score

        def scored(images: Tensor, captions: Sequence[str]) -> Tensor:
            assert score is not None
            return score(images.to(device), captions).cpu()

        return self._replace(features=lambda images: features(images.to(device)), score=scored if score else None)

    def rows(self, images: Tensor) -> Tensor:
        """Features of any number of uint8 pictures of one size, checked, the same for any split.  (B, d)"""
        rows = feature_rows(images, self.features)
        if rows.shape[1] != self.width:
            raise BadInput(f"the extractor '{self.name}' says width {self.width} and gave {rows.shape[1]}")
        return rows


def load_extractor(text: str) -> Extractor:
    """`name` or `name=where`."""
    name, _, where = text.partition("=")
    if name not in LOADERS:
        raise BadInput(f"no extractor is called '{name}'", f"{nearest(name, LOADERS)}; your own: --metrics FILE.py")
    if name == "embedded":
        if where:
            raise BadInput(f"'{text}': the embedded extractor is not read from elsewhere", "write: embedded")
    elif not where and name not in INSTALLED:
        what = "a file of weights" if name.startswith("inception") else "a folder, or hub:org/name"
        raise BadInput(f"the extractor '{name}' needs its weights", f"write {name}=WHERE, where WHERE is {what}")
    return LOADERS[name](where)


def full_name(part: Extractor, metric: str) -> str:
    """A metric's name in a result: `extractor.metric`; those of the embedded networks need no prefix."""
    return metric if part.name in ("embedded", "attributes", "attributes_second") else f"{part.name}.{metric}"


def digest_of(*facts: Any) -> str:
    return sha256_json(facts)


def embedded(_: str = "") -> Extractor:
    from fulcrum.files.shipped import asset_hash
    from fulcrum.networks.judges import load_features

    network = load_features()
    return Extractor(
        "embedded",
        asset_hash("features"),
        "antialiased to 32 px",
        "float [-1, 1]",
        network.project.shape[1],
        network.features,
        network=network,
    )


def attributes() -> Extractor:
    """The judge of what stands where in a picture of the embedded world; its answers are asked for with the truth."""
    from fulcrum.networks.judges import load_judge

    return _of_judge("attributes", "judge", load_judge())


def second_attributes() -> Extractor:
    """Another judge of the same, which checks the first."""
    from fulcrum.networks.judges import load_second_judge

    return _of_judge("attributes_second", "judge_second", load_second_judge())


def _of_judge(name: str, asset: str, network: Any) -> Extractor:
    from fulcrum.files.shipped import asset_hash

    def answers(images: Tensor) -> Tensor:
        return torch.cat([logits.flatten(1) for logits in network.judge(images).values()], dim=1)

    width = PLACES * sum(network.classes.values())
    return Extractor(name, asset_hash(asset), "antialiased to 32 px", "float [-1, 1]", width, answers, network=network)


def _inception(where: str, like_tensorflow: bool) -> Extractor:
    from fulcrum.measure.features.inception import WIDTH, pixels_like_pytorch_fid, pixels_like_tensorflow

    network, content = load_inception(at_home(where))
    pixels = pixels_like_tensorflow if like_tensorflow else pixels_like_pytorch_fid
    resize = "bilinear to 299 px, not antialiased, " + (
        "corner to corner as TensorFlow 1" if like_tensorflow else "half-pixel centres as pytorch-fid"
    )
    span = "(x - 128) / 128" if like_tensorflow else "float [-1, 1]"
    return Extractor(
        "inception" if like_tensorflow else "inception-torch",
        digest_of("inception", content, resize, span),
        resize,
        span,
        WIDTH,
        lambda images: network(pixels(images)),
        network=network,
    )


def load_inception(path: Path) -> tuple[nn.Module, str]:
    """The network with the weights in `path` (safetensors, or the known .pth read as plain tensors), and their hash."""
    from fulcrum.measure.features.inception import Inception

    if not path.is_file():
        raise BadInput(
            f"there are no Inception weights at {path}",
            "bring pt_inception-2015-12-05 along, as .safetensors or .pth: no registry carries it",
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)  # tensors only: a pickle could run code
    except Exception as error:  # many kinds; the file is what is wrong
        raise BadInput(
            f"{path} cannot be read as a state dict: {type(error).__name__}: {str(error)[:200]}",
            "expected tensors under names such as Mixed_5b.branch1x1.conv.weight",
        ) from error
    with torch.device("meta"):  # no random start for weights that are read anyway
        network = Inception()
    wanted = {name: value.shape for name, value in network.state_dict().items() if not name.endswith("num_batches_tracked")}
    if not isinstance(tensors, dict):
        raise BadInput(f"{path} holds a {type(tensors).__name__}, not a state dict")
    missing = sorted(set(wanted) - set(tensors))
    wrong = sorted(name for name, shape in wanted.items() if name in tensors and tensors[name].shape != shape)
    if missing or wrong:
        raise BadInput(
            f"{path} is not FID's Inception: {len(missing)} tensors are missing and {len(wrong)} have another "
            f"shape, such as {(missing + wrong)[0]}",
            "expected the state dict of pt_inception-2015-12-05",
        )
    used = {name: tensors[name].float() for name in wanted}  # its classifier (fc, AuxLogits) is not part of pool3
    counters = {name: torch.tensor(0) for name in network.state_dict() if name not in wanted}
    network.load_state_dict({**used, **counters}, assign=True)
    content = hashlib.sha256()
    for name in sorted(used):
        content.update(name.encode() + used[name].contiguous().numpy().tobytes())
    return network.eval().requires_grad_(False), content.hexdigest()


def _clip(where: str) -> Extractor:
    from fulcrum.measure.features.clip_and_dino import load_clip

    return load_clip(where)


def _dino(where: str) -> Extractor:
    from fulcrum.measure.features.clip_and_dino import load_dino

    return load_dino(where)


def _lite0(where: str) -> Extractor:
    from fulcrum.measure.features.from_packages import lite0

    return lite0(where)


def _vgg(where: str) -> Extractor:
    from fulcrum.measure.features.from_packages import vgg

    return vgg(where)


INSTALLED = ("lite0", "vgg")  # read from a package that the user installed, unless a file is given
LOADERS: dict[str, Callable[[str], Extractor]] = {
    "embedded": embedded,
    "inception": lambda where: _inception(where, True),
    "inception-torch": lambda where: _inception(where, False),
    "clip": _clip,
    "dino": _dino,
    "lite0": _lite0,
    "vgg": _vgg,
}


def antialiased(images: Tensor, side: int) -> Tensor:
    """uint8 -> [0, 1], bicubic with antialiasing, squeezed to a square: what Pillow's resize does.  (B, 3, side, side)"""
    unit = images.float() / 255.0
    if unit.shape[-2:] != (side, side):
        unit = F.interpolate(unit, size=(side, side), mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
    return unit
