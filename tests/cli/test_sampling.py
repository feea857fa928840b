"""fulcrum sample: prompts from anywhere, several ways on one sheet, pictures that tell their
origin, none replaced."""

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.spec.run import System
from fulcrum.training.session import Order, perform

PROMPT = "a large red circle at the top left."


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    """Two runs that differ in their seed."""
    out = tmp_path_factory.mktemp("runs")
    run = tiny("spark", "optim.lr=0.05")
    return [
        perform(Order(run, seed, "spark", out, System(), quiet=True), lambda text: None)["run"]
        for seed in (0, 1)
    ]


def draw(capsys, *words):
    """Files, sheet and stderr of a command that succeeds."""
    with pytest.raises(SystemExit) as end:
        main(["sample", *map(str, words), "--scale", "1", "--json"])
    printed = capsys.readouterr()
    assert not end.value.code, printed.out
    done = json.loads(printed.out)
    return done["files"], done["grid"], printed.err


def refused(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(["sample", *map(str, words)])
    assert end.value.code == 2
    return capsys.readouterr().err


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image).astype(int)


def notes(path):
    """What a PNG says of itself."""
    with Image.open(path) as image:
        return image.text


def test_nothing_is_overwritten(runs, tmp_path, capsys):
    first, grid, _ = draw(capsys, runs[0], PROMPT, "--to", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    second, again, _ = draw(capsys, runs[0], PROMPT, "--to", tmp_path)
    assert first != second and second[0].endswith("-seed0-2.png") and again.endswith("grid-2.png")
    assert all(path.read_bytes() == data for path, data in before.items())
    assert np.array_equal(pixels(first[0]), pixels(second[0]))


def test_a_picture_says_how_it_was_drawn(runs, tmp_path, capsys):
    strange = "a red circle \x1b[2J, ein Würfel 立方体"
    words = (
        "--seed",
        7,
        "--guidance",
        3,
        "--steps",
        4,
        "--solver",
        "midpoint",
        "--negative",
        "a blue ring",
    )
    files, _, err = draw(capsys, runs[0], strange, *words, "--to", tmp_path)
    text = notes(files[0])
    assert (
        text["prompt"] == strange
        and text["negative"] == "a blue ring"
        and text["key"] == runs[0].rsplit("/")[-1]
    )
    assert [text[name] for name in ("seed", "guidance", "steps", "solver", "size")] == [
        "7",
        "3",
        "4",
        "midpoint",
        "32x32",
    ]
    assert (
        files[0].rsplit("/")[-1].startswith("a-red-circle-")
        and "\x1b" not in (tmp_path / "prompts.txt").read_text()
    )
    assert "rfel" in err, "words that it does not know are told"


def test_bytes_that_are_no_text_are_drawn_all_the_same(runs, tmp_path, capsys):
    files, _, _ = draw(capsys, runs[0], "a red circle \udcff\0 /../../etc", "--to", tmp_path)
    assert notes(files[0])["prompt"] == "a red circle \\udcff\\0 /../../etc"
    assert files[0] == str(tmp_path / "a-red-circle-etc-000-seed0.png")


def test_prompts_come_from_a_file_and_from_standard_input(runs, tmp_path, capsys, monkeypatch):
    (tmp_path / "prompts.txt").write_text("a red circle\n\n  a blue ring  \n", encoding="utf-8-sig")
    files, _, _ = draw(
        capsys, runs[0], PROMPT, "--prompts", tmp_path / "prompts.txt", "--to", tmp_path / "a"
    )
    assert [notes(file)["prompt"] for file in files] == [PROMPT, "a red circle", "a blue ring"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a green square\n")))
    files, _, _ = draw(capsys, runs[0], "--prompts", "-", "--to", tmp_path / "b")
    assert [notes(file)["prompt"] for file in files] == ["a green square"]


def test_several_ways_stand_on_one_sheet_with_the_same_noise(runs, tmp_path, capsys):
    ways = (
        "--against",
        runs[1],
        "--guidance",
        1,
        "--guidance",
        4,
        "--steps",
        2,
        "--steps",
        3,
        "--seed",
        0,
        "--seed",
        5,
    )
    files, grid, err = draw(capsys, runs[0], PROMPT, *ways, "--to", tmp_path)
    assert len(files) == len(set(files)) == 2 * 2 * 2 * 2 and "8 of 8" in err
    texts = [notes(file) for file in files]
    assert {(one["key"], one["guidance"], one["steps"], one["seed"]) for one in texts} == {
        (key.rsplit("/")[-1], guidance, steps, seed)
        for key in runs
        for guidance in "14"
        for steps in "23"
        for seed in "05"
    }
    alone, _, _ = draw(
        capsys,
        runs[1],
        PROMPT,
        "--guidance",
        4,
        "--steps",
        3,
        "--seed",
        5,
        "--to",
        tmp_path / "alone",
    )
    same = next(
        file
        for file, one in zip(files, texts, strict=True)
        if (one["key"], one["guidance"], one["steps"], one["seed"])
        == (runs[1].rsplit("/")[-1], "4", "3", "5")
    )
    assert np.abs(pixels(same) - pixels(alone[0])).max() <= 1
    height, width, _ = pixels(grid).shape
    assert width > 8 * 32 and height > 2 * 32


def test_a_negative_prompt_changes_the_picture_and_is_refused_where_it_cannot(
    runs, tmp_path, capsys
):
    plain, _, _ = draw(capsys, runs[0], PROMPT, "--guidance", 40, "--to", tmp_path)
    away, _, _ = draw(
        capsys, runs[0], PROMPT, "--guidance", 40, "--negative", PROMPT, "--to", tmp_path
    )
    assert np.abs(pixels(plain[0]) - pixels(away[0])).max() > 1
    told = refused(
        capsys, runs[0], PROMPT, "--guidance", 1, "--negative", "a ring", "--to", tmp_path
    )
    assert (
        "A negative prompt has no effect at guidance 1.\n  Use e.g. --guidance 3, or leave"
        " --negative out." in told
    )


def test_a_long_prompt_is_cut_and_told_once(runs, tmp_path, capsys):
    """Drawn as the words that fit are; however many pictures and columns there are, it is one
    prompt."""
    long, short = PROMPT + " red" * 55, PROMPT + " red" * 54
    more = ("--count", 2, "--guidance", 1, "--guidance", 3, "--to", tmp_path)
    files, _, err = draw(capsys, runs[0], long, *more)
    assert err.count("1 prompt is longer than 63 words: the rest was cut, 'red'") == 1
    assert np.array_equal(pixels(files[3]), pixels(draw(capsys, runs[0], short, *more)[0][3]))
    two = draw(
        capsys,
        runs[0],
        long,
        long + " blue",
        "--negative",
        long + " ring",
        "--guidance",
        3,
        "--to",
        tmp_path,
    )[2]
    assert "3 prompts are longer than 63 words: the rest was cut, of the first 'red'" in two


def test_what_cannot_be_drawn_is_said_before_anything_is_drawn(runs, tmp_path, capsys):
    assert "nothing to draw" in refused(capsys, runs[0])
    (tmp_path / "empty.txt").write_text("\n \n")
    assert "holds no prompt" in refused(capsys, runs[0], "--prompts", tmp_path / "empty.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xfa")
    assert "no UTF-8" in refused(capsys, runs[0], "--prompts", tmp_path / "bytes.txt")
    assert "cannot be read" in refused(capsys, runs[0], "--prompts", tmp_path / "none.txt")
    assert "holds no word" in refused(capsys, runs[0], "???", "--to", tmp_path)
    assert "pictures in one go" in refused(
        capsys,
        runs[0],
        PROMPT,
        "--count",
        9999,
        *(["--seed", 1] * 1),
        "--steps",
        1,
        *(word for n in range(2, 13) for word in ("--steps", n)),
    )
