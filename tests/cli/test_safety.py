"""What must never happen: removing what is no run, using weights that a run did not end with,
starting over in silence."""

import shutil

import pytest

from fulcrum.cli import main
from tests.cli.tiny_run import TINY, fulcrum


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Where a run was trained; only copied."""
    out = tmp_path_factory.mktemp("trained")
    with pytest.raises(SystemExit) as end:
        main(
            [
                "train",
                "spark",
                "--images",
                "24",
                "--out",
                str(out),
                *TINY,
                "--threads",
                "1",
                "--quiet",
            ]
        )
    assert not end.value.code
    return out


@pytest.fixture
def run(trained, tmp_path):
    """A trained run of the test's own, to be damaged."""
    out = shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    return next(out.glob("*/result.json")).parent


def test_gc_and_rm_touch_nothing_that_is_no_run(run, tmp_path, capsys, monkeypatch):
    mine = run.parent / "thesis"
    (mine / "checkpoints" / "2023").mkdir(parents=True)
    for path, text in (
        (mine / "about.json", '{"key": "k", "phrase": "mine", "seed": 1}'),
        (mine / "result.json", "{}"),
        (mine / "checkpoints" / "2023" / "notes.txt", "years of work"),
    ):
        path.write_text(text)
    assert fulcrum(capsys, "runs", "gc", "--out", run.parent)[0] == 0
    assert fulcrum(capsys, "runs", "rm", mine, "--yes")[0] == 2
    monkeypatch.chdir(run)
    for name in ("", "."):
        assert fulcrum(capsys, "runs", "rm", name, "--yes")[0] == 2
    assert (mine / "checkpoints" / "2023" / "notes.txt").exists() and (run / "about.json").exists()


def test_an_export_goes_where_it_is_asked_to_and_not_among_checkpoints(run, tmp_path, capsys):
    code, answer = fulcrum(
        capsys, "export", run.name, tmp_path / "W.SAFETENSORS", "--out", run.parent
    )
    assert code == 0 and answer["tensors"] and (tmp_path / "W.SAFETENSORS").is_file()
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    (tmp_path / "link").symlink_to(run / "checkpoints")
    for place in (
        run / "checkpoints" / "w.safetensors",
        run / "checkpoints" / "000000000099",
        tmp_path / "link" / "w",
    ):
        code, answer = fulcrum(capsys, "export", run.name, place, "--out", run.parent)
        assert code == 2 and "where a run keeps its own" in answer["error"], answer
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before


def test_gc_leaves_a_run_in_use_alone(run, capsys):
    from fulcrum.training.run_folder import RunFolder, claim

    (run / "checkpoints" / ".writing-000000000099-1").mkdir()
    with claim(RunFolder(run)):
        assert fulcrum(capsys, "runs", "gc", "--out", run.parent)[1]["removed"] == []
    assert len(fulcrum(capsys, "runs", "gc", "--out", run.parent)[1]["removed"]) >= 1


