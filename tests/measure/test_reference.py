"""The reference file: built once, read back equal, never trusted when damaged."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fulcrum.measure.reference import build_reference, load_or_build, load_reference, reference_key
from fulcrum.measure.suite import FeatureFunction

PROJECTION = torch.randn(3 * 8 * 8, 10, generator=torch.Generator().manual_seed(0)) / 100
FEATURES: FeatureFunction = lambda images: images.float().flatten(1) @ PROJECTION  # noqa: E731


def batches(count: int = 90) -> Iterator[torch.Tensor]:
    images = torch.randint(0, 256, (count, 3, 8, 8), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    yield from images.split(40)


def never() -> Iterator[torch.Tensor]:
    raise AssertionError("the reference was built again")
    yield torch.zeros(0)


def test_round_trip(tmp_path: Path) -> None:
    first = load_or_build(tmp_path, batches(), FEATURES, source="world", extractor="net", count=90)
    again = load_or_build(tmp_path, never(), FEATURES, source="world", extractor="net", count=90)
    assert torch.equal(first.features, again.features) and torch.equal(first.gaussian.cov, again.gaussian.cov)
    assert (first.key, first.sigma, first.kernel_sum, first.published_sum, first.gaussian.n) == (
        again.key, again.sigma, again.kernel_sum, again.published_sum, again.gaussian.n)  # fmt: skip
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]  # no draft is left behind


def test_key_names_what_matters() -> None:
    keys = {reference_key(*inputs) for inputs in (("a", "n", 9), ("b", "n", 9), ("a", "m", 9), ("a", "n", 8))}
    assert len(keys) == 4


def test_count_never_bends() -> None:
    with pytest.raises(ValueError, match="expected 100 reference images, found 90"):
        build_reference(batches(), FEATURES, source="world", extractor="net", count=100)
    with pytest.raises(ValueError, match="expected 5 reference images, found 0"):
        build_reference(iter(()), FEATURES, source="world", extractor="net", count=5)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    load_or_build(tmp_path, batches(), FEATURES, source="world", extractor="net", count=90)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for position in (len(whole) - 9, len(whole) // 2):
        flipped = bytearray(whole)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match="checksum does not match.*delete it"):
            load_reference(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        load_reference(path)
