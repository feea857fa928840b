"""What commands say to people: tables they can read, and nothing from a file that a terminal would
obey."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from fulcrum.cli import doctor, main
from fulcrum.cli.train import _skipped

ESCAPE = "\x1b[2J\x1b]0;owned\x07"  # clears the screen, renames the window


def said(capsys, *words, code=0):
    """stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert (end.value.code or 0) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_the_doctor_speaks_to_people_in_rows(capsys):
    out, _ = said(capsys, "doctor")
    assert not [sign for sign in ("{", "True", "False", "None") if sign in out], (
        "a table, no Python"
    )
    rows = {line.split("  ")[0]: line for line in out.splitlines()}
    assert {
        "what",
        "Python",
        "torch",
        "cores",
        "GPU",
        "C++ compiler",
        "free disk",
        "embedded parts",
    } <= set(rows)
    assert re.search(r"\b(1[1-9]) of \1 sound", rows["embedded parts"]), (
        "all eleven, or more when there are more"
    )


def test_the_doctor_names_what_is_damaged_and_what_is_missing(capsys, monkeypatch):
    facts = {
        "python": "3.11",
        "torch": "2",
        "cores": 1,
        "cuda": False,
        "fast_bf16": False,
        "compiler": False,
        "disk_free_gb": 1.0,
        "optional": {"ray": False},
        "assets": {"codec": f"bad {ESCAPE}", "text": "ok"},
    }
    monkeypatch.setattr(doctor, "_facts", lambda: facts)
    out, _ = said(capsys, "doctor", code=1)
    assert "apt-get install g++" in out and ".[ray]" in out and "1 of 2 sound" in out
    assert "damaged" in out and "\\x1b" in out and "\x1b" not in out
    assert json.loads(said(capsys, "doctor", "--json", code=1)[0]) == facts


def test_quiet_encodes_without_a_word(capsys, tmp_path):
    words = [
        "train",
        "spark",
        "--images",
        8,
        "--set",
        "budget.batch=8",
        "--set",
        "data.source.count=16",
        "--threads",
        1,
    ]
    _, err = said(capsys, *words, "--out", tmp_path / "told")
    assert "encoding latents: 16 of 16" in err
    _, err = said(capsys, *words, "--out", tmp_path / "quiet", "--quiet")
    assert err == ""


def test_a_title_cannot_steer_the_terminal(capsys, tmp_path):
    plan = tmp_path / "plan.toml"
    written = ESCAPE.replace("\x1b", "\\u001b").replace("\x07", "\\u0007")
    plan.write_text(
        f'title = "fine\\nerror: not {written}"\nbaseline = "spark"\narms = ["muon"]\nseeds = [0,'
        " 1]\n"
    )
    out, _ = said(capsys, "study", "plan", plan, "--no-time", "--out", tmp_path / "runs")
    assert "\x1b" not in out and out.startswith("fine\\nerror: not \\x1b[2J")
    plan.write_text(f'title = "fine"\nbaseline = "{written}"\narms = ["muon"]\nseeds = [0, 1]\n')
    _, err = said(capsys, "study", "plan", plan, "--out", tmp_path / "runs", code=2)
    assert "\x1b" not in err and err.startswith("error: ") and "\\x1b[2J" in err


def test_a_run_and_a_file_cannot_either(capsys, tmp_path):
    place = tmp_path / "runs" / ("0" * 16)
    place.mkdir(parents=True)
    about = {
        "key": place.name,
        "seed": 0,
        "phrase": f"spark {ESCAPE}",
        "run": {"budget": {"images": 8}},
    }
    (place / "about.json").write_text(json.dumps(about))
    out, _ = said(capsys, "runs", "list", "--out", place.parent)
    assert "\x1b" not in out and "spark \\x1b[2J" in out
    given = tmp_path / "given"
    given.mkdir()
    (given / f"a{ESCAPE}\n.png").write_bytes(b"no picture")
    (given / f"a{ESCAPE}\n.txt").write_text("a star")
    _, err = said(capsys, "data", "import", given, tmp_path / "store", code=2)
    assert "\x1b" not in err and err.startswith(
        "error: a\\x1b[2J\\x1b]0;owned\\x07\\n.png: not a picture"
    )


def test_runs_say_what_was_set_besides_the_phrase(capsys, tmp_path):
    words = [
        "train",
        "spark + muon",
        "--images",
        8,
        "--set",
        "budget.batch=8",
        "--set",
        "data.source.count=16",
    ]
    said(capsys, *words, "--set", "optim.lr=1e-4", "--threads", 1, "--quiet", "--out", tmp_path)
    out, _ = said(capsys, "runs", "list", "--out", tmp_path)
    assert (
        "spark + muon, set: " in out
        and "data world(count=16, max_objects=2); text world_text" in out
    )
    assert {"budget.batch=8", "budget.images=8", "data.source.count=16", "optim.lr=0.0001"} == set(
        out.split("set: ")[1].split(";")[0].split(", ")
    )
    (run,) = json.loads(said(capsys, "runs", "list", "--json", "--out", tmp_path)[0])["runs"]
    assert "optim.lr=0.0001" in run["set"] and run["data"] == "world(count=16, max_objects=2)"
    shown, _ = said(capsys, "runs", "show", run["key"], "--out", tmp_path)
    assert shown.startswith("spark + muon, set: ") and "text world_text, seed 0" in shown


