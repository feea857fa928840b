"""fulcrum rerun: the same weights come out again, or it is told that they do not and whether that
means anything."""

import json
import shutil

import pytest

from fulcrum.cli import main
from tests.cli.tiny_run import TINY, fulcrum


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("rerun") / "runs"
    with pytest.raises(SystemExit) as end:
        main(
            [
                "train",
                "spark + muon",
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
    assert end.value.code == 0
    return next(about.parent for about in out.glob("*/about.json"))


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "runs" / trained.name)


def edited(path, change):
    """A JSON file after `change` was made to what it holds."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_the_same_weights_come_out_and_nothing_is_left_behind(run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, answer = fulcrum(capsys, "rerun", run.name[:8], "--out", run.parent)
    assert (
        code == 0
        and answer["same"]
        and answer["found"] == json.loads((run / "result.json").read_text())["weights_sha256"]
    )
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert [path.name for path in run.parent.iterdir()] == [run.name]


def test_other_weights_on_the_same_machine_are_a_failure_and_are_kept(run, capsys):
    edited(run / "result.json", lambda result: result.update(weights_sha256="0" * 64))
    code, answer = fulcrum(capsys, "rerun", run, "--in", run.parent / "again")
    assert code == 1 and not answer["same"] and answer["doubts"] == []
    assert (run.parent / "again" / run.name / "result.json").exists()
    edited(
        run.parent / "again" / run.name / "result.json",
        lambda result: result.update(weights_sha256="0" * 64),
    )
    # it was trained, not read from there
    assert fulcrum(capsys, "rerun", run, "--in", run.parent / "again")[0] == 1


def test_other_weights_after_another_machine_or_version_prove_nothing(run, capsys):
    edited(run / "result.json", lambda result: result.update(weights_sha256="0" * 64))
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["session"] and lines[0]["machine"]["threads"] == 1
    lines[0]["machine"].update(processor="a 386", torch="1.0")
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, answer = fulcrum(capsys, "rerun", run)
    assert (
        code == 3
        and any("a 386 ->" in doubt for doubt in answer["doubts"])
        and any("torch" in d for d in answer["doubts"])
    )
    (run / "events.jsonl").unlink()
    code, answer = fulcrum(capsys, "rerun", run)
    assert code == 3 and "does not say on which machine" in answer["doubts"][0]


def test_the_threads_and_processes_are_those_of_the_run(run, capsys):
    from fulcrum.files.sealed import sealed

    newest = sorted((run / "checkpoints").iterdir())[-1] / "state.json"
    state = json.loads(newest.read_text())
    state["system"]["processes"] = 4
    newest.write_text(
        json.dumps(sealed({name: value for name, value in state.items() if name != "check"}))
    )
    code, answer = fulcrum(capsys, "rerun", run)
    assert (
        code == 2
        and "4 processes" in answer["error"]
        and "torchrun --nproc-per-node 4 -m fulcrum" in answer["hint"]
    )


def test_what_cannot_be_trained_again_is_refused(run, capsys):
    assert fulcrum(capsys, "rerun", run, "--in", run.parent)[0] == 2
    edited(run / "about.json", lambda about: about["run"]["optim"].update(lr=0.5))
    code, answer = fulcrum(capsys, "rerun", run)
    assert code == 2 and "not its description any more" in answer["error"]
    edited(run / "about.json", lambda about: about.update(science=0))
    assert "version 0 of the science" in fulcrum(capsys, "rerun", run)[1]["error"]
    (run / "result.json").unlink()
    assert "not finished" in fulcrum(capsys, "rerun", run)[1]["error"]


def test_a_run_from_another_run_finds_it_where_it_was(run, trained, capsys):
    words = [
        "spark",
        "--start",
        run.name,
        "--images",
        16,
        "--out",
        run.parent,
        *TINY,
        "--threads",
        1,
    ]
    code, later = fulcrum(capsys, "train", *words)
    assert code == 0
    assert fulcrum(capsys, "rerun", later["key"], "--out", run.parent)[0] == 0


def test_a_system_is_found_without_checkpoints(run, capsys):
    shutil.rmtree(run / "checkpoints")
    assert fulcrum(capsys, "rerun", run)[0] == 0
    (run / "events.jsonl").unlink()
    code, answer = fulcrum(capsys, "rerun", run)
    assert code == 2 and "how many threads" in answer["error"]


def test_sessions_that_count_are_those_whose_steps_are_in_the_run():
    from fulcrum.training.run_folder import counted_sessions

    events = [
        {"event": "session", "images": images, "number": number}
        for number, images in enumerate((0, 80, 160, 80, 240))
    ]
    assert [one["number"] for one in counted_sessions(events)] == [0, 3, 4]
