"""The suite as a whole: one pass, cards, probes that must move or stay, and refused evaluations."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from fulcrum.measure.card import Measured, NotComparable, Sampling, compatible
from fulcrum.measure.features.image_checks import BadImages
from fulcrum.measure.metrics.attributes import SHARES
from fulcrum.measure.metrics.distances import FrechetLimit
from fulcrum.measure.reference import Reference, build_reference
from fulcrum.measure.suite import MINIMUM, Gathered, Pictures, Suite

N, D = 256, 12
PROJECTION = torch.randn(3 * 16 * 16, D, generator=torch.Generator().manual_seed(0)) / 200
SAMPLING = Sampling(sampler="euler", steps=20, guidance=3.0, prompts="p", noise="keyed by image index")
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
    seen = {"present": byte % 2, "shape": byte % 3, "colour": byte % 4, "texture": byte // 2 % 2, "size": byte // 3 % 2}
    return {name: torch.nn.functional.one_hot(seen[name], count).float() for name, count in CLASSES.items()}


def truth_of(images: Tensor) -> dict[str, np.ndarray]:
    named = {name: answer.argmax(-1).numpy() for name, answer in judge(images).items()}
    return {name: values if name == "present" else np.where(named["present"] == 1, values, -1)
            for name, values in named.items()}  # fmt: skip


@pytest.fixture(scope="module")
def reference() -> Reference:
    return build_reference(pictures(1, 600).split(100), features, source="world", extractor="net", count=600)


@pytest.fixture(scope="module")
def suite(reference: Reference) -> Suite:
    return Suite(features, judge, reference, extractor="net", judged_by="judge", resize="none")


def batches(images: Tensor, size: int = 64, truth: bool = True) -> Iterator[Pictures]:
    for start in range(0, len(images), size):
        part = images[start : start + size]
        yield Pictures(part, np.arange(start, start + len(part)), truth_of(part) if truth else None)


def values(measured: dict[str, Measured]) -> dict[str, float]:
    return {name: number.value for name, number in measured.items()}


def test_all_metrics_with_cards_and_intervals(suite: Suite, reference: Reference) -> None:
    found = suite.measure(batches(pictures(2)), SAMPLING, N)
    assert set(found) == {"frechet", "frechet_limit", "mmd", "mmd_published", *SHARES}
    for name, number in found.items():
        assert number.card.metric == name and number.card.n == N and number.low <= number.value <= number.high
        assert number.card.guidance == 3.0 and number.card.value_range == "uint8"
    assert found["frechet"].card.reference == reference.key and found["attribute_accuracy"].card.extractor == "judge"
    assert found["attribute_accuracy"].value == 1.0 and found["extra_objects"].value == 0.0
    compatible(found["frechet"].card, suite.measure(batches(pictures(3)), SAMPLING, N)["frechet"].card)


def test_batching_order_and_processes_leave_no_trace(suite: Suite) -> None:
    images = pictures(2)
    whole = suite.measure(batches(images), SAMPLING, N)
    small = suite.measure(batches(images, 7), SAMPLING, N)
    left, right = Gathered(), Gathered()
    for turn, part in enumerate(batches(images, 32)):
        suite.look(left if turn % 2 else right, part)
    merged = suite.compute(left.merge(right), SAMPLING, N)
    for other in (small, merged):
        for name, number in whole.items():
            assert (other[name].value, other[name].low) == pytest.approx((number.value, number.low), rel=1e-5, abs=1e-8)


def test_a_copy_of_the_reference_scores_zero(suite: Suite, reference: Reference) -> None:
    found = values(suite.measure(batches(pictures(1, 600)), SAMPLING, 600))
    scale = float(reference.gaussian.cov.trace())
    assert abs(found["frechet"]) < 1e-6 * scale and abs(found["mmd_published"]) < 1e-6
    assert -2.5 / 600 < found["mmd"] < 0  # unbiased for independent rows; a copy is nearer than chance


def test_the_limit_takes_the_bias_in_n_away(suite: Suite) -> None:
    """Eight sets from a world of their own: the distance grows as N falls, its limit does not, on average."""

    def means(n: int) -> tuple[float, float]:
        found = [suite.measure(batches(pictures(seed, n), n, truth=False), SAMPLING, n) for seed in range(20, 28)]
        distance, limit = (np.mean([one[name].value for one in found]) for name in ("frechet", "frechet_limit"))
        return float(distance), float(limit)

    (few, few_limit), (many, many_limit) = means(64), means(N)
    assert few > many + 1 and abs(few_limit - many_limit) < 0.5 * (few - many)
    found = suite.measure(batches(pictures(2)), SAMPLING, N)
    card = found["frechet_limit"].card
    assert "1/N" in card.estimator and "8 groups" in card.interval
    pictures_, around = (FrechetLimit().gather(D, reference) for reference in (False, True))
    pictures_.update(features(pictures(2)), np.arange(N))
    around.update(suite.reference.features, np.arange(len(suite.reference.features)))
    assert found["frechet_limit"].value == pytest.approx(FrechetLimit().compute(pictures_, around)[0], rel=1e-5)


def test_probes(suite: Suite) -> None:
    """Negated pictures, a channel at half strength and collapsed diversity move the distances; another seed does not."""
    fair = suite.measure(batches(pictures(2), truth=False), SAMPLING, N)
    assert set(fair) == {"frechet", "frechet_limit", "mmd", "mmd_published"}
    images = pictures(2)
    less_red = images.clone()
    less_red[:, 0] = less_red[:, 0] // 2
    probes = {"negated": 255 - images, "less red": less_red, "collapsed": images[:4].repeat(N // 4, 1, 1, 1)}
    for name, probe in probes.items():
        moved = suite.measure(batches(probe, truth=False), SAMPLING, N)
        for metric in ("frechet", "mmd"):
            assert moved[metric].low > fair[metric].high, (name, metric)
    same = suite.measure(batches(pictures(9), truth=False), SAMPLING, N)
    for metric in ("frechet", "mmd"):
        assert same[metric].low < fair[metric].high and fair[metric].low < same[metric].high


def test_floats_with_their_range_equal_bytes(reference: Reference, suite: Suite) -> None:
    images = pictures(2)
    floats = Suite(features, judge, reference, extractor="net", judged_by="judge", resize="none", value_range=(-1.0, 1.0))
    as_float = floats.measure([Pictures(images.float() / 127.5 - 1.0, np.arange(N), truth_of(images))], SAMPLING, N)
    as_bytes = suite.measure([Pictures(images, np.arange(N), truth_of(images))], SAMPLING, N)
    assert values(as_float) == values(as_bytes)
    with pytest.raises(NotComparable, match="value_range"):
        compatible(as_float["mmd"].card, as_bytes["mmd"].card)


def test_fewer_rows_than_features(reference: Reference) -> None:
    wide = torch.randn(3 * 16 * 16, 200, generator=torch.Generator().manual_seed(4)) / 200

    def many(images: Tensor) -> Tensor:
        return images.float().flatten(1) @ wide

    around = build_reference([pictures(1, 300)], many, source="world", extractor="wide", count=300)
    gram = Suite(many, judge, around, extractor="wide", judged_by="judge", resize="none")
    found = gram.measure(batches(pictures(2, 100)), SAMPLING, 100)["frechet"]
    rows = many(pictures(2, 100)).double()
    assert found.value == pytest.approx(around.frechet.to_rows(rows)) and found.low < found.value < found.high


def test_refusals(suite: Suite, reference: Reference) -> None:
    images = pictures(2)
    with pytest.raises(ValueError, match="expected 300 images, found 256"):
        suite.measure(batches(images), SAMPLING, 300)
    with pytest.raises(ValueError, match=f"at least {MINIMUM} images"):
        suite.measure(batches(images[:20]), SAMPLING, 20)
    with pytest.raises(ValueError, match="expected 256 images, found 0"):
        suite.measure([], SAMPLING, N)
    with pytest.raises(ValueError, match=r"images \[0, 1, 2"):
        suite.measure([*batches(images[:128]), *batches(images[:128])], SAMPLING, N)
    with pytest.raises(ValueError, match="128 of 256 images came with their truth"):
        rest = Pictures(images[128:], np.arange(128, 256))
        suite.measure([*batches(images[:128]), rest], SAMPLING, N)
    with pytest.raises(BadImages, match="declared range"):
        suite.measure([Pictures(images.float(), np.arange(N))], SAMPLING, N)
    with pytest.raises(ValueError, match="an image index for each"):
        suite.measure([Pictures(images, np.arange(3))], SAMPLING, N)
    with pytest.raises(ValueError, match="build the reference again"):
        Suite(features, judge, reference, extractor="other", judged_by="judge", resize="none")
