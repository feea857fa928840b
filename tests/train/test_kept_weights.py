"""Weights kept along a training: as many as asked for, drawn with, outside the key, verified;
nothing else changes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.run import System
from fulcrum.training.average import drawn_weights
from fulcrum.training.checkpoint import listing
from fulcrum.training.kept_weights import KEPT, keeping, points, weights_at
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform

PROMPT = "a large red circle at the top left."


def trained(run, out, watch=None):
    return perform(Order(run, 0, "spark", out, System(), quiet=True), lambda text: None, watch)


@pytest.fixture(scope="module")
def kept(tiny, tmp_path_factory):
    """A run that kept five points, what it drew with at each, and the same run without."""
    run, seen = tiny("spark", "optim.lr=0.05"), {}

    def watch(built, folder, state):
        def look(look):
            weights = drawn_weights(built.step, built.average)
            seen[look.state.images] = {name: value.clone() for name, value in weights.items()}

        return [look, *keeping(5)(built, folder, state)]

    one = trained(run, tmp_path_factory.mktemp("kept"), watch)
    return RunFolder(Path(one["run"])), seen, one, trained(run, tmp_path_factory.mktemp("plain"))


def test_it_keeps_what_the_run_drew_with_and_changes_nothing_of_it(kept):
    folder, seen, one, plain = kept
    assert points(folder) == [8, 16, 24, 32, 40, 48]
    assert one["key"] == plain["key"] and one["weights_sha256"] == plain["weights_sha256"]
    for images in points(folder):
        weights = weights_at(folder, images)
        assert weights.keys() == seen[images].keys()
        assert all((weights[name] == seen[images][name]).all() for name in weights), images
    assert not (
        weights_at(folder, 8)["img_in.weight"] == weights_at(folder, 48)["img_in.weight"]
    ).all()


def test_asked_for_none_it_keeps_the_last_checkpoints_alone(kept):
    folder = RunFolder(Path(kept[3]["run"]))
    assert not (folder.path / KEPT).exists() and points(folder) == [
        int(path.name) for path in listing(folder.checkpoints)
    ]
    with pytest.raises(BadInput, match="no weights at 8 images") as error:
        weights_at(folder, 8)
    assert "48" in error.value.hint and "--keep-checkpoints" in error.value.hint


def test_changed_moved_and_linked_weights_are_refused(kept, tmp_path):
    folder = RunFolder(tmp_path / kept[0].path.name)
    shutil.copytree(kept[0].path, folder.path)
    part = folder.path / KEPT / f"{8:012d}" / "weights.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(RunFailed, match="not what was kept there"):
        weights_at(folder, 8)
    (folder.path / KEPT / f"{16:012d}" / "weights.safetensors").unlink()
    with pytest.raises(RunFailed, match="cannot be read"):
        weights_at(folder, 16)
    shutil.rmtree(folder.path / KEPT / f"{24:012d}")
    (folder.path / KEPT / f"{24:012d}").symlink_to(folder.path / KEPT / f"{32:012d}")
    with pytest.raises(RunFailed, match="is a link"):
        weights_at(folder, 24)
    other = RunFolder(tmp_path / "0123456789abcdef")
    folder.path.rename(other.path)
    with pytest.raises(RunFailed, match="belongs to the run"):
        weights_at(other, 32)


def test_a_folder_that_cannot_be_written_does_not_end_the_run(tiny, tmp_path):
    out, heard = tmp_path / "runs", []
    run = tiny("spark")

    def watch(built, folder, state):
        (folder.path / KEPT).symlink_to(tmp_path)
        return keeping(3)(built, folder, state)

    result = perform(Order(run, 0, "spark", out, System(), quiet=True), heard.append, watch)
    assert result["images"] == 48 and any("could not be kept" in line for line in heard)
    assert not [path for path in tmp_path.iterdir() if path != out]


def test_sample_draws_with_them(kept, tmp_path, capsys):
    pictures = []
    for images in (8, 48):
        with pytest.raises(SystemExit) as end:
            main(
                [
                    "sample",
                    str(kept[0].path),
                    PROMPT,
                    "--at",
                    str(images),
                    "--to",
                    str(tmp_path),
                    "--json",
                ]
            )
        assert not end.value.code
        pictures.append(Image.open(json.loads(capsys.readouterr().out)["files"][0]))
    assert [picture.text["images"] for picture in pictures] == ["8", "48"]
    assert not np.array_equal(*(np.asarray(picture) for picture in pictures))
    with pytest.raises(SystemExit) as end:
        main(["sample", str(kept[0].path), PROMPT, "--at", "9"])
    assert end.value.code == 2 and "8, 16, 24" in capsys.readouterr().err


def test_the_command_line_keeps_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = [
        "model.width=32",
        "model.depth=4",
        "model.heads=2",
        "budget.batch=8",
        "data.source.count=16",
        "sample.steps=2",
    ]
    words = [word for setting in small for word in ("--set", setting)]
    with pytest.raises(SystemExit) as end:
        main(
            [
                "train",
                "spark",
                "--images",
                "32",
                *words,
                "--threads",
                "1",
                "--keep-checkpoints",
                "3",
                "--json",
            ]
        )
    assert not end.value.code
    folder = RunFolder(tmp_path / json.loads(capsys.readouterr().out.splitlines()[-1])["run"])
    assert points(folder) == [8, 16, 24, 32]


def test_tidying_removes_what_is_half_written_and_keeps_what_is_whole(kept, tmp_path, capsys):
    folder = RunFolder(tmp_path / "runs" / kept[0].path.name)
    shutil.copytree(kept[0].path, folder.path)
    half = folder.path / KEPT / ".000000000008.1-0123abcd.writing"
    half.mkdir()
    with pytest.raises(SystemExit) as end:
        main(["runs", "gc", "--out", str(tmp_path / "runs")])
    assert not end.value.code and not half.exists() and points(folder) == [8, 16, 24, 32, 40, 48]
