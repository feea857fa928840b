"""One pass over generated pictures gives every metric, each with its interval and its card.

B images of a batch, n of all, P places, d feature width
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.measure.card import METRICS, Measured, MetricCard, Sampling
from fulcrum.measure.features.gathered import GroupedMoments
from fulcrum.measure.features.image_checks import (
    FeatureFunction,
    JudgeFunction,
    Range,
    describe_range,
    feature_rows,
    to_uint8,
)
from fulcrum.measure.features.moments import Moments
from fulcrum.measure.metrics.attributes import SHARES, Counts, score, share
from fulcrum.measure.metrics.frechet_subsets import GROUPS as FEW_GROUPS
from fulcrum.measure.metrics.frechet_subsets import LIMIT, distances
from fulcrum.measure.metrics.interval import BOOTSTRAP, GROUPS, JACKKNIFE, bootstrap_shares, jackknife
from fulcrum.measure.metrics.mmd import PUBLISHED_SIGMA, kernel_sums, published, unbiased, unit_norm
from fulcrum.measure.reference import Reference

MINIMUM = 2 * GROUPS  # images: a jackknife group of one row would leave no pair inside it

FEW_JACKKNIFE = f"95 %, jackknife over {FEW_GROUPS} groups of pictures, reference held fixed"

Interval = tuple[float, float, float]  # value, low, high


class Pictures(NamedTuple):
    """A batch of generated pictures, and what they should show."""

    images: Tensor  # (B, 3, S, S), uint8, or float in the suite's declared range
    ids: NDArray[np.int64]  # (B,) which image of the evaluation each row is
    truth: Mapping[str, NDArray[np.integer]] | None = None  # Scenes.grid(): {attribute: (B, P)}


class Gathered:
    """What has been seen so far; two processes' gatherings merge into one. Keeps features, not pictures."""

    def __init__(self) -> None:
        self.ids: list[NDArray[np.int64]] = []
        self.features: list[Tensor] = []
        self.counts: list[Counts] = []

    def merge(self, other: "Gathered") -> "Gathered":
        """Takes in another gathering, in place."""
        self.ids += other.ids
        self.features += other.features
        self.counts += other.counts
        return self


