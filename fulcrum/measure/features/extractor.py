"""Feature extractors behind one call, each with its card; checks and moments of feature rows."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.files.paths import at_home
from fulcrum.files.sealed import sha256_json
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.training.dist.machine import settled

# --------------------------------------------------------------------------------------------------
# The gate between pictures and metrics: refuses what is not clearly an image, and feature rows that
# are not finite.
#
# B images, S side, d feature width


FeatureFunction = Callable[[Tensor], Tensor]  # uint8 (B, 3, S, S) -> (B, d)
Range = tuple[float, float]

# always this many at once, padded: what a picture's features are must not depend on its neighbours
BATCH = 32
_SLACK = 1e-3  # of the range: rounding of a clamp in low precision, not an overshoot


class BadImages(ValueError):
    """Pictures that no metric may look at."""


def to_uint8(images: Tensor, value_range: Range | None = None) -> Tensor:
    """Images as uint8 (B, 3, S, S), whatever declared form they came in.

    One form for every network: a float picture passed as if it were uint8, or the reverse, is how
    the published study measured colour-negated pictures (fault A1). A float is rounded as if
    written to a file.
    """
    if images.ndim != 4 or images.shape[1] != 3:
        raise BadImages(
            f"expected images of shape (B, 3, height, width), found {tuple(images.shape)}"
        )
    if images.shape[0] == 0 or images.shape[2] == 0 or images.shape[3] == 0:
        raise BadImages(
            f"expected at least one image with pixels, found shape {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        if value_range is not None:
            raise BadImages(
                f"uint8 images have the range 0 to 255; remove the declared range {value_range}"
            )
        return images
    if not images.is_floating_point():
        raise BadImages(
            f"expected uint8 or floating point images, found {images.dtype}; convert them first"
        )
    if value_range is None:
        raise BadImages(
            f"{images.dtype} images need a declared range: pass value_range=(0.0, 1.0) or (-1.0,"
            " 1.0), whichever they have; it is not guessed"
        )
    low, high = value_range
    if not low < high:
        raise BadImages(f"expected a range (low, high) with low < high, found {value_range}")
    if not bool(torch.isfinite(images).all()):
        rows = (~torch.isfinite(images).flatten(1).all(dim=1)).nonzero().flatten().tolist()
        raise BadImages(
            f"NaN or infinite pixels in rows {rows[:8]} of the batch ({len(rows)} rows in all)"
        )
    smallest, largest, slack = float(images.min()), float(images.max()), _SLACK * (high - low)
    if smallest < low - slack or largest > high + slack:
        raise BadImages(
            f"images were declared to lie in [{low}, {high}] and lie in [{smallest:.4g},"
            f" {largest:.4g}]; clamp them after decoding, or declare the range that they have"
        )
    return ((images.double() - low) * (255.0 / (high - low))).round().clamp(0, 255).to(torch.uint8)


@torch.no_grad()
def feature_rows(images: Tensor, features: FeatureFunction) -> Tensor:
    """Features of any number of uint8 pictures as fp32 on the CPU, checked, the same for any split.
    (B, d)"""
    parts = []
    for start in range(0, len(images), BATCH):
        part = images[start : start + BATCH]
        padded = torch.cat([part, part[-1:].expand(BATCH - len(part), *part.shape[1:])])
        given = features(padded)
        if not isinstance(given, Tensor) or given.is_complex():
            raise ValueError(
                "expected features as a tensor of real numbers, found "
                + (str(given.dtype) if isinstance(given, Tensor) else type(given).__name__)
            )
        rows_of_batch = given.detach().to("cpu", torch.float32)  # (BATCH, d)
        parts.append(rows_of_batch[: len(part)] if len(rows_of_batch) == BATCH else rows_of_batch)
    rows = torch.cat(parts)
    if rows.ndim != 2 or rows.shape[0] != images.shape[0]:
        raise ValueError(
            f"expected features of shape ({images.shape[0]}, d), found {tuple(rows.shape)}"
        )
    if not bool(torch.isfinite(rows).all()):
        bad = (~torch.isfinite(rows).all(dim=1)).nonzero().flatten().tolist()
        raise ValueError(
            f"the feature network gave NaN or infinity for {len(bad)} rows of the batch: {bad[:8]}"
        )
    return rows


# --------------------------------------------------------------------------------------------------
# Mean and covariance of feature rows, gathered in pieces and merged: constant memory, fp64.
#
# B rows, d feature width


class Gaussian(NamedTuple):
    """Mean and unbiased covariance of n rows."""

    n: int
    mean: Tensor  # (d,) fp64
    cov: Tensor  # (d, d) fp64


class Moments:
    """Count, mean and scatter about the mean (Chan, Golub and LeVeque 1979).

    Raw second moments would cancel when the mean is large against the spread; the scatter about the
    running mean does not. So any order and any split of the rows gives the same result to rounding.
    """

    def __init__(self, width: int) -> None:
        self.n = 0
        self.mean = torch.zeros(width, dtype=torch.float64)  # (d,)
        # (d, d), sum of (x - mean)(x - mean)^T
        self.scatter = torch.zeros(width, width, dtype=torch.float64)

    @classmethod
    def of(cls, rows: Tensor) -> "Moments":
        """Moments of one set of rows.  rows (B, d)"""
        if rows.ndim != 2:
            raise ValueError(f"expected feature rows of shape (B, d), found {tuple(rows.shape)}")
        if not bool(torch.isfinite(rows).all()):
            raise ValueError(
                "feature rows hold NaN or infinity: look at the images or the feature network"
            )
        moments = cls(rows.shape[1])
        if rows.shape[0]:
            rows = rows.to("cpu", torch.float64)
            moments.n, moments.mean = rows.shape[0], rows.mean(dim=0)
            centred = rows - moments.mean
            moments.scatter = centred.T @ centred
        return moments

    def update(self, rows: Tensor) -> "Moments":
        """Takes in more rows, in place."""
        return self.merge(Moments.of(rows))

    def merge(self, other: "Moments") -> "Moments":
        """Takes in another gathering, in place."""
        if other.mean.shape != self.mean.shape:
            raise ValueError(
                f"expected features of width {len(self.mean)}, found width {len(other.mean)}"
            )
        if other.n:
            n, gap = self.n + other.n, other.mean - self.mean
            self.scatter += other.scatter + torch.outer(gap, gap) * (self.n * other.n / n)
            self.mean = self.mean + gap * (other.n / n)
            self.n = n
        return self

    def without(self, part: "Moments") -> "Moments":
        """The moments that remain when `part`, rows gathered before, is taken out again: for the
        jackknife."""
        if not 0 < part.n < self.n:
            raise ValueError(
                f"expected a part of 1 to {self.n - 1} rows to take out, found {part.n}"
            )
        rest = Moments(len(self.mean))
        rest.n = self.n - part.n
        gap = part.mean - self.mean
        rest.mean = self.mean - gap * (part.n / rest.n)
        rest.scatter = (
            self.scatter - part.scatter - torch.outer(gap, gap) * (self.n * part.n / rest.n)
        )
        return rest

    def compute(self) -> Gaussian:
        """Mean and unbiased covariance."""
        if self.n < 2:
            raise ValueError(f"a covariance needs at least 2 rows, found {self.n}")
        return Gaussian(self.n, self.mean.clone(), self.scatter / (self.n - 1))


# --------------------------------------------------------------------------------------------------
# Feature networks behind one call, each with its card: embedded, Inception, CLIP, DINOv2, or your
# own.
#
#     embedded                       the network that travels with Fulcrum: for the embedded world
#     inception=weights.safetensors  FID's pool3, TensorFlow's resize (inception-torch: as
#                                    pytorch-fid resizes)
#     clip=folder                    image embeddings of a CLIP model: CMMD, and the CLIP score
#     dino=folder                    class token of a DINOv2 model: FD-DINO, DINO-MMD
#     lite0, vgg                     EfficientNet-Lite0 and LPIPS's VGG from installed packages (or
#                                    =file): real judges
#
# A folder is what save_pretrained writes; hub:org/name asks the hub, and nothing else does.
#
# B images, d feature width


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
    #: what can be moved; None: a user's own computes wherever its code says
    network: nn.Module | None = None

    def card(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "hash": self.hash,
            "resize": self.resize,
            "value_range": self.value_range,
            "width": self.width,
        }

    def on(self, device: str) -> "Extractor":
        """The same, computing on a device; its features come back to the CPU, its hash is what it
        was."""
        if self.network is None or device == "cpu":
            return self
        settled(self.network, device)
        features, score = self.features, self.score

        def scored(images: Tensor, captions: Sequence[str]) -> Tensor:
            assert score is not None
            return score(images.to(device), captions).cpu()

        return self._replace(
            features=lambda images: features(images.to(device)), score=scored if score else None
        )

    def rows(self, images: Tensor) -> Tensor:
        """Features of any number of uint8 pictures of one size, checked, the same for any split.
        (B, d)"""
        rows = feature_rows(images, self.features)
        if rows.shape[1] != self.width:
            raise BadInput(
                f"the extractor '{self.name}' says width {self.width} and gave {rows.shape[1]}"
            )
        return rows


def load_extractor(text: str) -> Extractor:
    """`name` or `name=where`."""
    name, _, where = text.partition("=")
    if name not in LOADERS:
        raise BadInput(
            f"no extractor is called '{name}'",
            f"{nearest(name, LOADERS)}; your own: --metrics FILE.py",
        )
    if name == "embedded":
        if where:
            raise BadInput(
                f"'{text}': the embedded extractor is not read from elsewhere", "write: embedded"
            )
    elif not where and name not in INSTALLED:
        what = "a file of weights" if name.startswith("inception") else "a folder, or hub:org/name"
        raise BadInput(
            f"the extractor '{name}' needs its weights",
            f"write {name}=WHERE, where WHERE is {what}",
        )
    return LOADERS[name](where)


def full_name(part: Extractor, metric: str) -> str:
    """A metric's name in a result: `extractor.metric`; those of the embedded networks need no
    prefix."""
    return (
        metric
        if part.name in ("embedded", "attributes", "attributes_second")
        else f"{part.name}.{metric}"
    )


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
    """The judge of what stands where in a picture of the embedded world; its answers are asked for
    with the truth."""
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
    return Extractor(
        name,
        asset_hash(asset),
        "antialiased to 32 px",
        "float [-1, 1]",
        width,
        answers,
        network=network,
    )


def _inception(where: str, like_tensorflow: bool) -> Extractor:
    from fulcrum.measure.features.networks import (
        WIDTH,
        pixels_like_pytorch_fid,
        pixels_like_tensorflow,
    )

    network, content = load_inception(at_home(where))
    pixels = pixels_like_tensorflow if like_tensorflow else pixels_like_pytorch_fid
    resize = "bilinear to 299 px, not antialiased, " + (
        "corner to corner as TensorFlow 1"
        if like_tensorflow
        else "half-pixel centres as pytorch-fid"
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
    """The network with the weights in `path` (safetensors, or the known .pth read as plain
    tensors), and their hash."""
    from fulcrum.measure.features.networks import Inception

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
            # tensors only: a pickle could run code
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # many kinds; the file is what is wrong
        raise BadInput(
            f"{path} cannot be read as a state dict: {type(error).__name__}: {str(error)[:200]}",
            "expected tensors under names such as Mixed_5b.branch1x1.conv.weight",
        ) from error
    with torch.device("meta"):  # no random start for weights that are read anyway
        network = Inception()
    wanted = {
        name: value.shape
        for name, value in network.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    if not isinstance(tensors, dict):
        raise BadInput(f"{path} holds a {type(tensors).__name__}, not a state dict")
    missing = sorted(set(wanted) - set(tensors))
    wrong = sorted(
        name for name, shape in wanted.items() if name in tensors and tensors[name].shape != shape
    )
    if missing or wrong:
        raise BadInput(
            f"{path} is not FID's Inception: {len(missing)} tensors are missing and {len(wrong)}"
            f" have another shape, such as {(missing + wrong)[0]}",
            "expected the state dict of pt_inception-2015-12-05",
        )
    # its classifier (fc, AuxLogits) is not part of pool3
    used = {name: tensors[name].float() for name in wanted}
    counters = {name: torch.tensor(0) for name in network.state_dict() if name not in wanted}
    network.load_state_dict({**used, **counters}, assign=True)
    content = hashlib.sha256()
    for name in sorted(used):
        content.update(name.encode() + used[name].contiguous().numpy().tobytes())
    return network.eval().requires_grad_(False), content.hexdigest()


def _clip(where: str) -> Extractor:
    from fulcrum.measure.features.networks import load_clip

    return load_clip(where)


def _dino(where: str) -> Extractor:
    from fulcrum.measure.features.networks import load_dino

    return load_dino(where)


def _lite0(where: str) -> Extractor:
    from fulcrum.measure.features.networks import lite0

    return lite0(where)


def _vgg(where: str) -> Extractor:
    from fulcrum.measure.features.networks import vgg

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
    """uint8 -> [0, 1], bicubic with antialiasing, squeezed to a square: what Pillow's resize does.
    (B, 3, side, side)"""
    unit = images.float() / 255.0
    if unit.shape[-2:] != (side, side):
        unit = F.interpolate(
            unit, size=(side, side), mode="bicubic", antialias=True, align_corners=False
        ).clamp(0, 1)
    return unit
