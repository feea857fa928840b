"""kill -9 at a random step, from outside, then the same command: the same weights hash."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

SETTINGS = [
    word
    for setting in ("model.width=32", "model.heads=2", "budget.batch=16", "data.source.count=256")
    for word in ("--set", setting)
]


def command(out, *more):
    return [
        sys.executable,
        "-c",
        "from fulcrum.cli import main; main()",
        "train",
        "spark",
        "--images",
        "3200",
        "--out",
        str(out),
        "--threads",
        "1",
        "--no-compile",
        "--json",
        "--quiet",
        *SETTINGS,
        *more,
    ]


@pytest.mark.slow
def test_kill_9_at_random_steps(tmp_path):
    whole = subprocess.run(command(tmp_path / "whole"), capture_output=True, text=True)
    expected = json.loads(whole.stdout.splitlines()[-1])["weights_sha256"]
    for trial in range(3):
        out = tmp_path / f"killed{trial}"
        process = subprocess.Popen(command(out), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not list(out.glob("*/record.jsonl")):
            time.sleep(0.05)
        time.sleep(random.Random(trial).uniform(0.5, 6.0))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        again = subprocess.run(command(out), capture_output=True, text=True)
        assert json.loads(again.stdout.splitlines()[-1])["weights_sha256"] == expected


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, 75)])
def test_ctrl_c_and_sigterm_save_and_say_how_to_go_on(tmp_path, number, code):
    process = subprocess.Popen(
        command(tmp_path, "--images", "320000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size for path in tmp_path.glob("*/record.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=120)
    said = json.loads(out.splitlines()[-1])
    assert process.returncode == code and "everything is saved" in said["error"] and "fulcrum train" in said["hint"]
    assert list(tmp_path.glob("*/checkpoints/0*"))
