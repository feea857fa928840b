"""The Ray executor on real clusters of this machine: one started for the study and one joined, each
losing a worker."""

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

from fulcrum.files.folders import Mark, leave_mark, unseen
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.run import System
from fulcrum.studies import runner
from fulcrum.studies.cell import finished, lay_out, measuring
from fulcrum.studies.ray_cluster import (
    LOST,
    RAY_ADDRESS,
    _lane,
    _places,
    cluster,
    remote_answer,
    remote_sight,
)
from fulcrum.studies.runner import Lane, Work, run_all
from fulcrum.studies.study import Executor, run
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
def test_a_cluster_started_for_the_study_survives_a_killed_worker_and_finds_the_same(
    alone, tmp_path, monkeypatch
):
    monkeypatch.delenv(RAY_ADDRESS, raising=False)
    killer = Killer(tmp_path, 1, lambda: workers(os.getpid())[:1])
    result, page = run(
        plan(**ASKED), CATALOG, tmp_path, "x", print, executor=Executor("ray", lanes=2)
    )
    assert killer.killed and result.state == "finished" and page.is_file()
    assert report(tmp_path) == alone


@contextlib.contextmanager
def two_nodes(env, second=()):
    """A cluster of two nodes with a core each, started as a person would: (address, the second
    node's process). `second`: words that its command begins with."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    # short: it holds sockets
    place, ray = tempfile.mkdtemp(prefix="ray"), Path(sys.executable).with_name("ray")
    common = [
        "--num-cpus",
        "1",
        "--block",
        "--disable-usage-stats",
        "--object-store-memory",
        "100000000",
    ]
    head = [
        "--head",
        "--port",
        address.partition(":")[2],
        "--include-dashboard",
        "false",
        "--temp-dir",
        place,
    ]
    nodes = []
    try:
        for words, before in ((head, ()), (["--address", address], second)):
            nodes.append(
                subprocess.Popen(
                    [*before, str(ray), "start", *words, *common],
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
            opened = subprocess.run(
                [sys.executable, "-c", asked], capture_output=True, text=True, timeout=90, env=env
            )
            if f"alive {nodes}\n" in opened.stdout:
                return
        time.sleep(0.5)
    raise AssertionError(
        f"the cluster has no {nodes} nodes: {opened.stderr[-2000:] if opened else 'nobody opened'}"
    )


@pytest.mark.slow
def test_a_joined_cluster_that_loses_a_node_runs_its_cell_on_the_other(alone, tmp_path):
    """The command, as a person gives it; the cluster has a token of its own, which this test
    makes."""
    (tmp_path / "plan.toml").write_text(PLAN)
    env = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with two_nodes(env) as (address, second):
        killer = Killer(
            tmp_path / "runs", 2, lambda: descendants(second.pid) if workers(second.pid) else ()
        )
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


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"]).returncode != 0,
    reason="needs a mount namespace of its own",
)
def test_a_node_whose_folder_is_only_called_the_same_is_named_before_any_cell(tmp_path):
    """Before there were marks this ended with "4 of 4 cells done", exit code 0 and no effects."""
    pytest.importorskip("ray")
    (tmp_path / "plan.toml").write_text(PLAN)
    out, other = tmp_path / "runs", tmp_path / "other"
    out.mkdir()
    other.mkdir()
    private = ["unshare", "-rm", "sh", "-c", f'mount --bind "{other}" "{out}" && exec "$@"', "sh"]
    env = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    words = ["study", "run", str(tmp_path / "plan.toml"), "--out", str(out), "--executor", "ray"]
    with two_nodes(env, private) as (address, _):
        done = subprocess.run(
            [sys.executable, "-m", "fulcrum", *words],
            env=env | {RAY_ADDRESS: address},
            capture_output=True,
            text=True,
            timeout=280,
        )
    assert done.returncode == 2 and f"{out} is not one folder" in done.stderr, done.stderr
    assert (
        not list(other.glob("*/checkpoints"))
        and not list(out.glob("*/checkpoints"))
        and not list(out.glob(".shared-*"))
    )


class Task:
    """Stands in for a remote function: every call gives the same."""

    def __init__(self, given):
        self.given = given

    def remote(self, *words):
        return self.given


class Cluster:
    """Stands in for ray: what is waited for is raised."""

    def __init__(self, exceptions):
        self.exceptions = exceptions

    def get(self, asked):
        raise asked


def errors():
    """Every error that Ray has, its own words replaced: some cannot be made without a cluster."""
    kinds = [
        one for one in vars(pytest.importorskip("ray.exceptions")).values() if isinstance(one, type)
    ]
    base = next(one for one in kinds if one.__name__ == "RayError")
    kinds = sorted({one for one in kinds if issubclass(one, base)}, key=lambda one: one.__name__)
    plain = {
        "__init__": lambda self: None,
        "__str__": lambda self: "in Ray's own words",
        "cause": ValueError("of the cell"),
    }
    return [type(one.__name__, (one,), plain)() for one in kinds]


def test_every_error_of_ray_is_told_in_words(tmp_path):
    import ray.exceptions

    asked = plan(**ASKED)
    cell = lay_out(asked, CATALOG, {}, tmp_path).cells[0]
    work, answers = Work(tmp_path, System(), measuring(asked), ()), {}
    for error in errors():
        lane = _lane(Cluster(ray.exceptions), Task(error))(work, None, None, threading.Event())
        answer = lane.ask(cell)
        assert answer is None or not answer["ok"]
        said = lane.ended if answer is None else (answer["error"], answer["hint"])
        assert (
            said[0] and said[1] and ("in Ray's own words" in said[0] or "of the cell" in said[0])
        ), said
        answers[type(error).__name__] = answer
    assert (
        len(answers) > 30 and {name for name, answer in answers.items() if answer is None} >= LOST
    )
    assert answers["RuntimeEnvSetupError"] and answers["RayTaskError"]["error"] == "of the cell"


def test_a_node_that_came_late_and_has_another_folder_runs_no_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(unseen, "__defaults__", (0.0,))
    asked = plan(**ASKED)
    cell = lay_out(asked, CATALOG, {}, tmp_path).cells[0]
    work = Work(tmp_path, System(), measuring(asked), ())
    strange = Mark(".shared-0123456789abcdef", "of another folder")
    answer = remote_answer(work.asked(cell), work.setup() | {"mark": tuple(strange)})
    assert (
        not answer["ok"]
        and "is not one folder for the study" in answer["error"]
        and "share" in answer["hint"]
    )
    assert remote_sight(str(tmp_path), strange)[1] is None and not list(tmp_path.glob(".shared-*"))
    mark = leave_mark(tmp_path)
    _, left = remote_sight(str(tmp_path), tuple(mark))
    assert Mark(*left).stands_in(tmp_path)


def test_a_cell_is_done_only_when_the_study_sees_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ARRIVAL", 0.0)

    class Boast(Lane):
        def ask(self, cell):
            return {"key": cell.key, "ok": True}

    asked = plan(**ASKED)
    cells = lay_out(asked, CATALOG, {}, tmp_path).cells
    with pytest.raises(RunFailed, match="does not hold what it found"):
        run_all(
            cells[:1],
            Work(tmp_path, System(), measuring(asked), ()),
            1,
            lambda board: None,
            lane=Boast,
        )


def test_a_cluster_that_is_not_there_is_said(monkeypatch):
    with (
        pytest.raises(BadInput, match="cannot join the Ray cluster at 127.0.0.1:1"),
        cluster(System(), 1, "127.0.0.1:1"),
    ):
        pass
    monkeypatch.setenv(RAY_ADDRESS, "127.0.0.1:2")
    with (
        pytest.raises(BadInput, match="cannot join the Ray cluster at 127.0.0.1:2"),
        cluster(System(), 1),
    ):
        pass


def test_a_cells_processes_are_of_one_node():
    nodes = [
        {"Alive": True, "Resources": {"CPU": 3.0, "GPU": 4.0}},
        {"Alive": True, "Resources": {"CPU": 5.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    assert [_places(nodes, cores, 0) for cores in (1, 2, 4)] == [8, 3, 1] and _places(
        nodes, 1, 2
    ) == 2
    with pytest.raises(BadInput, match="no node of the Ray cluster has the 6 cores"):
        _places(nodes, 6, 0)