def test_gc_keeps_the_older_checkpoint_when_the_last_is_damaged(run, capsys):
    saved = sorted((run / "checkpoints").iterdir())
    assert len(saved) == 2
    weights = saved[-1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    fulcrum(capsys, "runs", "gc", "--out", run.parent)
    assert saved[0].exists()


def test_weights_that_the_run_did_not_end_with_are_not_drawn_with(run, capsys):
    shutil.rmtree(sorted((run / "checkpoints").iterdir())[-1])
    code, answer = fulcrum(capsys, "sample", run.name, "a star.", "--out", run.parent)
    assert code == 1 and "does not hold the weights" in answer["error"]


def test_a_damaged_run_never_starts_over_and_can_be_removed(run, capsys):
    (run / "result.json").unlink()
    for path in (run / "checkpoints").iterdir():
        (path / "model.safetensors").write_bytes(b"")
    again = ("train", "spark", "--images", 24, "--out", run.parent, *TINY, "--threads", 1)
    for _ in range(2):
        code, answer = fulcrum(capsys, *again)
        assert code == 1 and "every checkpoint" in answer["error"]
    (run / "result.json").write_text("{half")
    assert fulcrum(capsys, "runs", "list", "--out", run.parent)[1]["runs"][0]["state"] == "damaged"
    assert (
        fulcrum(capsys, "runs", "rm", run.name, "--yes", "--out", run.parent)[0] == 0
        and not run.exists()
    )


LEVER = """
from typing import ClassVar
from fulcrum.levers.base import Card, Lever
from fulcrum.spec.edit import put

class Own(Lever):
    name: ClassVar[str] = "own"
    touches: ClassVar[tuple] = ("flow.drop_text",)
    card: ClassVar[Card] = Card(says="more empty captions")

    def edit(self, run):
        return put(run, "flow.drop_text", 0.3)

    def witness(self, built):
        return {witness}
"""


@pytest.mark.parametrize("phrase", ["spark + own", "spark + own @ (0, 0.5)"])
def test_an_edited_lever_file_makes_a_new_run(phrase, tmp_path, capsys):
    from pathlib import Path

    from fulcrum.levers.catalog import read_phrase
    from fulcrum.spec.edit import key

    keys = set()
    for text in (LEVER, LEVER + "# edited\n"):
        Path(tmp_path / "own.py").write_text(text.replace("{witness}", "True"))
        read, files = read_phrase(phrase, [tmp_path / "own.py"])
        keys.add(key(read.run, 0, files))
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{witness}", "False", "is not on"),
        ("{witness}", "1 / 0", "ZeroDivisionError"),
        ('("flow.drop_text",)', '("optim.lr",)', "does not declare"),
        ('return put(run, "flow.drop_text", 0.3)', "return None", "not a run"),
        ('return put(run, "flow.drop_text", 0.3)', "raise RuntimeError('oh')", "RuntimeError: oh"),
        ('name: ClassVar[str] = "own"', 'name: ClassVar[str] = "o w n"', "needs a `name`"),
        (
            'touches: ClassVar[tuple] = ("flow.drop_text",)',
            "touches: ClassVar[int] = 5",
            "needs `touches`",
        ),
        ('card: ClassVar[Card] = Card(says="more empty captions")', "", "needs a `card`"),
        ("from typing import ClassVar", "raise SystemExit(0)", "SystemExit"),
    ],
)
def test_a_lever_that_is_wrong_is_refused_with_a_message(old, new, says, tmp_path, capsys):
    text = LEVER.replace(old, new).replace("{witness}", "True")
    (tmp_path / "own.py").write_text(text)
    code, answer = fulcrum(
        capsys,
        "train",
        "spark + own",
        "--levers",
        tmp_path / "own.py",
        "--images",
        8,
        "--out",
        tmp_path / "runs",
        *TINY,
        "--threads",
        1,
    )
    assert code == 2 and says in answer["error"], answer


@pytest.mark.parametrize(
    "words",
    [
        ["train", "spark + tread @ ('a', 'b')"],
        ["train", "spark + tread @ (1, 0)"],
        ["train", "spark + tread(drop={[]: 1})"],
        ["train", "spark" + " + muon" * 3000],
        ["train", "spark + tread(drop=0.5, drop=0.4)"],
        ["train", "spark", "--set", "optim.lr=1e308"],
        ["train", "spark", "--set", "optim.lr=1e999"],
        ["train", "spark", "--set", "model.mlp_ratio=1e-9"],
        ["train", "spark", "--set", "encode.codec.channels=3"],
        ["train", "spark", "--set", "data.size=100000"],
        ["train", "spark", "--set", "sample.steps=10000000000"],
        ["train", "spark", "--threads", "100000"],
    ],
)
def test_hostile_words_are_bad_input(words, capsys, tmp_path):
    assert fulcrum(capsys, *words, "--out", tmp_path)[0] == 2
