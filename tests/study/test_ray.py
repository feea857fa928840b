"""The Ray executor on a real cluster of two workers on this machine, one of them killed while it trains."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.study.on_ray import cluster
from fulcrum.study.study import Executor, run
from tests.study.small import plan


def workers():
    """Process ids of this user's Ray workers that are running a cell."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::remote_answer"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_study_on_ray_survives_a_killed_worker_and_finds_the_same(tmp_path):
    pytest.importorskip("ray")
    asked = plan(arms=("bf16_storage",), images=160)
    others, killed = set(workers()), []                      # not ours to touch

    def kill_once():
        while not killed:
            if list((tmp_path / "ray").glob("*/checkpoints/0*")):
                mine = sorted(set(workers()) - others)
                if mine:
                    os.kill(mine[0], signal.SIGKILL)
                    killed.append(mine[0])
            time.sleep(0.05)

    threading.Thread(target=kill_once, daemon=True).start()
    result, page = run(asked, CATALOG, tmp_path / "ray", "x", print, executor=Executor("ray", lanes=2))
    assert killed and result.state == "finished" and page.is_file()
    alone, _ = run(asked, CATALOG, tmp_path / "local", "x", lambda text: None)
    kept = [[row for row in one.effects if row.unit != "time"] for one in (result, alone)]
    assert kept[0] == kept[1]
    finals = [[cell.final for arm in one.arms for cell in arm.cells] for one in (result, alone)]
    assert finals[0] == finals[1]


def test_a_cluster_that_is_not_there_is_said():
    with pytest.raises(BadInput, match="cannot join the Ray cluster at 127.0.0.1:1"), cluster(1, 1, "127.0.0.1:1"):
        pass
