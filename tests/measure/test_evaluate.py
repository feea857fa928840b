"""The one evaluation path: one pass, cards, probes that must move or stay, and refused
evaluations."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from fulcrum.judge.card import Measured, NotComparable, Sampling, compatible
from fulcrum.measure.evaluate import Comparison, FeatureSet, compare
from fulcrum.measure.features.extractor import BadImages, Extractor, Moments
from fulcrum.measure.metrics.base import MINIMUM, WIDE
from fulcrum.measure.metrics.distances import MMD, Frechet, FrechetLimit, MMDPublished
from fulcrum.measure.metrics.frechet import FrechetDistance
from fulcrum.measure.metrics.means import ATTRIBUTE_SHARES, SHARES, count_rows, score
from fulcrum.spec.errors import BadInput

Pictures = tuple[Tensor, np.ndarray, Mapping[str, np.ndarray] | None]  # images, ids, truth
N, D = 256, 12
PROJECTION = torch.randn(3 * 16 * 16, D, generator=torch.Generator().manual_seed(0)) / 200
SAMPLING = Sampling(
    sampler="euler", steps=20, guidance=3.0, prompts="p", noise="keyed by image index"
)
CLASSES = {"present": 2, "shape": 3, "colour": 4, "texture": 2, "size": 2}


def pictures(seed: int, n: int = N) -> Tensor:
    """Smooth random pictures: a random colour with a random ramp."""
    generator = torch.Generator().manual_seed(seed)
    colour, ramp = (torch.rand(n, 3, 1, 1, generator=generator) * scale for scale in (180, 70))
    grain = torch.rand(n, 3, 16, 16, generator=generator) * 5
    return (colour + ramp * torch.linspace(0, 1, 16) + grain).to(torch.uint8)


def features(images: Tensor) -> Tensor:
    assert images.dtype == torch.uint8
    return images.float().flatten(1) @ PROJECTION


def judge(images: Tensor) -> Mapping[str, Tensor]:
    """Sees at place k what byte k of the picture says: a judge whose answer is known."""
    byte = images[:, 0, 0, :9].long()  # (B, 9)
    seen = {
        "present": byte % 2,
        "shape": byte % 3,
        "colour": byte % 4,
        "texture": byte // 2 % 2,
        "size": byte // 3 % 2,
    }
    return {
        name: torch.nn.functional.one_hot(seen[name], count).float()
        for name, count in CLASSES.items()
    }


def truth_of(images: Tensor) -> dict[str, np.ndarray]:
    named = {name: answer.argmax(-1).numpy() for name, answer in judge(images).items()}
    return {
        name: values if name == "present" else np.where(named["present"] == 1, values, -1)
        for name, values in named.items()
    }


SHOWN = Extractor("attributes", "judge", "none", "uint8", 9 * sum(CLASSES.values()), features)
NETWORK = Extractor("embedded", "net", "none", "uint8", D, features)
METRICS = (Frechet(), FrechetLimit(), MMD(), MMDPublished())


class Setting:
    """Distances to a reference and shares of a judge, put together as a run's evaluation is."""

    def __init__(self, reference: Tensor, network: Extractor = NETWORK) -> None:
        self.comparisons = [Comparison(network, METRICS)]
        self.attributes = Comparison(SHOWN, ATTRIBUTE_SHARES)
        self.reference = FeatureSet(self.comparisons, reference=True)
        self.reference.look(reference, np.arange(len(reference)))

    def measure(self, batches: Iterable[Pictures], expected: int) -> dict[str, Measured]:
        seen = FeatureSet([*self.comparisons, self.attributes])
        for images, ids, truth in batches:
            seen.look(images, ids)
            if truth is not None:
                seen.score("attributes", count_rows(score(judge(images), truth)), ids)
        asked = (
            [*self.comparisons, self.attributes]
            if seen.count("attributes", ATTRIBUTE_SHARES[0])
            else self.comparisons
        )
        return compare(asked, seen, self.reference, expected, {"embedded": "world"}, SAMPLING)


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting(pictures(1, 600))


def batches(images: Tensor, size: int = 64, truth: bool = True) -> Iterator[Pictures]:
    for start in range(0, len(images), size):
        part = images[start : start + size]
        yield part, np.arange(start, start + len(part)), truth_of(part) if truth else None


def values(measured: dict[str, Measured]) -> dict[str, float]:
    return {name: number.value for name, number in measured.items()}


def test_all_metrics_with_cards_and_intervals(setting: Setting) -> None:
    measured = setting.measure(batches(pictures(2)), N)
    assert set(measured) == {"frechet", "frechet_limit", "mmd", "mmd_published", *SHARES}
    for name, number in measured.items():
        assert (
            number.card.metric == name
            and number.card.n == N
            and number.low <= number.value <= number.high
        )
        assert number.card.guidance == 3.0 and number.card.value_range == "uint8"
    assert (
        measured["frechet"].card.reference == "world"
        and measured["frechet"].card.extractor == "net"
    )
    assert (
        measured["attribute_accuracy"].card.extractor == "judge"
        and measured["attribute_accuracy"].card.reference is None
    )
    assert measured["attribute_accuracy"].value == 1.0 and measured["extra_objects"].value == 0.0
    compatible(measured["frechet"].card, setting.measure(batches(pictures(3)), N)["frechet"].card)
    with pytest.raises(NotComparable, match="n "):
        compatible(
            measured["frechet"].card,
            setting.measure(batches(pictures(3, 300)), 300)["frechet"].card,
        )


