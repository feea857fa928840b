"""The Ray executor: one cell per Ray worker, on a cluster that is there or one started for the study.

Cells write into the study's folder, which every node must see. A cell whose worker is lost goes on elsewhere from its
last checkpoint: nothing of it lives in the worker.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.spec.errors import BadInput
from fulcrum.spec.install import install_extra
from fulcrum.spec.system import System
from fulcrum.study.run.cell import Cell
from fulcrum.study.run.workers.runner import Lane

PATIENCE = 5.0  # seconds for a cluster's door to open
RAY_ADDRESS = "RAY_ADDRESS"  # Ray's own variable: a cluster that is there
START = "start it with 'ray start --head'; without --ray-address and RAY_ADDRESS one is started for the study"
TOKEN = "its token is missing or another one: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as on its nodes, then try again"


class Cluster(NamedTuple):
    lanes: int
    lane: type[Lane]


def remote_answer(asked: Mapping[str, Any], setup: Mapping[str, Any]) -> dict[str, Any] | None:
    """In a Ray worker: run a cell. Ray keeps the process, so imports and compiled code are paid for once there too; a cell
    of many processes gets its own, by torchrun, on the node that the worker has reserved cores on."""
    from fulcrum.levers.catalog import with_files
    from fulcrum.study.run.workers.worker import answer

    out = Path(setup["out"])
    if not out.is_dir():
        return {
            "key": asked["key"],
            "ok": False,
            "error": f"this node does not see {out}",
            "hint": "--out must be a folder that all nodes share",
        }
    catalogue, _ = with_files(Path(path) for path in setup["files"])
    return answer(asked, setup, catalogue)


@contextlib.contextmanager
def cluster(system: System, lanes: int | None, address: str | None = None) -> Iterator[Cluster]:
    """Join the cluster at `address` or RAY_ADDRESS, or start one here; what was started is ended, a joined one is left."""
    address = address or os.environ.get(RAY_ADDRESS) or None
    threads, cores_each = str(system.threads), system.threads * system.processes
    _require_open(address)
    try:
        import ray as found_ray
    except ImportError:
        raise BadInput("Ray is not installed", f"{install_extra('ray')}, or leave --executor out") from None
    ray: Any = found_ray  # its own types say less than its manual
    own: dict[str, Any] = {} if address else {"num_cpus": (lanes or 1) * cores_each, "include_dashboard": False}
    try:  # "local": not a cluster that Ray may find on this machine
        ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"cannot join the Ray cluster at {address}: {error}", TOKEN if "token" in str(error.__cause__) else START
        ) from error
    try:
        places = _places(ray.nodes(), cores_each, system.processes if system.device == "cuda" else 0)
        width = min(lanes, places) if lanes else places
        task = ray.remote(remote_answer).options(
            num_cpus=cores_each,
            num_gpus=system.processes if system.device == "cuda" else 0,
            max_retries=0,  # the lane counts losses: it knows what a cell is
            runtime_env={"env_vars": {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}},
        )
        yield Cluster(width, _lane(ray, task))
    finally:
        ray.shutdown()


def _places(nodes: Sequence[Mapping[str, Any]], cores: int, gpus: int) -> int:
    """Cells that fit side by side: a cell's processes are of one node."""
    has = [node["Resources"] for node in nodes if node["Alive"]]
    places = sum(
        min(int(one.get("CPU", 0)) // cores, int(one.get("GPU", 0)) // gpus if gpus else sys.maxsize) for one in has
    )
    if not places:
        raise BadInput(
            f"no node of the Ray cluster has the {cores} cores{f' and {gpus} GPUs' if gpus else ''} that a cell "
            f"needs; the largest has {max((int(one.get('CPU', 0)) for one in has), default=0)} cores",
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
        raise BadInput(f"cannot join the Ray cluster at {address}: {error.strerror or error}", START) from None


def _lane(ray: Any, task: Any) -> type[Lane]:
    class RayLane(Lane):
        asked_for: Any = None

        def ask(self, cell: Cell) -> dict[str, Any] | None:
            self.asked_for = task.remote(self.work.asked(cell), self.work.setup())
            try:
                answer: dict[str, Any] | None = ray.get(self.asked_for)
                return answer
            except (
                ray.exceptions.WorkerCrashedError,
                ray.exceptions.NodeDiedError,
                ray.exceptions.TaskCancelledError,
                ray.exceptions.LocalRayletDiedError,
                ray.exceptions.ObjectLostError,
            ):
                return None
            except ray.exceptions.RayTaskError as error:
                return {"key": cell.key, "ok": False, "error": str(error.cause), "hint": str(error)}

        def close(self, grace: float = 30.0) -> None:
            if self.stopped.is_set() and self.asked_for is not None:
                with contextlib.suppress(Exception):  # the cluster may be gone by now
                    ray.cancel(self.asked_for, force=False)  # as Ctrl-C: the cell is saved
                    ray.wait([self.asked_for], timeout=grace)

    return RayLane
