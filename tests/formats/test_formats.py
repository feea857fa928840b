"""What the commit named in fixtures/README.md wrote is read today: runs, checkpoints, caches, data
sets and studies.

Everything goes through commands and the public API, so that the package's modules may move.
"""

import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fulcrum
from fulcrum.cli import main

sys.path.insert(0, str(Path(__file__).parent))
from make_fixtures import (
    FIXTURES,
    MODEL,
    PROMPT,
    WORLD,
    settings,
    store_training,
    training,
)  # noqa: E402

EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
NEAR = 1e-3  # of a loss: kinds of CPU differ by rounding, which thirty steps enlarge
NEAR_PIXEL = 3  # of 255


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """A cache for all tests: the held-out captions are encoded once."""
    return tmp_path_factory.mktemp("encoded")


@pytest.fixture
def here(tmp_path, monkeypatch, encoded):
    """A working folder with a copy of one fixture: its copy is the folder of runs unless a path is
    given."""
    monkeypatch.chdir(tmp_path)

    def copy(name, to="runs"):
        shutil.copytree(FIXTURES / name, tmp_path / to)
        if to == "runs":
            (tmp_path / to / "cache").symlink_to(encoded, target_is_directory=True)
        return tmp_path / to

    return copy


@pytest.fixture
def command(capsys):
    """Run a command in this process; return the JSON that it printed last."""

    def run(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, told = capsys.readouterr()
        assert not ended.value.code, out + told
        return json.loads(out.splitlines()[-1]) if "--json" in words else out

    return run


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def record(folder):
    return lines(folder / "record.jsonl")


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def contents(folder):
    """Bytes and time of writing of every file: a file that is written again is told from one that
    is only read."""
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock" and path.name != "lock"
    ]
    return {
        path.relative_to(folder): (path.read_bytes(), path.stat().st_mtime_ns) for path in files
    }


def test_a_finished_run_is_listed_shown_and_not_trained_again(here, command):
    runs, expected = here("finished"), EXPECTED["finished"]
    before = contents(runs / expected["key"])
    (listed,) = command("runs", "list", "--json")["runs"]
    shown = command("runs", "show", expected["key"][:6], "--json")
    for found in (listed, shown):
        assert (found["key"], found["state"]) == (expected["key"], "finished")
        assert (found["images"], found["phrase"]) == (expected["images"], expected["phrase"])
    result = command(*training("runs"))
    assert {name: result[name] for name in ("key", "weights_sha256", "images")} == {
        name: expected[name] for name in ("key", "weights_sha256", "images")
    }
    assert record(runs / expected["key"]) == expected["record"]
    assert contents(runs / expected["key"]) == before
    command("doctor", runs / expected["key"])


@pytest.mark.parametrize("images", [*EXPECTED["finished"]["kept"], EXPECTED["finished"]["images"]])
def test_kept_and_last_weights_draw_what_they_drew(here, command, images):
    here("finished")
    words = ["sample", EXPECTED["finished"]["key"], PROMPT, "--to", "now", "--json"]
    last = images == EXPECTED["finished"]["images"]
    answer = command(*words, *(() if last else ("--at", images)))
    (drawn,) = answer["files"]
    told = Image.open(drawn).text
    assert told["key"] == EXPECTED["finished"]["key"]
    assert last or told["images"] == str(images)
    assert abs(pixels(drawn) - pixels(FIXTURES / "drawn" / f"{images}.png")).max() <= NEAR_PIXEL


def test_each_point_draws_another_picture_and_others_are_refused(here, capsys):
    here("finished")
    points = EXPECTED["finished"]["kept"]
    drawn = [
        pixels(FIXTURES / "drawn" / f"{images}.png")
        for images in (*points, EXPECTED["finished"]["images"])
    ]
    assert all(
        abs(one - other).max() > NEAR_PIXEL for one, other in itertools.combinations(drawn, 2)
    )
    with pytest.raises(SystemExit) as ended:
        main(["sample", EXPECTED["finished"]["key"], PROMPT, "--at", "9"])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and all(str(images) in told for images in points)