def test_where_the_curves_are_and_how_to_look_is_told(capsys, tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'fulcrum-lab[tensorboard]' to run this")
    words = [
        "train",
        "spark",
        "--images",
        8,
        "--set",
        "budget.batch=8",
        "--set",
        "data.source.count=16",
        "--threads",
        1,
    ]
    _, err = said(capsys, *words, "--out", tmp_path, "--track", "tensorboard")
    assert f"tensorboard --logdir {tmp_path / 'tensorboard'}" in err and list(
        (tmp_path / "tensorboard").rglob("events*")
    )


def test_a_list_of_runs_fits_the_terminal(capsys, tmp_path, monkeypatch):
    """Columns are as wide as what stands in them, wide letters count twice; in a pipe and with
    --full all is told."""
    phrases = ("spark + muon", f"spark + {'長' * 60}")
    for number, phrase in enumerate(phrases):
        place = tmp_path / (str(number) * 16)
        place.mkdir()
        about = {
            "key": place.name,
            "seed": 10**number,
            "phrase": phrase,
            "run": {"budget": {"images": 8}},
        }
        (place / "about.json").write_text(json.dumps(about))
    piped, _ = said(capsys, "runs", "list", "--out", tmp_path)
    assert all(phrase in line for phrase, line in zip(phrases, piped.splitlines(), strict=True))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "76")
    fitted, hint = said(capsys, "runs", "list", "--out", tmp_path)
    one, other = fitted.splitlines()
    assert "spark + muon; " in one and cell_len(one) == 76 and one.endswith("…")
    assert (
        cell_len(other) in (75, 76) and other.endswith("長…") and "fulcrum runs list --full" in hint
    )
    assert said(capsys, "runs", "list", "--full", "--out", tmp_path) == (piped, "")
    assert (
        len(json.loads(said(capsys, "runs", "list", "--json", "--out", tmp_path)[0])["runs"]) == 2
    )


def test_a_run_with_parts_that_are_not_known_here_is_listed_all_the_same(capsys, tmp_path):
    place = tmp_path / ("0" * 16)
    place.mkdir()
    about = {
        "key": place.name,
        "seed": 0,
        "phrase": "spark + mine",
        "run": {"budget": {"images": 8}, "start": {"kind": "mine"}},
    }
    (place / "about.json").write_text(json.dumps(about))
    assert (
        "spark + mine; more is known with its file: --with FILE"
        in said(capsys, "runs", "list", "--out", tmp_path)[0]
    )


def test_a_lever_that_the_recipe_cannot_take_says_why_and_what_to_add(capsys):
    out, _ = said(capsys, "levers", "show", "end_to_end_codec")
    assert (
        "pocket as it is cannot take it: it aligns the codec" in out and "add repa or irepa" in out
    )


def test_the_next_command_is_in_the_words_of_the_runs_own_pictures(capsys, tmp_path):
    from PIL import Image

    (tmp_path / "given").mkdir()
    for number in range(120):
        Image.effect_noise((40, 40), 20 + number).convert("RGB").save(
            tmp_path / "given" / f"{number}.png"
        )
        (tmp_path / "given" / f"{number}.txt").write_text("a small blue square\n on the left")
    said(
        capsys,
        "data",
        "import",
        tmp_path / "given",
        tmp_path / "store",
        "--size",
        32,
        "--hold-out",
        0.3,
        "--quiet",
    )
    words = [
        "train",
        "spark",
        "--images",
        8,
        "--set",
        "budget.batch=8",
        "--threads",
        1,
        "--quiet",
        "--out",
        tmp_path / "runs",
    ]
    out, _ = said(capsys, *words, "--set", f"data.source=folder(path='{tmp_path / 'store'}')")
    (line,) = (line for line in out.splitlines() if line.startswith("  draw"))
    assert ' "a small blue square on the left" --out ' in line


@pytest.mark.parametrize("colours", ["", "1"])
def test_no_color_is_honoured(colours):
    setting = {"NO_COLOR": "1"} if not colours else {}
    environment = {
        **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
        "FORCE_COLOR": "1",
        **setting,
    }
    done = subprocess.run(
        [sys.executable, "-m", "fulcrum", "runs", "--help"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert bool(re.search(r"\x1b\[[\d;]*(3|4|9|10)\d[;m]", done.stdout)) == bool(colours)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("stu", "study"),
        ("runs l", "list"),
        ("runs show ab", "ab" + "0" * 14),
        ("train sp", "spark speedrun_24h"),
    ],
)
def test_a_shell_completes_commands_and_keys(typed, offered, tmp_path):
    (tmp_path / "runs" / ("ab" + "0" * 14)).mkdir(parents=True)
    (tmp_path / "runs" / ("ab" + "0" * 14) / "about.json").touch()
    asked = {
        "_FULCRUM_COMPLETE": "complete_bash",
        "COMP_WORDS": f"fulcrum {typed}",
        "COMP_CWORD": str(len(typed.split())),
    }
    run = "import sys; sys.argv[0] = 'fulcrum'; from fulcrum.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", run],
        env=os.environ | asked,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == offered.split(), done.stderr


def test_a_training_says_how_many_steps_were_left_out():
    run = SimpleNamespace(budget=SimpleNamespace(batch=8))
    said = _skipped(
        {"skipped": 3, "images": 1020, "alarms": {"loss spike": 2}, "nothing_learned": "nothing"},
        run,
    )
    assert (
        "skipped  3 of 128 steps" in said
        and "loss spike (2)" in said
        and "warning  nothing" in said
    )
    assert _skipped({"images": 1024}, run) == ""
