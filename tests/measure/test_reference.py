"""The reference: features looked at once, kept with what metrics derive from them, never trusted
when damaged."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fulcrum.files.paths import Damaged
from fulcrum.measure.evaluate import Comparison
from fulcrum.measure.features.extractor import Extractor
from fulcrum.measure.metrics import distances
from fulcrum.measure.metrics.distances import MMD, Frechet, MMDPublished
from fulcrum.measure.reference import References, reference_key

PROJECTION = torch.randn(3 * 8 * 8, 10, generator=torch.Generator().manual_seed(0)) / 100
METRICS = (Frechet(), MMD(), MMDPublished())


class Source:
    """Random pictures that count how often they are read."""

    def __init__(self, count: int = 90) -> None:
        self.images = np.random.default_rng(3).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)
        self.reads = 0

    def __len__(self) -> int:
        return len(self.images)

    def fingerprint(self) -> str:
        return f"{len(self)} pictures"

    def read(self, index: np.ndarray) -> SimpleNamespace:
        self.reads += 1
        return SimpleNamespace(images=self.images[index])


def network(name: str = "embedded", content: str = "net") -> Extractor:
    return Extractor(
        name, content, "none", "uint8", 10, lambda images: images.float().flatten(1) @ PROJECTION
    )


def constants(cache: Path, source: Source) -> list[tuple[float, float]]:
    held = References(cache).features(source, [Comparison(network(), METRICS)], most=len(source))
    return [metric.constants(held.of("embedded", metric)) for metric in METRICS[1:]]


def test_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    first, rows = constants(tmp_path, source), References(tmp_path).rows(source, network())
    assert source.reads == 1
    monkeypatch.setattr(distances, "self_sum", None)  # sums over pairs are read, not made again
    assert constants(tmp_path, source) == first and source.reads == 1
    assert torch.equal(rows, network().rows(torch.from_numpy(source.images)))
    assert len(References(tmp_path).rows(source, network(), most=40)) == 40


def test_key_names_what_matters() -> None:
    keys = {
        reference_key(source, network(name, content), most)
        for source, name, content, most in (
            (Source(), "embedded", "net", 9),
            (Source(80), "embedded", "net", 9),
            (Source(), "embedded", "other", 9),
            (Source(), "embedded", "net", 8),
            (Source(), "lite0", "net", 9),
            (Source(), "lite0", "other", 9),
        )
    }
    assert len(keys) == 6


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    source = Source()
    References(tmp_path).rows(source, network())
    (path,) = tmp_path.glob("judges/features-*/rows.00000.bin")
    whole = path.read_bytes()
    for damaged in (whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match="delete"):
            References(tmp_path).rows(source, network())
