"""docs/tutorial.md: its very commands, one after the other, in a world so small that it takes
seconds."""

import json
import re
import shlex
from pathlib import Path

import pytest

from fulcrum.cli import main
from fulcrum.measure import evaluation as run_evaluation
from tests.cells_here import all_here

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.M | re.S)
SMALL = [
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "data.source.count=64",
    "sample.steps=2",
]
SET = [word for setting in (*SMALL, "budget.images=16") for word in ("--set", setting)]


def test_the_commands_of_the_tutorial_run_in_their_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_evaluation, "REFERENCE", 512)
    monkeypatch.setattr(run_evaluation, "VALIDATION", 128)
    all_here(monkeypatch)
    (plan,) = (block for kind, block in BLOCKS if kind == "toml")
    small = (
        re.sub(r"^(images|samples|seeds) =.*\n", "", plan, flags=re.M)
        + "seeds = [0, 1]\nimages = 16\nsamples = 64\ncompile = false\nsettings ="
        f" {json.dumps(SMALL)}\n"
    )
    (tmp_path / "first.toml").write_text(small)
    lines = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("fulcrum ")]
    assert [" ".join(words[:2]) for words in commands][:2] == ["doctor", "train spark"] and len(
        commands
    ) >= 6
    # of the page's own run
    (key,) = {words[1] for words in commands if words[0] in ("sample", "measure")}
    for words in commands:
        more = {"train": [*SET, "--threads", "1"], "measure": ["--samples", "64"], "study": []}.get(
            words[0], []
        )
        # its steps are those of the run
        more = ["--no-time"] if words[:2] == ["study", "plan"] else more
        own = [
            next(tmp_path.glob("runs/*/result.json")).parent.name if word == key else word
            for word in words
        ]
        with pytest.raises(SystemExit) as end:
            main([*own, *more])
        assert not end.value.code, capsys.readouterr().err
    assert list(tmp_path.glob("circle/*.png")) and list(tmp_path.glob("runs/study-*/report.html"))
    assert "short_captions" in capsys.readouterr().out
