"""Attribute accuracy by hand, and refused truths."""

import numpy as np
import pytest
import torch

from fulcrum.measure.metrics.attributes import ATTRIBUTES, score, share

CLASSES = {"present": 2, "shape": 7, "colour": 8, "texture": 4, "size": 3}


def empty(rows: int) -> dict[str, np.ndarray]:
    truth = {name: np.full((rows, 9), -1) for name in ATTRIBUTES}
    return {"present": np.zeros((rows, 9), dtype=int), **truth}


def put(truth: dict[str, np.ndarray], row: int, place: int, *, shape: int, colour: int, texture: int, size: int) -> None:
    values = {"present": 1, "shape": shape, "colour": colour, "texture": texture, "size": size}
    for name, value in values.items():
        truth[name][row, place] = value


def say(truth: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Logits of a judge that sees exactly this."""
    return {name: torch.nn.functional.one_hot(torch.from_numpy(truth[name]).clamp_min(0), count).float() * 4 - 2
            for name, count in CLASSES.items()}  # fmt: skip


def test_by_hand() -> None:
    truth, seen = empty(2), empty(2)
    put(truth, 0, 0, shape=1, colour=2, texture=3, size=1)
    put(truth, 0, 8, shape=0, colour=0, texture=0, size=0)
    put(truth, 1, 4, shape=6, colour=7, texture=1, size=2)
    put(seen, 0, 0, shape=1, colour=5, texture=3, size=1)  # the colour is wrong
    #  the object at place 8 is missing: its classes 0 would all match a guess, and must not count
    put(seen, 1, 4, shape=6, colour=7, texture=1, size=2)  # all right
    put(seen, 1, 5, shape=6, colour=7, texture=1, size=2)  # and one that nobody asked for
    found = {name: share(*counts) for name, counts in score(say(seen), truth).items()}
    assert found == pytest.approx({
        "attribute_accuracy": 7 / 12, "shape_accuracy": 2 / 3, "colour_accuracy": 1 / 3, "texture_accuracy": 2 / 3,
        "size_accuracy": 2 / 3, "presence_accuracy": 2 / 3, "extra_objects": 1 / 15,
    })  # fmt: skip


def test_perfect_and_swapped_places() -> None:
    rng = np.random.default_rng(0)
    truth = empty(50)
    for row in range(50):
        put(truth, row, int(rng.integers(9)), shape=int(rng.integers(7)), colour=int(rng.integers(8)),
            texture=int(rng.integers(4)), size=int(rng.integers(3)))  # fmt: skip
    assert share(*score(say(truth), truth)["attribute_accuracy"]) == 1.0
    moved = {name: np.roll(values, 1, axis=1) for name, values in truth.items()}
    counts = score(say(moved), truth)
    assert share(*counts["attribute_accuracy"]) == 0.0 and share(*counts["extra_objects"]) == pytest.approx(1 / 8)


def test_refusals() -> None:
    truth = empty(1)
    put(truth, 0, 0, shape=1, colour=2, texture=3, size=1)
    logits = say(truth)
    with pytest.raises(ValueError, match="judge's answer lacks 'size'"):
        score({name: value for name, value in logits.items() if name != "size"}, truth)
    with pytest.raises(ValueError, match="truth lacks 'colour'"):
        score(logits, {name: value for name, value in truth.items() if name != "colour"})
    with pytest.raises(ValueError, match=r"expected logits \(B, 9, classes\)"):
        score({**logits, "shape": logits["shape"][:, :4]}, truth)
    with pytest.raises(ValueError, match="class 9, the judge knows 8"):
        score(logits, {**truth, "colour": np.where(truth["colour"] == 2, 9, truth["colour"])})
    with pytest.raises(ValueError, match="NaN"):
        score({**logits, "shape": logits["shape"] * float("nan")}, truth)
    with pytest.raises(ValueError, match="where an object is present"):
        score(logits, {**truth, "size": np.full((1, 9), -1)})
    with pytest.raises(ValueError, match="nothing was asked"):
        share(np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64))
