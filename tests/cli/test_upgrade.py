"""After an upgrade of the science, runs and studies made before are listed and readable, and never
mixed with new ones."""

import json

import pytest

from fulcrum.cli import main, runs
from fulcrum.spec import edit
from fulcrum.spec.run import SCIENCE
from fulcrum.studies import frozen_plan
from fulcrum.studies.frozen_plan import changed_since, freeze
from fulcrum.studies.plan import Plan
from fulcrum.training import run_folder

SMALL = (
    "budget.batch=8",
    "data.source.count=16",
    "model.width=32",
    "model.heads=2",
    "sample.steps=2",
)
TRAIN = [
    "train",
    "spark",
    "--images",
    "8",
    "--threads",
    "1",
    *(word for one in SMALL for word in ("--set", one)),
    "--quiet",
]


def fulcrum(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words), "--json"])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, out + err
    return json.loads(out.splitlines()[-1])


def upgrade(monkeypatch):
    for place in (edit, run_folder, runs, frozen_plan):
        monkeypatch.setattr(place, "SCIENCE", SCIENCE + 1)


def test_a_run_made_before_is_told_apart_and_left_as_it_is(capsys, tmp_path, monkeypatch):
    old = fulcrum(capsys, *TRAIN, "--out", tmp_path)["key"]
    held = {path: path.read_bytes() for path in (tmp_path / old).rglob("*") if path.is_file()}
    upgrade(monkeypatch)

    new = fulcrum(capsys, *TRAIN, "--out", tmp_path)["key"]
    assert new != old, "an old result was taken for a new one"
    listed = {run["key"]: run for run in fulcrum(capsys, "runs", "list", "--out", tmp_path)["runs"]}
    assert {key: (run["science"], run["state"]) for key, run in listed.items()} == {
        old: (SCIENCE, "finished"),
        new: (SCIENCE + 1, "finished"),
    }
    assert fulcrum(
        capsys, "sample", old, "a red circle", "--out", tmp_path, "--to", tmp_path / "old.png"
    )
    assert {path: path.read_bytes() for path in held} == held

    with pytest.raises(SystemExit):
        main(["runs", "list", "--out", str(tmp_path)])
    lines = {line[:8]: line for line in capsys.readouterr().out.splitlines()}
    assert (
        f"by version {SCIENCE} of the science, this is {SCIENCE + 1}" in lines[old[:8]]
        and "version" not in lines[new[:8]]
    )


@pytest.mark.parametrize("reads", ({"asset:codec": "0" * 64}, None))
def test_a_run_of_another_codec_is_not_drawn_with_this_one(reads, capsys, tmp_path):
    """None: as the first releases wrote it. Its pictures would be those of a network that it has
    never seen."""
    old = fulcrum(capsys, *TRAIN, "--out", tmp_path)["key"]
    path = tmp_path / old / "about.json"
    about = {
        name: value
        for name, value in json.loads(path.read_text()).items()
        if name not in ("reads", "science")
    }
    path.write_text(json.dumps(about if reads is None else {**about, "reads": reads}))
    for words in (("sample", old, "a red circle"), ("measure", old)):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--out", str(tmp_path)])
        assert ended.value.code == 2 and "trained with another 'codec'" in capsys.readouterr().err
    assert fulcrum(capsys, "runs", "list", "--out", tmp_path)["runs"][0]["science"] == 1


def test_a_study_made_before_keeps_its_folder(tmp_path, monkeypatch):
    plan = Plan(title="before and after", baseline="spark", arms=("muon",), seeds=(0, 1))
    old = freeze(plan, tmp_path)
    upgrade(monkeypatch)
    new = freeze(plan, tmp_path)
    assert new != old and freeze(plan, tmp_path) == new
    assert (
        changed_since(plan, new)
        == f"this plan is not that of {old.name}: the version of the science changed; "
        "it has a page of its own"
    )
