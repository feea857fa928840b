"""The reference set that generated pictures are held against: computed once, kept in one verified file.

m reference rows, d feature width
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fulcrum.measure.card import MEASURE_VERSION
from fulcrum.measure.features.image_checks import FeatureFunction, feature_rows, to_uint8
from fulcrum.measure.features.moments import Gaussian, Moments
from fulcrum.measure.metrics.frechet import FrechetDistance
from fulcrum.measure.metrics.mmd import PUBLISHED_SIGMA, median_bandwidth, self_sum, unit_norm


@dataclass(frozen=True)
class Reference:
    """Features of the reference pictures and what the metrics derive from them."""

    key: str  # of the inputs, not of the float results: the same on every machine, so that cards match
    extractor: str
    features: Tensor  # (m, d) fp32
    gaussian: Gaussian
    sigma: float  # median bandwidth
    kernel_sum: float  # self_sum at sigma
    published_sum: float  # self_sum of the unit rows at the published sigma

    @cached_property
    def frechet(self) -> FrechetDistance:
        return FrechetDistance(self.gaussian)

    @cached_property
    def unit_features(self) -> Tensor:
        return unit_norm(self.features)


def reference_key(source: str, extractor: str, count: int) -> str:
    """Names a reference set: the pictures (fingerprint and count), the network that looks at them, our version."""
    text = json.dumps(["reference", source, extractor, count, MEASURE_VERSION])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def build_reference(
    batches: Iterable[Tensor], features: FeatureFunction, *, source: str, extractor: str, count: int
) -> Reference:
    """Looks at `count` reference pictures (uint8 batches) and derives everything once."""
    moments: Moments | None = None
    rows: list[Tensor] = []
    for images in batches:
        found = feature_rows(to_uint8(images), features)  # (B, d)
        rows.append(found)
        moments = Moments.of(found) if moments is None else moments.update(found)
    seen = sum(len(part) for part in rows)
    if moments is None or seen != count:
        raise ValueError(f"expected {count} reference images, found {seen}: N is part of the reference and never bends")
    together = torch.cat(rows)  # (m, d)
    sigma = median_bandwidth(together)
    return Reference(
        key=reference_key(source, extractor, count), extractor=extractor, features=together,
        gaussian=moments.compute(), sigma=sigma, kernel_sum=self_sum(together, sigma),
        published_sum=self_sum(unit_norm(together), PUBLISHED_SIGMA),
    )  # fmt: skip


def load_or_build(
    folder: Path, batches: Iterable[Tensor], features: FeatureFunction, *, source: str, extractor: str, count: int
) -> Reference:
    """The reference from its file, or built and written there. `batches` is touched only when the file is missing."""
    path = folder / f"reference-{reference_key(source, extractor, count)}.safetensors"
    if path.exists():
        return load_reference(path)
    reference = build_reference(batches, features, source=source, extractor=extractor, count=count)
    save_reference(reference, path)
    return reference


def save_reference(reference: Reference, path: Path) -> None:
    """Writes the file whole or not at all."""
    tensors = {
        "features": reference.features.contiguous(), "mean": reference.gaussian.mean.contiguous(),
        "cov": reference.gaussian.cov.contiguous(),
        "scalars": torch.tensor([reference.sigma, reference.kernel_sum, reference.published_sum], dtype=torch.float64),
    }  # fmt: skip
    facts = {"key": reference.key, "extractor": reference.extractor, "checksum": _checksum(tensors)}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")  # two processes may build the same file: last one wins
    try:
        save_file(tensors, draft, metadata=facts)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def load_reference(path: Path) -> Reference:
    """Reads the file and verifies every byte of its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path, f"not a whole safetensors file ({error})") from error
    missing = {"features", "mean", "cov", "scalars"} - set(tensors) | {"key", "extractor", "checksum"} - set(facts)
    if missing:
        raise _damaged(path, f"it lacks {', '.join(sorted(missing))}")
    if _checksum(tensors) != facts["checksum"]:
        raise _damaged(path, "its checksum does not match its content")
    sigma, kernel_sum, published_sum = tensors["scalars"].tolist()
    return Reference(
        key=facts["key"], extractor=facts["extractor"], features=tensors["features"],
        gaussian=Gaussian(len(tensors["features"]), tensors["mean"], tensors["cov"]),
        sigma=sigma, kernel_sum=kernel_sum, published_sum=published_sum,
    )  # fmt: skip


def _checksum(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"the reference file {path} is damaged: {why}; delete it and it will be built again")
