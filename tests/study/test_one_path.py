"""One metric name is one number and one card, whether a run's pictures are judged or two folders
are compared."""

import json

import numpy as np
import pytest
import torch

from fulcrum.cli import main
from fulcrum.data.source import WorldSource
from fulcrum.judge.card import MetricCard, Sampling, compatible
from fulcrum.measure.evaluate import card_of
from fulcrum.measure.evaluation import ASKED, Bench, Sources
from fulcrum.measure.features.extractor import Extractor, attributes, load_extractor
from fulcrum.measure.metrics.distances import DISTANCES, KID, MMD
from fulcrum.measure.metrics.means import AttributeShare
from fulcrum.measure.reference import reference_key

SAMPLING = Sampling(
    sampler="euler, shift 1",
    steps=12,
    guidance=2.0,
    prompts="379cd30428c4b1ba",
    noise="keyed by (seed 20260, image index)",
)
LEFT_OUT = "95 %, jackknife over 32 groups of generated images, reference held fixed"
LIMIT = "line over 1/N through the distances at N, 7/8 N and N/2 of the same features, at 1/N = 0"
MEDIAN = "unbiased, Gaussian kernel, sigma = median distance of the reference"
# What `fulcrum measure RUN` wrote on the cards of finished cells before there was one path:
# estimator and interval.
BEFORE = {
    "frechet": ("Gaussian fit, symmetric eigenvalues, fp64", LEFT_OUT),
    "frechet_limit": (LIMIT, "95 %, jackknife over 8 groups of pictures, reference held fixed"),
    "mmd": (MEDIAN, LEFT_OUT),
    "mmd_published": ("biased, Gaussian kernel, sigma = 10 on unit-norm features, x1000", LEFT_OUT),
}


@pytest.fixture(scope="module")
def pictures():
    """(n, 3, 32, 32): what was drawn, and the reference."""
    source = WorldSource(split="reference", domain="real", size=32, count=220)
    return source.read(np.arange(120, 220)).images, WorldSource(
        split="reference", domain="real", size=32, count=120
    )


def test_a_run_and_two_folders_give_one_number_and_one_card(pictures, tmp_path, capsys):
    drawn, source = pictures
    bench = Bench(("embedded",), Sources(source), tmp_path / "cache")
    for index in np.array_split(np.random.default_rng(0).permutation(100), 7):  # in no order at all
        bench.look(torch.from_numpy(drawn[index]), index)
    of_run = bench.compute(Sampling(), 100)
    np.savez(tmp_path / "a.npz", images=drawn)
    np.savez(tmp_path / "b.npz", images=source.read(np.arange(120)).images)
    with pytest.raises(SystemExit) as end:
        main(
            [
                "measure",
                *(str(tmp_path / name) for name in ("a.npz", "b.npz")),
                "--out",
                str(tmp_path),
                "--json",
                "--quiet",
            ]
        )
    assert end.value.code == 0
    of_folders = json.loads(capsys.readouterr().out)["metrics"]
    assert set(of_run) == set(BEFORE) <= set(of_folders)
    for name, measured in of_run.items():
        other = of_folders[name]
        assert (measured.value, measured.low, measured.high) == (
            other["value"],
            other["low"],
            other["high"],
        ), name
        card = MetricCard.model_validate(other["card"])
        # named by source, by content
        assert compatible(measured.card, card, may_differ=("reference",)) == ("reference",)


def test_cells_measured_before_still_compare(pictures):
    """The cards of finished cells, field by field; the reference is that of 4,096 pictures of the
    embedded world."""
    part = load_extractor("embedded")
    # as spark is judged
    source = WorldSource(split="reference", domain="real", size=32, count=4096, max_objects=1)
    key = reference_key(source, part, 4096)
    for metric in ASKED["embedded"]:
        estimator, interval = BEFORE[metric.name]
        before = MetricCard(
            metric=metric.name,
            better="lower",
            estimator=estimator,
            interval=interval,
            extractor=part.hash,
            resize="antialiased to 32 px",
            value_range="uint8",
            n=64,
            code="1",
            reference="b69b85405c6bf835d88b629d26ab968c",
            **SAMPLING.model_dump(),
        )
        assert compatible(before, card_of(metric, part, 64, key, SAMPLING)) == ()
    judge = attributes()
    before = MetricCard(
        metric="attribute_accuracy",
        better="higher",
        estimator="judged at each place",
        extractor=judge.hash,
        n=64,
        interval="95 %, bootstrap over images, 1000 draws",
        resize="antialiased to 32 px",
        value_range="uint8",
        code="1",
        **SAMPLING.model_dump(),
    )
    assert (
        compatible(before, card_of(AttributeShare("attribute_accuracy"), judge, 64, None, SAMPLING))
        == ()
    )


def test_a_judge_of_a_plan_has_the_card_of_folders():
    """Real networks are wide: their sums are of fp32 products, for plans and for folders, as they
    were."""
    part = Extractor("lite0", "hash", "none", "uint8", 1280, lambda images: images)
    for metric, estimator in (
        (KID(), "unbiased, polynomial kernel of degree 3, all pairs, fp32 products"),
        (MMD(), f"{MEDIAN}, fp32 products"),
    ):
        card = card_of(metric, part, 64, "key", Sampling())
        assert (card.metric, card.estimator, card.interval) == (
            f"lite0.{metric.name}",
            estimator,
            LEFT_OUT,
        )
    assert {metric.name for metric in ASKED["embedded"]} <= {metric.name for metric in DISTANCES}