class Suite:
    """The metrics of one evaluation setting. `extractor` and `judged_by` are the hashes of the two networks."""

    def __init__(
        self, features: FeatureFunction, judge: JudgeFunction, reference: Reference, *, extractor: str, judged_by: str,
        resize: str, value_range: Range | None = None,
    ) -> None:  # fmt: skip
        if extractor != reference.extractor:
            raise ValueError(
                f"the reference was made with the features of {reference.extractor!r}, the suite has {extractor!r}: "
                "build the reference again with these features"
            )
        self.features, self.judge, self.reference = features, judge, reference
        self.extractor, self.judged_by, self.resize, self.value_range = extractor, judged_by, resize, value_range

    def measure(self, batches: Iterable[Pictures], sampling: Sampling, expected: int) -> dict[str, Measured]:
        """Every metric of `expected` pictures."""
        gathered = Gathered()
        for pictures in batches:
            self.look(gathered, pictures)
        return self.compute(gathered, sampling, expected)

    def look(self, gathered: Gathered, pictures: Pictures) -> None:
        """Takes one batch in."""
        images = to_uint8(pictures.images, self.value_range)
        ids = np.asarray(pictures.ids, dtype=np.int64)
        if ids.shape != (images.shape[0],):
            raise ValueError(f"expected an image index for each of {images.shape[0]} rows, found shape {ids.shape}")
        gathered.features.append(feature_rows(images, self.features))
        gathered.ids.append(ids)
        if pictures.truth is not None:
            with torch.no_grad():
                gathered.counts.append(score(self.judge(images), pictures.truth))

    def compute(self, gathered: Gathered, sampling: Sampling, expected: int) -> dict[str, Measured]:
        """All values; refuses any N but the one that the plan fixed."""
        order = _order(gathered, expected)
        rows = torch.cat(gathered.features)[torch.from_numpy(order)]  # (n, d)
        found: dict[str, Measured] = {}
        for name, (estimator, values) in self._distances(rows).items():
            interval = FEW_JACKKNIFE if name == "frechet_limit" else JACKKNIFE
            card = self._card(name, estimator, interval, expected, sampling, self.extractor, self.reference.key)
            found[name] = _measured(values, card)
        if gathered.counts:
            for name, values in _shares(gathered.counts, order).items():
                card = self._card(name, "judged at each place", BOOTSTRAP, expected, sampling, self.judged_by, None)
                found[name] = _measured(values, card)
        return found

    def _distances(self, rows: Tensor) -> dict[str, tuple[str, Interval]]:
        reference = self.reference
        plain = kernel_sums(rows, reference.features, reference.kernel_sum, reference.sigma, GROUPS)
        unit = kernel_sums(unit_norm(rows), reference.unit_features, reference.published_sum, PUBLISHED_SIGMA, GROUPS)
        return {
            "frechet": ("Gaussian fit, symmetric eigenvalues, fp64", self._frechet(rows)),
            "frechet_limit": (LIMIT, self._limit(rows)),
            "mmd": (
                "unbiased, Gaussian kernel, sigma = median distance of the reference",
                _jackknifed(unbiased(plain), [unbiased(plain, group) for group in range(GROUPS)]),
            ),
            "mmd_published": (
                f"biased, Gaussian kernel, sigma = {PUBLISHED_SIGMA:g} on unit-norm features, x1000",
                _jackknifed(published(unit), [published(unit, group) for group in range(GROUPS)]),
            ),
        }

    def _frechet(self, rows: Tensor) -> Interval:
        n, d = rows.shape
        distance, groups = self.reference.frechet, torch.arange(n) % GROUPS
        if n <= d:  # the Gram side is smaller than any covariance
            left = [distance.to_rows(rows[groups != group]) for group in range(GROUPS)]
            return _jackknifed(distance.to_rows(rows), left)
        whole = Moments.of(rows)
        left = [distance.to(whole.without(Moments.of(rows[groups == group])).compute()) for group in range(GROUPS)]
        return _jackknifed(distance.to(whole.compute()), left)

    def _limit(self, rows: Tensor) -> Interval:
        """The same for N -> infinity, so that arms that are biased unlike by N can be told."""
        gathered = GroupedMoments(rows.shape[1], FEW_GROUPS)
        gathered.update(rows, np.arange(len(rows)))
        return distances(gathered, self.reference.frechet, halves=True).limit()

    def _card(
        self, name: str, estimator: str, interval: str, n: int, sampling: Sampling, extractor: str,
        reference: str | None,
    ) -> MetricCard:  # fmt: skip
        return MetricCard(
            metric=name, better=METRICS[name].better, estimator=estimator, interval=interval, extractor=extractor,
            resize=self.resize, value_range=describe_range(self.value_range), n=n, reference=reference,
            sampler=sampling.sampler, steps=sampling.steps, guidance=sampling.guidance, prompts=sampling.prompts,
            noise=sampling.noise,
        )  # fmt: skip


def _order(gathered: Gathered, expected: int) -> NDArray[np.intp]:
    """Rows by image index, so that batching and processes leave no trace in the jackknife's groups."""
    if expected < MINIMUM:
        raise ValueError(f"expected at least {MINIMUM} images for values with intervals, the plan asks for {expected}")
    ids = np.concatenate(gathered.ids) if gathered.ids else np.zeros(0, dtype=np.int64)
    if len(ids) != expected:
        raise ValueError(f"expected {expected} images, found {len(ids)}: N is part of the card and never bends")
    if len(np.unique(ids)) != len(ids):
        values, times = np.unique(ids, return_counts=True)
        raise ValueError(f"images {values[times > 1][:8].tolist()} came more than once: each may count only once")
    judged = sum(len(asked) for counts in gathered.counts for _, asked in [counts["attribute_accuracy"]])
    if judged not in (0, expected):
        raise ValueError(f"{judged} of {expected} images came with their truth: give it for all of them or for none")
    return np.argsort(ids, kind="stable")


def _shares(counts: list[Counts], order: NDArray[np.intp]) -> dict[str, Interval]:
    right = np.stack([np.concatenate([part[name][0] for part in counts]) for name in SHARES], axis=1)[order]  # (n, k)
    asked = np.stack([np.concatenate([part[name][1] for part in counts]) for name in SHARES], axis=1)[order]
    low, high = bootstrap_shares(right, asked)
    values = [share(right[:, k], asked[:, k])[0] for k in range(len(SHARES))]
    return {name: (values[k], float(low[k]), float(high[k])) for k, name in enumerate(SHARES)}


def _jackknifed(value: float, replicates: list[float]) -> Interval:
    low, high = jackknife(value, replicates)
    return value, low, high


def _measured(values: Interval, card: MetricCard) -> Measured:
    value, low, high = values
    return Measured(value=value, low=low, high=high, card=card)
