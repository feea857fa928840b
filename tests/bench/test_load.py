"""The loads of bench/load.py on a small share: what is held stays level, and a load that is not
level is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.load import LEVEL, LOADS, Level, growth, growth_between

ROOT = Path(__file__).parents[2]


def test_growth_is_told() -> None:
    start = [Level(at, 100.0, 5, 1.0) for at in range(5)]
    assert growth([*start, Level(5, 100.0 + LEVEL, 7, 9.0)]) == []
    memory, files = growth([*start, Level(5, 101.0 + LEVEL, 8, 9.0)])
    assert (
        memory.startswith("memory grew by 25.0 MB from 3 to 5")
        and files == "3 more files are open at 5 than at 3"
    )
    assert growth([*start, Level(1_000_003, 101.0 + LEVEL, 5, 9.0)], each=2.0) == []


def test_growth_from_one_verdict_to_the_last_is_told() -> None:
    early, late = Level(500, 1000.0, 10, 0.0), Level(500, 9000.0, 500, 0.0)
    assert len(growth_between(early, late)) == 2 and growth_between(early, early) == []


def done(name: str, share: float) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "bench.load", "--share", str(share), "--only", name]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900)


def test_a_record_of_days_is_cut_and_shown_in_little_memory() -> None:
    # all lines of it as objects are 70 MB; in a process of its own, whose peak is its own
    end = done("record", 0.06)
    assert end.returncode == 0 and "400 points shown" in end.stdout, end.stdout + end.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADS)
def test_a_share_of_the_load_is_level(name: str) -> None:
    end = done(name, 0.05)
    assert end.returncode == 0, end.stdout + end.stderr