def test_batching_and_order_leave_no_trace(setting: Setting) -> None:
    images = pictures(2)
    whole = setting.measure(batches(images), N)
    backwards = setting.measure([*batches(images, 7)][::-1], N)
    assert backwards == whole


def test_a_copy_of_the_reference_scores_zero(setting: Setting) -> None:
    measured = values(setting.measure(batches(pictures(1, 600)), 600))
    scale = float(Moments.of(features(pictures(1, 600))).compute().cov.trace())
    assert abs(measured["frechet"]) < 1e-6 * scale and abs(measured["mmd_published"]) < 1e-6
    # unbiased for independent rows; a copy is nearer than chance
    assert -2.5 / 600 < measured["mmd"] < 0


def test_the_limit_takes_the_bias_in_n_away(setting: Setting) -> None:
    """Eight sets from a world of their own: the distance grows as N falls, its limit does not, on
    average."""

    def means(n: int) -> tuple[float, float]:
        measured = [
            setting.measure(batches(pictures(seed, n), n, truth=False), n) for seed in range(20, 28)
        ]
        distance, limit = (
            np.mean([one[name].value for one in measured]) for name in ("frechet", "frechet_limit")
        )
        return float(distance), float(limit)

    (few, few_limit), (many, many_limit) = means(64), means(N)
    assert few > many + 1 and abs(few_limit - many_limit) < 0.5 * (few - many)
    card = setting.measure(batches(pictures(2)), N)["frechet_limit"].card
    assert "1/N" in card.estimator and "8 groups" in card.interval


def test_probes(setting: Setting) -> None:
    """Negated pictures, a channel at half strength and collapsed diversity move the distances;
    another seed does not."""
    fair = setting.measure(batches(pictures(2), truth=False), N)
    assert set(fair) == {"frechet", "frechet_limit", "mmd", "mmd_published"}
    images = pictures(2)
    less_red = images.clone()
    less_red[:, 0] = less_red[:, 0] // 2
    probes = {
        "negated": 255 - images,
        "less red": less_red,
        "collapsed": images[:4].repeat(N // 4, 1, 1, 1),
    }
    for name, probe in probes.items():
        moved = setting.measure(batches(probe, truth=False), N)
        for metric in ("frechet", "mmd"):
            assert moved[metric].low > fair[metric].high, (name, metric)
    same = setting.measure(batches(pictures(9), truth=False), N)
    for metric in ("frechet", "mmd"):
        assert same[metric].low < fair[metric].high and fair[metric].low < same[metric].high


@pytest.mark.parametrize("width", [200, WIDE])
def test_fewer_rows_than_features(width: int) -> None:
    mix = torch.randn(3 * 16 * 16, width, generator=torch.Generator().manual_seed(4)) / 200

    def many(images: Tensor) -> Tensor:
        return images.float().flatten(1) @ mix

    gram = Setting(pictures(1, 300), Extractor("embedded", "wide", "none", "uint8", width, many))
    measured = gram.measure(batches(pictures(2, 100)), 100)["frechet"]
    around = FrechetDistance(Moments.of(many(pictures(1, 300))).compute())
    assert measured.value == pytest.approx(
        around.to_rows(many(pictures(2, 100)).double()), rel=1e-6
    )
    assert measured.low < measured.value < measured.high


def test_a_card_says_with_what_effort_wide_features_are_compared() -> None:
    """One rule for all who measure: below WIDE in fp64 with 32 groups, from there on fp32 products
    and 8 groups."""
    for metric, narrow, wide in (
        (Frechet(), "32 groups", "8 groups"),
        (MMD(), "of the reference", "of the reference, fp32 products"),
    ):
        assert (
            " ".join(metric.described(WIDE - 1)).count(narrow) == 1
            and "fp32" not in metric.described(WIDE - 1)[0]
        )
        assert wide in " ".join(metric.described(WIDE))


def test_refusals(setting: Setting) -> None:
    images = pictures(2)
    with pytest.raises(ValueError, match="expected 300 images, frechet saw 256"):
        setting.measure(batches(images), 300)
    with pytest.raises(BadInput, match=f"at least {MINIMUM} pictures, found 20"):
        setting.measure(batches(images[:20]), 20)
    with pytest.raises(ValueError, match="expected 256 images, frechet saw 0"):
        setting.measure([], N)
    with pytest.raises(BadInput, match=r"images \[0, 1, 2"):
        setting.measure([*batches(images[:128]), *batches(images[:128])], N)
    with pytest.raises(ValueError, match="expected 256 images, attribute_f1 saw 128"):
        setting.measure([*batches(images[:128]), (images[128:], np.arange(128, 256), None)], N)
    with pytest.raises(BadImages, match="declared range"):
        setting.measure([(images.float(), np.arange(N), None)], N)
    with pytest.raises(ValueError, match="an image index for each"):
        setting.measure([(images, np.arange(3), None)], N)
