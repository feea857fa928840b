"""A study killed with -9 three times at random ends with the report of an undisturbed one, measured
times aside."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.study.small import SMALL, without_times

PLAN = (
    'title = "Killed"\nbaseline = "spark"\narms = ["short_captions", "bf16_storage"]\nseeds = [0,'
    f" 1]\nimages = 160\nsettings = {json.dumps(SMALL)}\nsamples = 64\ncompile = false\nevaluations"
    " = [0.5, 1.0]\n"
)


def command(folder):
    return [
        sys.executable,
        "-c",
        "from fulcrum.cli import main; main()",
        "study",
        "run",
        str(folder / "plan.toml"),
        "--out",
        str(folder / "runs"),
        "--quiet",
    ]


@pytest.mark.slow
def test_three_kills_at_random_change_nothing(tmp_path):
    reports, lasted = {}, 60.0  # the calm study says how long one lasts
    for name, kills in (("calm", 0), ("killed", 3)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "plan.toml").write_text(PLAN)
        begun = time.monotonic()
        for _ in range(kills):
            going = subprocess.Popen(
                command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                going.wait(random.uniform(0.15, 0.6) * lasted)
            except subprocess.TimeoutExpired:
                os.kill(going.pid, signal.SIGKILL)
                going.wait()
        done = subprocess.run(command(folder), capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr
        lasted = time.monotonic() - begun
        reports[name] = without_times(
            json.loads(next(folder.glob("runs/study-*/report.json")).read_text())
        )
    assert reports["calm"] == reports["killed"]
