"""A stopped command says so, and how to go on."""

import json
import subprocess
import sys

import pytest

STOPS = """
import signal, sys
import fulcrum.cli as cli

@cli.app.command()
def wait(as_json: bool = False) -> None:
    signal.raise_signal(getattr(signal, sys.argv[1]))

cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize(("name", "stopper", "code"), [("SIGINT", "Ctrl-C", 130), ("SIGTERM", "SIGTERM", 75)])
def test_a_signal_in_a_command_is_told_by_its_name(name: str, stopper: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", STOPS, name, "wait"], capture_output=True, text=True, timeout=60)
    assert done.returncode == code and f"stopped by {stopper}" in done.stderr and "again to go on" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_is_told_to_scripts_too() -> None:
    code = STOPS.replace("as_json: bool = False", "json: bool = False")
    words = [sys.executable, "-c", code, "SIGINT", "wait", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert set(json.loads(done.stdout.splitlines()[-1])) == {"error", "hint"}


def test_the_release_is_told() -> None:
    done = subprocess.run([sys.executable, "-m", "fulcrum", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("fulcrum-lab ")
