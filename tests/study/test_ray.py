"""The Ray executor on real clusters of this machine: one started for the study and one joined, each losing a worker."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.spec.system import System
from fulcrum.study.run.cell import finished
from fulcrum.study.run.layout import lay_out, measuring
from fulcrum.study.run.workers.ray_cluster import RAY_ADDRESS, _places, cluster
from fulcrum.study.run.workers.runner import Work, run_all
from fulcrum.study.study_run import Executor, run
from tests.study.small import SMALL, descendants, plan, told, without_times

ASKED = {"arms": ("bf16_storage",), "images": 160}
PLAN = (
    'title = "Small"\nbaseline = "spark"\narms = ["bf16_storage"]\nseeds = [0, 1]\nimages = 160\n'
    f"settings = {json.dumps(SMALL)}\nsamples = 64\ncompile = false\n"
)


def workers(of):
    """Ray's workers under a process of ours that are running a cell."""
    return sorted(pid for pid in descendants(of) if told(pid)[0].startswith("ray::remote_answer"))


class Killer(threading.Thread):
    """Kills once, as soon as `cells` cells have a checkpoint."""

    def __init__(self, out, cells, victims):
        super().__init__(daemon=True)
        self.out, self.cells, self.victims, self.killed = out, cells, victims, []
        self.start()

    def run(self):
        while not self.killed:
            begun = {path.parent.parent for path in self.out.glob("*/checkpoints/0*")}
            if len(begun) >= self.cells:
                for pid in self.victims():
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)
            time.sleep(0.05)


def report(out):
    return without_times(json.loads(next(out.glob("study-*/report.json")).read_text()))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The report of processes on this machine, undisturbed."""
    pytest.importorskip("ray")
    out = tmp_path_factory.mktemp("alone")
    run(plan(**ASKED), CATALOG, out, "x", lambda text: None)
    return report(out)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_started_for_the_study_survives_a_killed_worker_and_finds_the_same(alone, tmp_path, monkeypatch):
    monkeypatch.delenv(RAY_ADDRESS, raising=False)
    killer = Killer(tmp_path, 1, lambda: workers(os.getpid())[:1])
    result, page = run(plan(**ASKED), CATALOG, tmp_path, "x", print, executor=Executor("ray", lanes=2))
    assert killer.killed and result.state == "finished" and page.is_file()
    assert report(tmp_path) == alone


@contextlib.contextmanager
def two_nodes(env):
    """A cluster of two nodes with a core each, started as a person would: (address, the second node's process)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    place, ray = tempfile.mkdtemp(prefix="ray"), Path(sys.executable).with_name("ray")  # short: it holds sockets
    common = ["--num-cpus", "1", "--block", "--disable-usage-stats", "--object-store-memory", "100000000"]
    head = ["--head", "--port", address.partition(":")[2], "--include-dashboard", "false", "--temp-dir", place]
    nodes = []
    try:
        for words in (head, ["--address", address]):
            nodes.append(
                subprocess.Popen(
                    [str(ray), "start", *words, *common],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env=env,
                )
            )
            wait_for(address, len(nodes), env)
        yield address, nodes[1]
    finally:
        for pid in [pid for node in nodes for pid in (node.pid, *descendants(node.pid))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for node in nodes:
            node.wait()
        shutil.rmtree(place, ignore_errors=True)


def wait_for(address, nodes, env, seconds=120):
    """Until that many nodes of the cluster are alive."""
    asked = (
        f"import ray; ray.init(address={address!r}, logging_level='error'); "
        "print('alive', sum(node['Alive'] for node in ray.nodes()))"
    )
    host, port = address.split(":")
    deadline, opened = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # Ray waits for minutes at a closed door: knock first
            socket.create_connection((host, int(port)), timeout=1).close()
            opened = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=90, env=env)
            if f"alive {nodes}\n" in opened.stdout:
                return
        time.sleep(0.5)
    raise AssertionError(f"the cluster has no {nodes} nodes: {opened.stderr[-2000:] if opened else 'nobody opened'}")


@pytest.mark.slow
def test_a_joined_cluster_that_loses_a_node_runs_its_cell_on_the_other(alone, tmp_path):
    """The command, as a person gives it; the cluster has a token of its own, which this test makes."""
    (tmp_path / "plan.toml").write_text(PLAN)
    env = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with two_nodes(env) as (address, second):
        killer = Killer(tmp_path / "runs", 2, lambda: descendants(second.pid) if workers(second.pid) else ())
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "fulcrum",
                "study",
                "run",
                str(tmp_path / "plan.toml"),
                "--out",
                str(tmp_path / "runs"),
                "--executor",
                "ray",
            ],
            env=env | {RAY_ADDRESS: address},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        assert killer.killed and "2 side by side on Ray" in done.stderr
        wait_for(address, 1, env)  # it is left as it was found: its head still answers
    assert report(tmp_path / "runs") == alone


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cell_of_two_processes_in_a_ray_worker_that_is_killed_goes_on(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv(RAY_ADDRESS, raising=False)
    asked = plan(images=160, processes=2)
    cell, system = lay_out(asked, CATALOG, {}, tmp_path).cells[0], System(processes=2)
    killer = Killer(tmp_path, 1, lambda: workers(os.getpid())[:1])
    with cluster(system, 1) as (lanes, lane):
        import ray

        seen = []
        board = run_all(
            [cell],
            Work(tmp_path, system, measuring(asked), ()),
            lanes,
            lambda board: seen.append(ray.available_resources().get("CPU", 0)),
            lane=lane,
        )
    assert killer.killed and board.lost == 1 and min(seen) == 0  # two cores were reserved
    assert finished(tmp_path, cell, measuring(asked).how)
    saved = next(tmp_path.glob("*/checkpoints/0*160/state.json"))
    assert json.loads(saved.read_text())["system"]["processes"] == 2


def test_a_cluster_that_is_not_there_is_said(monkeypatch):
    with pytest.raises(BadInput, match="cannot join the Ray cluster at 127.0.0.1:1"), cluster(System(), 1, "127.0.0.1:1"):
        pass
    monkeypatch.setenv(RAY_ADDRESS, "127.0.0.1:2")
    with pytest.raises(BadInput, match="cannot join the Ray cluster at 127.0.0.1:2"), cluster(System(), 1):
        pass


def test_a_cells_processes_are_of_one_node():
    nodes = [
        {"Alive": True, "Resources": {"CPU": 3.0, "GPU": 4.0}},
        {"Alive": True, "Resources": {"CPU": 5.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    assert [_places(nodes, cores, 0) for cores in (1, 2, 4)] == [8, 3, 1] and _places(nodes, 1, 2) == 2
    with pytest.raises(BadInput, match="no node of the Ray cluster has the 6 cores"):
        _places(nodes, 6, 0)
