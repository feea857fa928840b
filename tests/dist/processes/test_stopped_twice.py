"""Two processes that get SIGTERM or Ctrl-C twice, as launchers pass it on: both are saved, and say
so by their code."""

import signal
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

sys.path.insert(0, str(Path(__file__).parent))
from ranks_of_a_run import Started, wait_for, words  # noqa: E402


@pytest.mark.parametrize(
    ("number", "code", "gap"), [(signal.SIGTERM, 75, 0.06), (signal.SIGINT, 130, 0.04)]
)
def test_all_are_saved_and_end_with_the_code(tmp_path, number, code, gap):
    command = words(tmp_path, "--save-every", "80", images=80_000)
    with Started(command, command) as run:
        wait_for(lambda: list(tmp_path.glob("*/checkpoints/0*")), seconds=200)
        for _ in range(2):
            for process in run.processes:
                process.send_signal(number)
            time.sleep(gap)
        ends = run.ended(100)
    assert [end for end, _ in ends] == [code, code], ends
    assert "everything is saved" in ends[0][1] and not list(tmp_path.rglob("*.writing"))
