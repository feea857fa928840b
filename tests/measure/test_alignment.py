"""Attributes by hand: recall, precision and F-score; floors and ceiling; refused truths."""

import numpy as np
import pytest
import torch

from fulcrum.data.source import WorldSource
from fulcrum.measure.features.extractor import attributes, second_attributes
from fulcrum.measure.metrics.means import ATTRIBUTES, AttributeShare, count_rows, pooled, score
from fulcrum.measure.reference import References, noise_pictures

CLASSES = {"present": 2, "shape": 7, "colour": 8, "texture": 4, "size": 3}


def empty(rows: int) -> dict[str, np.ndarray]:
    truth = {name: np.full((rows, 9), -1) for name in ATTRIBUTES}
    return {"present": np.zeros((rows, 9), dtype=int), **truth}


def put(
    truth: dict[str, np.ndarray],
    row: int,
    place: int,
    *,
    shape: int,
    colour: int,
    texture: int,
    size: int,
) -> None:
    values = {"present": 1, "shape": shape, "colour": colour, "texture": texture, "size": size}
    for name, value in values.items():
        truth[name][row, place] = value


def say(truth: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Logits of a judge that sees exactly this."""
    return {
        name: torch.nn.functional.one_hot(torch.from_numpy(truth[name]).clamp_min(0), count).float()
        * 4
        - 2
        for name, count in CLASSES.items()
    }


def shares(seen: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> dict[str, float]:
    return pooled(count_rows(score(say(seen), truth)).numpy().astype(np.int64))


def test_by_hand() -> None:
    truth, seen = empty(2), empty(2)
    put(truth, 0, 0, shape=1, colour=2, texture=3, size=1)
    put(truth, 0, 8, shape=0, colour=0, texture=0, size=0)
    put(truth, 1, 4, shape=6, colour=7, texture=1, size=2)
    put(seen, 0, 0, shape=1, colour=5, texture=3, size=1)  # the colour is wrong
    #  the object at place 8 is missing: its classes 0 would all match a guess, and must not count
    put(seen, 1, 4, shape=6, colour=7, texture=1, size=2)  # all right
    put(seen, 1, 5, shape=6, colour=7, texture=1, size=2)  # and one that nobody asked for
    assert shares(seen, truth) == pytest.approx(
        {
            "attribute_f1": 2 * 7 / (12 + 12),
            "attribute_accuracy": 7 / 12,
            "attribute_precision": 7 / 12,
            "shape_accuracy": 2 / 3,
            "colour_accuracy": 1 / 3,
            "texture_accuracy": 2 / 3,
            "size_accuracy": 2 / 3,
            "presence_accuracy": 2 / 3,
            "extra_objects": 1 / 15,
        }
    )


def test_perfect_and_swapped_places() -> None:
    rng = np.random.default_rng(0)
    truth = empty(50)
    for row in range(50):
        put(
            truth,
            row,
            int(rng.integers(9)),
            shape=int(rng.integers(7)),
            colour=int(rng.integers(8)),
            texture=int(rng.integers(4)),
            size=int(rng.integers(3)),
        )
    perfect = shares(truth, truth)
    assert (
        perfect["attribute_f1"]
        == perfect["attribute_accuracy"]
        == perfect["attribute_precision"]
        == 1.0
    )
    moved = shares({name: np.roll(values, 1, axis=1) for name, values in truth.items()}, truth)
    assert moved["attribute_f1"] == moved["attribute_accuracy"] == 0.0 and moved[
        "extra_objects"
    ] == pytest.approx(1 / 8)


def test_plenty_is_no_merit() -> None:
    """Nine objects, the right one among them: recall calls it perfect, the F-score counts the eight
    that nobody wanted."""
    truth, seen = empty(1), empty(1)
    put(truth, 0, 4, shape=1, colour=2, texture=3, size=1)
    for place in range(9):
        put(seen, 0, place, shape=1, colour=2, texture=3, size=1)
    measured = shares(seen, truth)
    assert measured["attribute_accuracy"] == 1.0 and measured[
        "attribute_precision"
    ] == pytest.approx(1 / 9)
    assert measured["attribute_f1"] == pytest.approx(2 * 4 / (4 + 36))


def test_nothing_drawn_has_no_precision() -> None:
    truth = empty(1)
    put(truth, 0, 4, shape=1, colour=2, texture=3, size=1)
    measured = shares(empty(1), truth)
    assert (
        measured["attribute_precision"]
        == measured["attribute_f1"]
        == measured["attribute_accuracy"]
        == 0.0
    )
    rows = AttributeShare("attribute_precision").gather(0, False)
    rows.update(count_rows(score(say(empty(1)), truth)).repeat(64, 1), np.arange(64))
    value, low, high = AttributeShare("attribute_precision").compute(rows)
    assert value == low == 0.0 and 0.0 < high < 0.1


@pytest.mark.parametrize("judge", [attributes, second_attributes], ids=["first", "second"])
def test_floors_and_ceiling(judge, tmp_path) -> None:
    """Noise earns a fifth of the recall and little of the F-score; real pictures nearly all of
    both; kept on disk."""
    source = WorldSource(split="reference", domain="real", size=32, count=256)
    part = judge()
    limits = References(tmp_path).limits(source, part)
    f1, recall = limits["attribute_f1"], limits["attribute_accuracy"]
    assert (
        set(f1.floors) == {"noise", "grey", "another scene"}
        and f1.ceiling > 0.95
        and recall.ceiling > 0.95
    )
    assert max(f1.floors.values()) < 0.15
    assert f1.floors["another scene"] == pytest.approx(recall.floors["another scene"], abs=0.03)
    silent = part._replace(network=None)  # cannot look at anything
    assert References(tmp_path).limits(source, silent) == limits


def test_noise_is_keyed_by_the_picture() -> None:
    noise = noise_pictures(np.arange(5), 8)
    assert torch.equal(noise[3:], noise_pictures(np.array([3, 4]), 8)) and not torch.equal(
        noise[0], noise[1]
    )
    assert noise.float().mean() == pytest.approx(127.5, abs=6) and int(noise.max()) > 240


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
        pooled(np.zeros((3, 18), dtype=np.int64))
