"""The image gate: what is not clearly an image is refused."""

import math

import pytest
import torch

from fulcrum.measure.features.extractor import BadImages, feature_rows, to_uint8


def test_floats_round_to_the_bytes_they_came_from() -> None:
    bytes_ = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(1, 3, 16, 16)
    assert to_uint8(bytes_) is bytes_
    assert torch.equal(to_uint8(bytes_.float() / 255, (0.0, 1.0)), bytes_)
    assert torch.equal(to_uint8(bytes_.float() / 127.5 - 1, (-1.0, 1.0)), bytes_)


@pytest.mark.parametrize(
    ("images", "declared", "message"),
    [
        (torch.zeros(2, 3, 4, 4), None, "declared range"),
        (torch.full((2, 3, 4, 4), 200.0), (0.0, 1.0), r"lie in \[200, 200\]"),
        (torch.full((2, 3, 4, 4), -0.5), (0.0, 1.0), "declared to lie"),
        (
            torch.full((2, 3, 4, 4), math.nan),
            (0.0, 1.0),
            r"NaN or infinite pixels in rows \[0, 1\]",
        ),
        (torch.full((2, 3, 4, 4), math.inf), (0.0, 1.0), "NaN or infinite"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.int64), None, "torch.int64"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.bool), None, "torch.bool"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), (0.0, 1.0), "remove the declared range"),
        (torch.zeros(2, 4, 4, 3, dtype=torch.uint8), None, r"\(2, 4, 4, 3\)"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), None, "B, 3"),
        (torch.zeros(3, 4, 4, dtype=torch.uint8), None, "B, 3"),
        (torch.zeros(0, 3, 4, 4, dtype=torch.uint8), None, "at least one image"),
        (torch.zeros(2, 3, 4, 4), (1.0, 0.0), "low < high"),
    ],
)
def test_refused(images: torch.Tensor, declared: tuple[float, float] | None, message: str) -> None:
    with pytest.raises(BadImages, match=message):
        to_uint8(images, declared)


def test_features_must_be_finite_rows() -> None:
    images = torch.zeros(3, 3, 4, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"1 rows of the batch: \[1\]"):
        feature_rows(images, lambda x: torch.tensor([[1.0], [math.nan], [2.0]]))
    with pytest.raises(ValueError, match=r"\(3, d\)"):
        feature_rows(images, lambda x: torch.zeros(3, 2, 2))
