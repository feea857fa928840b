"""A user's own metric and extractor: hashed, carded, probed; and what is wrong with a file is
said."""

from pathlib import Path

import pytest
import torch

from fulcrum.judge.card import MEASURE_VERSION
from fulcrum.measure.user_metrics import load
from fulcrum.spec.errors import BadInput

METRIC = """
from fulcrum.measure.metrics.base import RowDistance

class MeanGap(RowDistance):
    name, label = "mean_gap", "Distance of means"
    estimator = "Euclidean distance of the mean features"
    sees = {"wrong_range": "worse", "collapsed": "stays"}

    def value(self, pictures, reference):
        return float((pictures.mean(0) - reference.mean(0)).norm())
"""
EXTRACTOR = """
from fulcrum.measure.user_metrics import OwnExtractor

class Colours(OwnExtractor):
    name, width, resize = "colours", 6, "none"
    weights = ("scale.txt",)

    def features(self, images):
        import torch
        return torch.cat([images.float().mean((2, 3)), images.float().std((2, 3))], 1)
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_metric_and_extractor(tmp_path: Path) -> None:
    write(tmp_path / "scale.txt", "1")
    own = load([write(tmp_path / "m.py", METRIC), write(tmp_path / "e.py", EXTRACTOR)])
    (metric,), part = own.metrics, own.extractors["colours"]
    assert (
        metric.code.startswith(f"{MEASURE_VERSION}, m.py ") and metric.sees["collapsed"] == "stays"
    )
    assert part.rows(torch.zeros(3, 3, 4, 4, dtype=torch.uint8)).shape == (3, 6)
    write(tmp_path / "scale.txt", "2")
    # its weights are part of it
    assert load([tmp_path / "e.py"]).extractors["colours"].hash != part.hash
    changed = load([write(tmp_path / "m.py", METRIC + "\n# changed")]).metrics[0]
    assert changed.code != metric.code  # numbers of two versions refuse to be compared


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "neither a metric nor an extractor"),
        ("raise ValueError('mine')", "ValueError: mine"),
        (METRIC.replace('"mean_gap"', '"frechet"'), "is taken"),
        (METRIC.replace('"collapsed"', '"colapsed"'), "did you mean: collapsed"),
        (METRIC.replace('"stays"', '"remains"'), "write worse, better, stays, depends"),
        (METRIC.replace("estimator = ", "other = "), "needs `estimator`"),
        (EXTRACTOR.replace('"colours", 6', '"clip", 6'), "exists already"),
        (EXTRACTOR.replace('"scale.txt"', '"none.txt"'), "which are not there"),
        (EXTRACTOR.replace("name, width, resize", "name, depth, resize"), "needs `width`"),
    ],
)
def test_a_file_that_cannot_be_used(text: str, says: str, tmp_path: Path) -> None:
    write(tmp_path / "scale.txt", "1")
    with pytest.raises(BadInput) as error:
        load([write(tmp_path / "x.py", text)])
    assert says in str(error.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no Python file"):
        load([tmp_path / "none.py"])


def test_files_written_before_find_their_base_classes_where_they_were():
    """Cards hold the hashes of people's own files: they must go on to load as they are."""
    from fulcrum.measure.metric import Distance, RowDistance
    from fulcrum.measure.own import OwnExtractor

    from fulcrum.measure.metrics import base
    from fulcrum.measure.user_metrics import OwnExtractor as now

    assert (Distance, RowDistance, OwnExtractor) == (base.Distance, base.RowDistance, now)