def test_a_finished_run_is_started_from(here, command):
    here("finished")
    words = [*training("runs", "spark + ema(every=2)"), "--start", EXPECTED["finished"]["key"]]
    words[words.index("--images") + 1] = "16"
    result = command(*words)
    started = record(Path(result["run"]))[0]["loss"]
    fresh = command(
        *(word for word in words if word not in ("--start", EXPECTED["finished"]["key"]))
    )
    assert result["key"] != fresh["key"]
    assert started < record(Path(fresh["run"]))[0]["loss"]


@pytest.mark.parametrize("name", ["interrupted", "two_ranks"])
def test_an_interrupted_run_is_resumed_by_one_process(here, command, name):
    """It continues at the saved image, and loses what the run loses that was never interrupted."""
    runs, expected, whole = here(name), EXPECTED[name], EXPECTED["finished"]
    folder = runs / expected["key"]
    (listed,) = command("runs", "list", "--json")["runs"]
    assert (listed["state"], listed["images"]) == ("stopped", expected["images"])
    begun = record(folder)
    steps = (folder / "record.steps").read_bytes()
    result = command(*training("runs"))
    sessions = [event for event in lines(folder / "events.jsonl") if event["event"] == "session"]
    assert [event["images"] for event in sessions] == [0, expected["images"]]
    assert [event["system"]["processes"] for event in sessions] == [
        2 if name == "two_ranks" else 1,
        1,
    ]
    assert (result["key"], result["images"]) == (expected["key"], whole["images"])
    assert begun and record(folder)[: len(begun)] == begun
    assert (folder / "record.steps").read_bytes().startswith(steps)
    losses = {line["images"]: line["loss"] for line in record(folder)}
    assert losses == pytest.approx(
        {line["images"]: line["loss"] for line in whole["record"]}, rel=NEAR
    )
    assert fulcrum.sample(folder, PROMPT).shape == (1, 32, 32, 3)


def test_what_is_in_the_cache_is_not_encoded_again(here, command, tmp_path):
    here("cache", "out/cache")
    words = ["encode", "spark", "--json", *settings(*MODEL, *WORLD)]
    before = contents(tmp_path / "out" / "cache")
    answer = command(*words, "--out", "out")
    assert [entry["samples"] for entry in answer["entries"]] == [8, 8]
    assert before and contents(tmp_path / "out" / "cache") == before
    command(*words, "--out", "fresh")
    run = fulcrum.phrase("spark", *MODEL, *WORLD)
    found, _ = fulcrum.feed(run, cache=tmp_path / "out" / "cache").at(0)
    fresh, _ = fulcrum.feed(run, cache=tmp_path / "fresh" / "cache").at(0)
    assert (found.x0.float() - fresh.x0.float()).abs().max() < 0.05
    for name in EXPECTED["cache"]["entries"]:
        assert (tmp_path / "fresh" / "cache" / name).is_dir()


def test_a_store_is_sound_and_trained_on(here, command):
    here("store", "pictures")
    expected = EXPECTED["store"]
    checked = command("data", "check", "pictures", "--json")
    assert checked["sound"] and not checked["faults"]
    assert {name: checked[name] for name in ("content", "samples")} == {
        name: expected[name] for name in ("content", "samples")
    }
    result = command(*store_training("pictures", "on_store"))
    assert result["key"] == expected["key"]
    assert record(Path(result["run"]))[-1]["loss"] == pytest.approx(expected["loss"], rel=NEAR)


def test_a_study_finds_its_cells_finished_and_the_same_effects(here, command, tmp_path):
    here("study", "study")
    cells = [path.parent for path in (tmp_path / "study" / "runs").glob("*/measured-*.json")]
    before = [contents(cell) for cell in cells]
    answer = command("study", "run", "study/plan.toml", "--out", "study/runs", "--json")
    assert len(cells) == 4 and [contents(cell) for cell in cells] == before  # nothing was trained
    assert answer["plan"] == EXPECTED["study"]["plan"]
    assert len(answer["effects"]) == len(EXPECTED["study"]["effects"])
    for found, effect in zip(answer["effects"], EXPECTED["study"]["effects"], strict=True):
        assert {name: found[name] for name in effect} == pytest.approx(effect)


def test_a_kept_study_is_verified(here, command):
    kept = here("kept_study", "kept")
    (verified,) = command("study", "verify", kept, "--json")
    assert verified["whole"] and verified["cells"] == 4 and verified["differences"] == []
    assert verified["effects"] == len(EXPECTED["study"]["effects"])
