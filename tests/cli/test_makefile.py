"""`make study` on a fresh clone: it says what it is at, and an install that fails ends it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Stands for both Pythons: makes an "environment" that holds itself; FAILS names the argument at
# which it gives up.
PYTHON = """#!/bin/sh
for word in "$@"; do [ "$word" = "$FAILS" ] && { echo "ERROR: no network" >&2; exit 1; }; done
[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python" \\
  && printf '#!/bin/sh\\necho ran "$@"\\n' > "$3/bin/fulcrum" && chmod +x "$3/bin/fulcrum"
exit 0
"""


@pytest.fixture
def clone(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(clone, target, fails=""):
    done = subprocess.run(
        ["make", target, "PYTHON=./python", "VENV=env"],
        cwd=clone,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "FAILS": fails},
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def test_each_part_is_told_before_it_begins(clone):
    code, output = make(clone, "study")
    lines = output.splitlines()
    assert code == 0 and lines[-1] == "ran study run quick"
    assert lines[0] == "making an environment in env ..." and "torch: a few minutes" in lines[1]
    assert "installing" not in make(clone, "study")[1], (
        "the second time there is nothing to install"
    )


@pytest.mark.parametrize("fails", ["venv", "torch", "."])
def test_an_install_that_fails_is_seen_and_ends_it(clone, fails):
    code, output = make(clone, "study", fails)
    assert code != 0 and "ERROR: no network" in output and "ran study" not in output
    assert make(clone, "study")[0] == 0, "started again, it begins again"
