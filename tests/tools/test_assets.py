"""The build: the same seed gives the same bytes, another does not, and cards say what was done."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import scenes
from fulcrum.files.shipped import shipped
from fulcrum.networks.text import PAD
from tools.assets import build as builder
from tools.assets.build import PARTS, build, main
from tools.assets.fit import Effort, fit
from tools.assets.fit_text import SKIP, UNSAID, lesson
from tools.assets.pictures import blurred, pictures
from tools.assets.teacher_probe import cells

pytestmark = pytest.mark.long


def silent(_: str) -> None:
    pass


@pytest.mark.parametrize("name", list(PARTS))
def test_three_steps_twice_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    first = build(tmp_path / "a", [name], silent, steps=3, measured_on=8)[name]
    second = build(tmp_path / "b", [name], silent, steps=3, measured_on=8)[name]
    assert first["sha256"] == second["sha256"] and first["quality"] == second["quality"]
    assert first == json.loads((tmp_path / "a" / f"{name}.json").read_text())
    assert shipped(name, tmp_path / "a").sha256 == first["sha256"]
    assert first["built"]["steps"] == 3 and first["parameters"] > 100_000


def test_another_seed_gives_other_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path / "a", ["judge"], silent, steps=2, measured_on=8)["judge"]
    part = PARTS["judge"]
    monkeypatch.setitem(builder.PARTS, "judge", replace(part, effort=replace(part.effort, seed=1)))
    assert (
        build(tmp_path / "b", ["judge"], silent, steps=2, measured_on=8)["judge"]["sha256"]
        != first["sha256"]
    )


def test_processes_and_threads_change_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        side = build(
            tmp_path / "a", ["text", "teacher"], lines.append, steps=2, measured_on=8, processes=2
        )
        alone = build(tmp_path / "b", ["text", "teacher"], silent, steps=2, measured_on=8)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert {n: c["sha256"] for n, c in side.items()} == {n: c["sha256"] for n, c in alone.items()}
    assert any(line.startswith("text: step 2/2") for line in lines)
    assert any(line.startswith("teacher: step 2/2") for line in lines)


def test_an_unknown_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no part is called kodec; parts are codec, text"):
        build(tmp_path, ["kodec"])


def test_a_loss_that_is_not_finite_stops() -> None:
    network = torch.nn.Linear(2, 1)
    with pytest.raises(RuntimeError, match="not finite at step 0"):
        fit("bad", network, lambda *_: network.weight.sum() * float("nan"), Effort(3, 1, 1e-3, 0))


def test_lessons_say_what_the_caption_says() -> None:
    drawn = scenes("assets", np.arange(50))
    long, short = lesson(drawn, "long"), lesson(drawn, "short")
    for row in range(50):
        shapes = {int(k) - 1 for k in long.wanted["shape"][row].unique() if k > 0}
        assert shapes == set(drawn.shape[row, : drawn.count[row]].tolist())
        assert ((long.wanted["background"][row] > 0) & (long.ids[row] == PAD)).sum() == 0
    assert (short.wanted["size"][short.wanted["size"] != SKIP] == UNSAID).all()
    assert (short.wanted["background"] == SKIP).all()


def test_cells_cover_the_objects() -> None:
    """A large object's middle cell carries its classes; most of a picture is background."""
    drawn = scenes("assets", np.arange(200))
    grid = cells(drawn, 32)
    for row in range(200):
        top = drawn.count[row] - 1  # painted last
        at = int(drawn.y[row, top] * 8) * 8 + int(drawn.x[row, top] * 8)
        assert grid["colour"][row, at] == drawn.colour[row, top] + 1
    assert 0.5 < (grid["shape"] == 0).float().mean() < 0.95


def test_pictures_show_the_same_scene_twice() -> None:
    pool = pictures("assets", 20)
    assert pool.images.shape == (2, 20, 3, 32, 32)
    assert set(pool.grid) == {"present", "shape", "colour", "texture", "size"}
    assert int(pool.grid["colour"].max()) < len(v.COLOURS)
    images, row, domain = pool.draw(16, torch.Generator().manual_seed(1))
    assert torch.equal(images[3], pool.images[domain[3], row[3]])


def test_blur_keeps_flat_pictures_flat() -> None:
    torch.testing.assert_close(
        blurred(torch.full((1, 3, 8, 8), 0.3), 0.8), torch.full((1, 3, 8, 8), 0.3)
    )


def test_the_command_writes_a_part_and_its_card_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(tmp_path), "--only", "judge", "--steps", "1"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["judge.json", "judge.safetensors"]
    assert "judge: " in capsys.readouterr().out and shipped("judge", tmp_path).sha256
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--only", "kodec"])


def test_the_tools_are_no_part_of_the_wheel() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert pyproject["tool"]["setuptools"]["packages"]["find"]["include"] == ["fulcrum*"]
