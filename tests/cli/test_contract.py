"""The contract for scripts: names in the JSON of every command, exit codes, errors without a
traceback."""

import json
import subprocess
import sys

import pytest

from fulcrum.cli import main
from tests.cells_here import lighten

TINY = [
    word
    for setting in (
        "model.width=32",
        "model.depth=4",
        "model.heads=2",
        "budget.batch=8",
        "data.source.count=64",
        "sample.steps=2",
    )
    for word in ("--set", setting)
]


def fulcrum(capsys, *words):
    """Exit code and the last line of stdout, read as JSON."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out = capsys.readouterr().out.strip().splitlines()
    return end.value.code, json.loads(out[-1]) if out else None


def pixels(path):
    import numpy as np
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def trained(out, capsys):
    code, answer = fulcrum(
        capsys, "train", "spark", "--images", 24, "--out", out, *TINY, "--json", "--threads", 1
    )
    assert code == 0
    return answer


def test_train(trained):
    assert {
        "run",
        "key",
        "seed",
        "images",
        "weights_sha256",
        "seconds",
        "images_per_second",
    } <= set(trained)
    assert trained["images"] == 24 and trained["seed"] == 0


def test_sample(trained, out, capsys):
    code, answer = fulcrum(
        capsys,
        "sample",
        trained["key"][:6],
        "a large red circle.",
        "a star.",
        "--out",
        out,
        "--json",
    )
    assert code == 0 and len(answer["files"]) == 2
    assert pixels(answer["files"][0]).shape == (128, 128, 3)


def test_a_picture_does_not_depend_on_its_neighbours(trained, out, capsys, tmp_path):
    _, alone = fulcrum(
        capsys, "sample", trained["key"], "a star.", "--out", out, "--to", tmp_path / "a", "--json"
    )
    _, among = fulcrum(
        capsys,
        "sample",
        trained["key"],
        "a star.",
        "a large blue ring at the top.",
        "--out",
        out,
        "--to",
        tmp_path / "b",
        "--json",
    )
    assert (pixels(alone["files"][0]) == pixels(among["files"][0])).all()


def test_measure(trained, out, capsys, monkeypatch):
    lighten(monkeypatch)
    code, answer = fulcrum(
        capsys, "measure", trained["key"], "--samples", 64, "--out", out, "--json", "--quiet"
    )
    assert code == 0
    assert {"attribute_accuracy", "frechet", "mmd", "validation_loss"} <= set(answer["metrics"])
    assert all(
        {"value", "interval", "card"} <= set(metric) for metric in answer["metrics"].values()
    )
    assert answer["metrics"]["frechet"]["card"]["n"] == 64


def test_levers(capsys):
    code, answer = fulcrum(capsys, "levers", "--json")
    assert code == 0 and isinstance(answer, list)
    assert all(
        {"name", "settings", "touches", "affects", "cost", "claims"} <= set(lever)
        for lever in answer
    )
    code, answer = fulcrum(capsys, "levers", "show", "tread", "--json")
    assert code == 0 and answer["diff"][0]["path"] == "model.route"


def test_levers_for_people(capsys):
    def lines(*words):
        with pytest.raises(SystemExit) as end:
            main(["levers", *words])
        assert end.value.code in (0, None)
        return capsys.readouterr().out.splitlines()

    listed = lines()
    assert "recipe 'pocket'" in listed[0] and "recipe 'spark'" in lines("--recipe", "spark")[0]
    tread = listed[
        next(number for number, line in enumerate(listed) if line.startswith("tread ")) + 1
    ]
    assert "claimed: fid -3.32" in tread and tread.endswith("and 3 more: fulcrum levers show tread")
    shown = lines("show", "tread")
    assert sum("PRX Part 2" in line for line in shown) == 4 and "measured here" in shown
    assert any("on pocket_pixels, 6 pairs: inconclusive" in line for line in shown)
    # headings of nothing
    assert not {"claims", "measured here"} & set(lines("show", "resolution_condition"))


def test_runs(trained, out, capsys):
    code, answer = fulcrum(capsys, "runs", "list", "--out", out, "--json")
    assert code == 0 and trained["key"] in [run["key"] for run in answer["runs"]]
    assert (
        fulcrum(capsys, "runs", "show", trained["key"], "--out", out, "--json")[1]["state"]
        == "finished"
    )
    assert fulcrum(capsys, "runs", "gc", "--out", out, "--json")[0] == 0
    _, extra = fulcrum(
        capsys, "train", "spark", "--images", 8, "--out", out, *TINY, "--json", "--threads", 1
    )
    assert fulcrum(capsys, "runs", "rm", extra["key"], "--yes", "--out", out, "--json")[1][
        "removed"
    ]
    assert fulcrum(capsys, "runs", "show", extra["key"], "--out", out, "--json")[0] == 2


def test_a_finished_run_starts_another(trained, out, capsys):
    code, answer = fulcrum(
        capsys,
        "train",
        "spark",
        "--images",
        16,
        "--start",
        trained["key"],
        "--out",
        out,
        *TINY,
        "--json",
        "--threads",
        1,
    )
    assert code == 0 and answer["key"] != trained["key"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "sprak"], "no recipe is called 'sprak'"),
        (["train", "spark + tred"], "no lever is called 'tred'"),
        (["train", "spark", "--set", "model.width=97"], "cannot be divided"),
        (["train", "spark", "--set", "data.size=33"], "not a multiple"),
        (["train", "spark + tread(drop=1.5)"], "less than 1"),
        (["train", "spark", "--images", "many"], "valid integer"),
        (
            ["train", "spark", "--start", "/nowhere/at/all"],
            "--start /nowhere/at/all: there is nothing at",
        ),
        (["train", "prx_256", "--set", "data.source.count=64"], "does not travel with Fulcrum"),
        (["train"], "Missing argument"),
        (["trian"], "No such command"),
        (["sample", "abcdef", "x"], "no run"),
        (["measure", "abcdef"], "no run"),
        (["study", "run", "no/such.toml"], "cannot read the plan"),
        (["levers", "show", "tred"], "no lever is called"),
        (["report"], "no report"),
    ],
)
def test_bad_input_is_exit_code_2_with_error_and_hint(words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, answer = fulcrum(capsys, *words, "--json")
    assert code == 2 and set(answer) == {"error", "hint"} and says in answer["error"]


def test_help_starts_fast_and_without_torch():
    probe = (
        "import sys, fulcrum.cli; heavy = {'torch', 'numpy', 'scipy', 'diffusers', 'PIL'} &"
        " set(sys.modules); sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    assert (
        subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stderr == ""
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_of_many_processes_one_that_can_ask_nobody_says_its_rank(rank, capsys, monkeypatch):
    """Whether all have an error is asked in their store: tests/dist/processes/test_joining.py. Here
    there is none."""
    for name, value in (("WORLD_SIZE", 2), ("RANK", rank), ("LOCAL_RANK", rank)):
        monkeypatch.setenv(name, str(value))
    for words in (["train", "sprak"], ["train", "sprak", "--json"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        printed = capsys.readouterr()
        assert end.value.code == 2 and (printed.out + printed.err).count("sprak") == 1
        assert "--json" in words or f"on rank {rank}" in printed.err


@pytest.mark.parametrize(("rank", "count"), [(0, 1), (1, 0)])
def test_a_command_that_is_none_is_told_by_the_first_process(rank, count, capsys, monkeypatch):
    for name, value in (("WORLD_SIZE", 2), ("RANK", rank), ("LOCAL_RANK", rank)):
        monkeypatch.setenv(name, str(value))
    with pytest.raises(SystemExit) as end:
        main(["trian"])
    assert end.value.code == 2 and capsys.readouterr().err.count("trian") == count


def test_what_one_process_alone_met_is_never_lost(capsys, monkeypatch):
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "1"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("fulcrum.levers.catalog.read_phrase", lambda *words: 1 / 0)
    with pytest.raises(SystemExit) as end:
        main(["train", "spark"])
    assert end.value.code == 1 and "error on rank 1: ZeroDivisionError" in capsys.readouterr().err
