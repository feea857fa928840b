"""The self-audit: every metric does what it declares, and a metric that does not is found out."""

import json

import numpy as np
import pytest
import torch

from fulcrum.judge.card import METRICS, PROBES, SEES
from fulcrum.measure.evaluate import Comparison
from fulcrum.measure.features.extractor import Extractor, load_extractor
from fulcrum.measure.metrics.base import RowDistance
from fulcrum.measure.metrics.distances import DISTANCES, MMD, Frechet, MMDPublished, unit_norm
from fulcrum.measure.metrics.means import NEED_SCENES
from fulcrum.measure.probe import (
    CHOICES,
    KEPT,
    NOISES,
    PIXELS,
    ProbeTable,
    answer,
    blurred,
    collapsed,
    duplicated,
    embedded_world,
    halved,
    negated,
    probe,
    swapped_channels,
    wrong_range,
)
from fulcrum.spec.errors import BadInput


@pytest.fixture(scope="module")
def table() -> ProbeTable:
    pictures, reference, shares = embedded_world(512)
    return probe(
        pictures,
        reference,
        [Comparison(load_extractor("embedded"), DISTANCES)],
        "the embedded world",
        shares,
    )


def cell(table: ProbeTable, name: str, metric: str):
    return next(one for one in table.cells if (one.probe, one.metric) == (name, metric))


def test_every_metric_declares_every_fault() -> None:
    for name in [*(metric.name for metric in DISTANCES), *NEED_SCENES]:
        assert set(SEES[name]) == set(PROBES), name
    assert all(
        METRICS[name].sees == SEES[name]
        for name in ("frechet", "mmd", "mmd_published", *NEED_SCENES)
    )
    assert set(PIXELS) | set(CHOICES) | {"copy"} == set(PROBES)


def test_every_metric_does_what_it_declares(table: ProbeTable) -> None:
    assert table.mismatches == ()
    assert len(table.cells) == len(PROBES) * (len(DISTANCES) + len(NEED_SCENES)) and table.n == 512
    assert "collapsed" in "\n".join(table.lines())


def test_the_published_form_is_blind_to_collapse(table: ProbeTable) -> None:
    """A14, on pictures: seven of eight are gone. FID grows fourfold, the published form stays where
    it was."""
    fair = {one.metric: one.value for one in table.fair}
    assert cell(table, "collapsed", "frechet").value > 3 * fair["frechet"]
    assert cell(table, "collapsed", "mmd").low > 3 * fair["mmd"]
    assert cell(table, "collapsed", "mmd_published").found == "stays"
    assert cell(table, "collapsed", "mmd_published").value < 1.5 * fair["mmd_published"]


def test_the_table_is_plain_json(table: ProbeTable) -> None:
    assert ProbeTable.model_validate(json.loads(table.model_dump_json())) == table


def test_a_metric_that_lies_is_found_out() -> None:
    """A constant sees nothing; what it declares otherwise is a mismatch, what it leaves open is
    not."""

    class Constant(RowDistance):
        name = label = "constant"
        estimator = "one"
        sees = {"negated": "worse", "halved": "stays", "blurred": "depends"}

        def value(self, pictures, reference):
            return 1.0

    def features(images):
        return images.float().mean((2, 3))

    images = torch.randint(
        0, 256, (512, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    constant = [Comparison(Extractor("mean", "h", "none", "uint8", 3, features), [Constant()])]
    table = probe(
        images.split(100),
        images.flip(0).split(100),
        constant,
        "noise",
    )
    assert [(one.probe, one.metric, one.declared, one.found) for one in table.mismatches] == [
        ("negated", "mean.constant", "worse", "stays")
    ]
    assert "(!)" in "\n".join(table.lines())
    with pytest.raises(BadInput, match="at least 512 pictures"):
        probe([images[:100]], [images[:100]], constant, "few")


def test_faults_are_what_they_say() -> None:
    images = torch.randint(
        0, 256, (3, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    assert torch.equal(negated(negated(images)), images) and torch.equal(
        swapped_channels(images)[:, 0], images[:, 2]
    )
    assert (
        int(wrong_range(images).min()) >= 127
        and blurred(images).float().std() < 0.3 * images.float().std()
    )
    rows = torch.randn(512, 16, generator=torch.Generator().manual_seed(1)) + 1
    assert len(halved(rows)) == 256 and len(halved(rows).unique()) == 256
    assert len(duplicated(rows)) == 512 and len(duplicated(rows).unique()) == NOISES
    few = collapsed(rows)
    assert len(few) == 512 and len(few.unique()) == 512 // KEPT
    unit = unit_norm(rows)
    gap, usual = (
        float((unit[index].mean(0) - unit.mean(0)).square().sum())
        for index in (few, duplicated(rows))
    )
    assert gap < 0.01 * usual


def test_moved_means_intervals_apart_in_the_direction_of_better() -> None:
    assert answer((1, 0.9, 1.1), (2, 1.8, 2.2), "lower") == "worse"
    assert answer((1, 0.9, 1.1), (2, 1.8, 2.2), "higher") == "better"
    assert answer((1, 0.9, 1.1), (1.2, 1.05, 1.3), "lower") == "stays"


def test_the_mmds_on_a_plain_collapse() -> None:
    """The same on bare features, so that no network is to blame."""
    rows = torch.randn(600, 32, generator=torch.Generator().manual_seed(1)) + 0.5
    around = torch.randn(600, 32, generator=torch.Generator().manual_seed(2)) + 0.5

    def value(metric, part):
        pictures, reference = metric.gather(32, False), metric.gather(32, True)
        pictures.update(part, np.arange(len(part)))
        reference.update(around, np.arange(600))
        return metric.compute(pictures, reference)

    few = rows[collapsed(rows)]
    for metric, seen in ((MMD(), "worse"), (Frechet(), "worse"), (MMDPublished(), "stays")):
        assert answer(value(metric, rows), value(metric, few), "lower") == seen, metric.name
