"""The Ray executor: one cell per Ray worker, on a cluster that is there or one started for the
study.

Cells write into the study's folder, which every node must see: marks in it prove that, both ways. A
cell whose worker is lost goes on elsewhere from its last checkpoint: nothing of it lives in the
worker.
"""

import contextlib
import os
import platform
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.folders import Mark, leave_mark, unseen
from fulcrum.spec.errors import BadInput, RunFailed, first_line, install_extra
from fulcrum.spec.run import System
from fulcrum.studies.cell import Cell
from fulcrum.studies.runner import Lane

PATIENCE = 5.0  # seconds for a cluster's door to open
SIGHT = 120.0  # seconds for every node to start a worker and look at the folder
RAY_ADDRESS = "RAY_ADDRESS"  # Ray's own variable: a cluster that is there
START = (
    "start it with 'ray start --head'; without --ray-address and RAY_ADDRESS one is started for the"
    " study"
)
TOKEN = (
    "its token is missing or another one: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as on its"
    " nodes, then try again"
)

WORDS = {  # by the name of Ray's error: what happened, and what to do
    "OutOfMemoryError": (
        "a node had no memory left and ended the worker",
        "run fewer side by side with --lanes",
    ),
    "WorkerCrashedError": (
        "the worker died",
        "was it killed for memory? run fewer side by side with --lanes",
    ),
    "NodeDiedError": (
        "the node was lost",
        "add nodes, or wait until it is back, and start the same command again",
    ),
    "LocalRayletDiedError": (
        "Ray's own process on this node died",
        "restart the cluster, then the same command",
    ),
    "ObjectLostError": (
        "an answer was lost with the node that held it",
        "start the same command again",
    ),
    "TaskCancelledError": ("the task was cancelled", "start the same command again"),
    "RuntimeEnvSetupError": (
        "a node could not prepare the worker's environment",
        "see the logs of the node",
    ),
    "TaskUnschedulableError": (
        "no node can run the task",
        "add nodes, or lower `threads` or `processes`",
    ),
    "GetTimeoutError": (
        f"a node did not answer within {SIGHT:.0f} s",
        "is it overloaded or cut off? see 'ray status'",
    ),
    "RaySystemError": (
        "Ray's system failed",
        "see the logs of the cluster; then start the same command again",
    ),
    "AuthenticationError": ("the cluster refused this study", TOKEN),
}
# errors after which a cell is run again elsewhere: its worker is gone, and nothing of the cell with
# it
LOST = {
    "OutOfMemoryError",
    "WorkerCrashedError",
    "NodeDiedError",
    "LocalRayletDiedError",
    "ObjectLostError",
    "TaskCancelledError",
}


class Cluster(NamedTuple):
    lanes: int
    lane: type[Lane]


def remote_answer(asked: Mapping[str, Any], setup: Mapping[str, Any]) -> dict[str, Any] | None:
    """In a Ray worker: run a cell. Ray keeps the process, so imports and compiled code are paid for
    once there too; a cell of many processes gets its own, by torchrun, on the node that the worker
    has reserved cores on."""
    from fulcrum.levers.catalog import with_files
    from fulcrum.studies.worker import answer, failure

    out = Path(setup["out"])
    # a node that came after the first look
    if (mark := setup.get("mark")) and unseen(out, [Mark(*mark)]):
        return failure(asked["key"], unshared(out, [platform.node()]))
    catalogue, _ = with_files(Path(path) for path in setup["files"])
    return answer(asked, setup, catalogue)


def remote_sight(out: str, mark: Sequence[str]) -> tuple[str, tuple[str, str] | None]:
    """On a node: its name, and the mark that it leaves in the study's folder, if it sees the
    study's own there."""
    if unseen(Path(out), [Mark(*mark)]):
        return platform.node(), None
    name, word = leave_mark(Path(out))
    return platform.node(), (name, word)


def unshared(out: Path, nodes: Sequence[str]) -> BadInput:
    return BadInput(
        f"{out} is not one folder for the study and all nodes of the Ray cluster:"
        f" {', '.join(nodes)} has another, or none",
        "give a folder with --out that all nodes share",
    )


