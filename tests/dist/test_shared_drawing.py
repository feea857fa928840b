"""Two processes draw and measure together: each its share, and what comes out is what one process
gives."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fulcrum.training.session import perform

pytestmark = pytest.mark.long

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "processes")]
import drawing_world  # noqa: E402
from ranks_of_a_run import Started  # noqa: E402

SCRIPT = Path(drawing_world.__file__)
STEP = 1  # of 255: a picture drawn in a smaller batch may differ by so much
# of 255: besides, the weights of two processes differ from those of one by their last bits
RUNS = 3


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of one process: its folder, and what was measured on the way."""
    out, found = tmp_path_factory.mktemp("alone"), {}
    with pytest.MonkeyPatch.context() as patch:
        drawing_world.spared(patch.setattr)
        result = perform(
            drawing_world.order(out),
            lambda text: None,
            drawing_world.watching(lambda *_: None, found),
        )
    return Path(result["run"]), found


@pytest.fixture(scope="module", params=["fsdp", "ddp"])
def pair(request, tmp_path_factory):
    """The folder of the same run by two processes, and what each saw."""
    out = tmp_path_factory.mktemp(request.param)
    command = [str(SCRIPT), str(out), request.param]
    with Started(command, command) as run:
        ends = run.ended(200)
    assert [code for code, _ in ends] == [0, 0], "\n".join(text for _, text in ends)
    first, second = (json.loads((out / f"{rank}.json").read_text()) for rank in "01")
    return Path(first["result"]["run"]), first, second


def test_a_sheet_is_drawn_by_both_and_is_that_of_one(pair):
    _, first, second = pair
    assert (first["sheet_drawn"], second["sheet_drawn"]) == (2, 3)
    assert first["sheet_apart"] <= STEP < first["sheet_contrast"], (
        "other prompts and noises differ by more"
    )
    assert (first["others_get"], second["others_get"]) == (5, 0)


def test_batches_are_dealt_whole_and_equal_to_the_bit(pair):
    _, first, second = pair
    assert (first["batches_drawn"], second["batches_drawn"]) == (38, 32)
    assert (
        first["batches_equal"]
        and first["batch_rows"] == [32, 32, 6]
        and first["index"] == list(range(70))
    )


def test_the_held_out_loss_is_shared_and_equal_to_the_bit(pair):
    _, first, second = pair
    assert (first["held_parts"], second["held_parts"]) == (2, 1)
    for seen in (first, second):
        shared, whole = seen["held"]
        assert shared == whole and shared["n"] == 96


def test_a_measuring_is_shared_and_equal_to_the_bit(pair):
    _, first, second = pair
    assert (first["measured_drawn"], second["measured_drawn"]) == (38, 32)
    assert first["measured"] == first["measured_alone"] and "frechet" in first["measured"]
    assert set(second["measured"]) == {"validation_loss"}


def test_one_process_without_room_leaves_the_sheet_out_for_both(pair):
    _, first, second = pair
    assert first["no_room"] and second["no_room"]


def test_pictures_that_cannot_be_measured_fail_both(pair):
    _, first, second = pair
    assert (
        first["collapsed"]
        == second["collapsed"]
        == "its pictures cannot be measured: all of one colour"
    )


def test_a_run_of_two_shows_what_a_run_of_one_shows(pair, alone):
    """Previews, held-out curve and points as they are written."""
    (folder, first, second), (expected, found) = pair, alone
    names = sorted(path.name for path in (expected / "previews").iterdir())
    assert (
        names == sorted(path.name for path in (folder / "previews").iterdir()) == [f"{24:012d}.png"]
    )
    sheets = [
        np.asarray(Image.open(place / "previews" / names[0])).astype(int)
        for place in (folder, expected)
    ]
    assert sheets[0].shape == sheets[1].shape and np.abs(sheets[0] - sheets[1]).max() <= RUNS
    curves = [
        [json.loads(line) for line in (place / "curve.jsonl").read_text().splitlines()]
        for place in (folder, expected)
    ]
    assert [line["images"] for line in curves[0]] == [line["images"] for line in curves[1]] == [24]
    assert curves[0][0]["validation_loss"] == pytest.approx(
        curves[1][0]["validation_loss"], rel=1e-5
    )
    assert "point" not in second and set(first["point"]) == set(found["point"])
    assert first["point"]["validation_loss"]["value"] == pytest.approx(
        found["point"]["validation_loss"]["value"], rel=1e-5
    )
    assert len(list(folder.glob("point-*.json"))) == 1
