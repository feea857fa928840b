"""A file's tests run in one process: else its costly fixtures may be made in both."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os, pytest
@pytest.mark.parametrize("lever", "ab")
@pytest.mark.parametrize("number", range(9))
def test_{name}(number, lever):
    with open("{name}-" + {part}, "a") as seen:
        print(os.environ["PYTEST_XDIST_WORKER"], file=seen)
"""


def test_a_file_and_the_laws_of_a_lever_stay_together(tmp_path):
    for name, part in (("one", "''"), ("two", "''"), ("law", "lever")):
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(name=name, part=part))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "--dist",
            "loadgroup",
            "-p",
            "tests.one_process_per_file",
            "-q",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert "54 passed" in done.stdout, done.stdout + done.stderr
    ran = {path.name: path.read_text().split() for path in tmp_path.glob("*-*")}
    assert {name: (len(workers), len(set(workers))) for name, workers in ran.items()} == {
        "one-": (18, 1),
        "two-": (18, 1),
        "law-a": (9, 1),
        "law-b": (9, 1),
    }
    assert {worker for workers in ran.values() for worker in workers} == {"gw0", "gw1"}