@contextlib.contextmanager
def cluster(
    system: System, lanes: int | None, address: str | None = None, out: Path | None = None
) -> Iterator[Cluster]:
    """Join the cluster at `address` or RAY_ADDRESS, or start one here; what was started is ended, a
    joined one is left.

    Every node must see and be seen in `out`, where cells are written.
    """
    address = address or os.environ.get(RAY_ADDRESS) or None
    threads, cores_each = str(system.threads), system.threads * system.processes
    _require_open(address)
    try:
        import ray as found_ray
    except ImportError:
        raise BadInput(
            "Ray is not installed", f"{install_extra('ray')}, or leave --executor out"
        ) from None
    ray: Any = found_ray  # its own types say less than its manual
    own: dict[str, Any] = (
        {} if address else {"num_cpus": (lanes or 1) * cores_each, "include_dashboard": False}
    )
    try:  # "local": not a cluster that Ray may find on this machine
        ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **own)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise BadInput(
            f"cannot join the Ray cluster at {address}: {error}",
            TOKEN if "token" in str(error.__cause__) else START,
        ) from error
    mark: Mark | None = None
    try:
        if out is not None:
            mark = leave_mark(out)
            _require_shared(ray, out.resolve(), mark)
        places = _places(
            ray.nodes(), cores_each, system.processes if system.device == "cuda" else 0
        )
        width = min(lanes, places) if lanes else places
        task = ray.remote(remote_answer).options(
            num_cpus=cores_each,
            num_gpus=system.processes if system.device == "cuda" else 0,
            max_retries=0,  # the lane counts losses: it knows what a cell is
            runtime_env={"env_vars": {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}},
        )
        yield Cluster(width, _lane(ray, task, mark))
    except ray.exceptions.RayError as error:
        raise RunFailed(*_told(error)) from error
    finally:
        if out is not None and mark is not None:
            mark.remove(out)
        ray.shutdown()


def _require_shared(ray: Any, out: Path, mark: Mark) -> None:
    """Every node reads the study's mark and leaves its own, which is read here."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    task = ray.remote(remote_sight)
    asked = [
        task.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(str(out), tuple(mark))
        for node in nodes
    ]
    sights = ray.get(asked, timeout=SIGHT)
    marks = [Mark(*left) for _, left in sights if left is not None]
    missing = set(unseen(out, marks))
    for number in set(range(len(marks))) - missing:
        marks[number].remove(out)
    strange = {marks[number] for number in missing}
    if blind := [name for name, left in sights if left is None or Mark(*left) in strange]:
        raise unshared(out, sorted(set(blind)))


def _told(error: Exception) -> tuple[str, str]:
    """What Ray raised, in words, and what to do about it."""
    kind, text = type(error).__name__, first_line(error)
    for name, words in WORDS.items():
        if any(name == base.__name__ for base in type(error).__mro__):
            return f"{words[0]} ({kind}: {text})", words[1]
    return (
        f"Ray failed with {kind}: {text}",
        "see the logs of the cluster; the same command goes on with what is left",
    )


def _places(nodes: Sequence[Mapping[str, Any]], cores: int, gpus: int) -> int:
    """Cells that fit side by side: a cell's processes are of one node."""
    has = [node["Resources"] for node in nodes if node["Alive"]]
    places = sum(
        min(
            int(one.get("CPU", 0)) // cores, int(one.get("GPU", 0)) // gpus if gpus else sys.maxsize
        )
        for one in has
    )
    if not places:
        raise BadInput(
            f"no node of the Ray cluster has the {cores} cores{f' and {gpus} GPUs' if gpus else ''}"
            " that a cell needs; the largest has"
            f" {max((int(one.get('CPU', 0)) for one in has), default=0)} cores",
            "add nodes, or lower `threads` or `processes`",
        )
    return places


def _require_open(address: str | None) -> None:
    """Ray waits for minutes at a closed door: knock first."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):  # "auto": Ray looks for it itself
        return
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise BadInput(
            f"cannot join the Ray cluster at {address}: {error.strerror or error}", START
        ) from None


def _lane(ray: Any, task: Any, mark: Mark | None = None) -> type[Lane]:
    class RayLane(Lane):
        asked_for: Any = None

        def ask(self, cell: Cell) -> dict[str, Any] | None:
            try:
                self.asked_for = task.remote(
                    self.work.asked(cell), self.work.setup() | {"mark": mark and tuple(mark)}
                )
                answer: dict[str, Any] | None = ray.get(self.asked_for)
                return answer
            except ray.exceptions.RayError as error:
                within = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
                if not isinstance(within, ray.exceptions.RayError):  # the cell's own
                    return {"key": cell.key, "ok": False, "error": str(within), "hint": str(error)}
                said, hint = self.ended = _told(within)
                lost = any(base.__name__ in LOST for base in type(within).__mro__)
                return None if lost else {"key": cell.key, "ok": False, "error": said, "hint": hint}

        def close(self, grace: float = 30.0) -> None:
            if self.stopped.is_set() and self.asked_for is not None:
                with contextlib.suppress(Exception):  # the cluster may be gone by now
                    ray.cancel(self.asked_for, force=False)  # as Ctrl-C: the cell is saved
                    ray.wait([self.asked_for], timeout=grace)

    return RayLane
