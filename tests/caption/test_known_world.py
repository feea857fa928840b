"""Pictures of another world are told from those of the embedded one, and the commands say so."""

import numpy as np
import pytest
from PIL import Image

from fulcrum.advice.caption_sets import try_pairs
from fulcrum.cli import main
from fulcrum.data.world.scene import render, scenes
from fulcrum.networks.captioning.recaption import LEAST, foreign, world_fit

COUNT = 32


def blurs(count):
    """Coloured clouds: smooth, as photographs are, and without a shape."""
    rng = np.random.default_rng(0)
    small = (Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)) for _ in range(count))
    return [
        np.asarray(one.resize((32, 32), Image.Resampling.BICUBIC)).transpose(2, 0, 1).copy()
        for one in small
    ]


@pytest.mark.parametrize(("domain", "size"), [("real", 32), ("synthetic", 32), ("real", 64)])
def test_the_world_is_known(domain, size):
    pictures = list(render(scenes("reference", np.arange(COUNT)), size, domain))
    assert world_fit(pictures) > 0.0 > LEAST and foreign(pictures) == ""


def test_other_pictures_are_not(capsys):
    noise = list(np.random.default_rng(0).integers(0, 256, (COUNT, 3, 32, 32), dtype=np.uint8))
    for pictures in (blurs(COUNT), noise):
        assert world_fit(pictures) < LEAST - 2 and "not of the embedded world" in foreign(pictures)
    assert foreign([np.zeros((3, 32, 48), np.uint8)]) == "", "nobody can say: it reads squares"


def test_the_commands_say_so(tmp_path, capsys):
    (tmp_path / "clouds").mkdir()
    for number, picture in enumerate(blurs(COUNT)):
        Image.fromarray(picture.transpose(1, 2, 0)).save(tmp_path / f"clouds/{number}.png")
        (tmp_path / f"clouds/{number}.txt").write_text(
            f"a red circle in the {'top' if number % 2 else 'bottom'} left"
        )
    store, new = str(tmp_path / "store"), str(tmp_path / "new")
    for words in (
        ["data", "import", str(tmp_path / "clouds"), store, "--size", "32", "--quiet"],
        ["caption", store, new, "--model", "world", "--styles", "long", "--keep-all", "--quiet"],
        ["data", "filter", store, str(tmp_path / "left"), "--score", "world", "--drop", "0.1"],
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        printed = capsys.readouterr()
        assert not end.value.code, printed.err
        assert ("not of the embedded world" in printed.out + printed.err) == (words[1] != "import")
        assert ("train on it" in printed.out) == (words[0] != "caption"), (
            "such captions are nothing to learn from"
        )
    assert "not of the embedded world" in try_pairs(store, "world").words
