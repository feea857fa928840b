"""A compile that fails costs time and one sentence: the run is trained without, to the same
weights."""

import json
import os
import subprocess
import sys

import pytest

from fulcrum.levers.laws import TINY

BREAKS = """#!/bin/sh
case "$*" in
  *--version*|*"-x c++"*) exec g++ "$@";;
esac
echo "fatal: no space for templates" >&2
exit 1
"""


@pytest.mark.slow
def test_a_run_whose_compile_fails_is_trained_eagerly(tmp_path):
    compiler = tmp_path / "breaks"
    compiler.write_text(BREAKS)
    compiler.chmod(0o755)
    settings = [word for setting in TINY for word in ("--set", setting)]

    def trained(name: str, *words: str) -> tuple[str, str]:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "fulcrum",
                "train",
                "spark",
                *settings,
                *words,
                "--out",
                tmp_path / name,
                "--json",
            ],
            env={**os.environ, "CXX": str(compiler), "XDG_CACHE_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["weights_sha256"], done.stderr

    weights, said = trained("compiled", "--compile")
    eager, _ = trained("eager", "--no-compile")
    assert weights == eager
    assert said.count("compiling the blocks failed") == 1 and "slower" in said
    assert "Traceback" not in said
