"""A process that has imported everything once, and forks for each trial: a trial costs what its
command does, no start.

It is started by `trial.Host` with the shim of faults.c before libc, reads orders as JSON lines and
answers each with one. An order is a list: commands that run at a time in one folder.
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

HEAVY = (
    "fulcrum.studies.study",
    "fulcrum.training.session",
    "fulcrum.networks.captioning.recaption",
)


def main() -> None:
    module, _, function = sys.argv[1].partition(":")
    command = getattr(importlib.import_module(module), function)
    if module.startswith("fulcrum"):
        for name in HEAVY:  # torch and all that commands import when they run
            importlib.import_module(name)
    shim = ctypes.CDLL(os.environ["CHAOS_SHIM"])
    shim.chaos_seen.restype = ctypes.c_long
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"ends": _tried(json.loads(line), shim, command)}), flush=True)


class Child:
    """One command of an order, from its start to its end."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order, self.pid, self.status = order, 0, None
        self.begun = self.ended = 0.0
        self.struck = self.stopped = self.hung = False

    status: int | None

    @property
    def running(self) -> bool:
        return self.pid != 0 and self.status is None

    def start(self, shim: ctypes.CDLL, command: Callable[[], None]) -> None:
        self.begun = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            _child(self.order, shim, command)

    def look(self, now: float) -> None:
        """Has it ended; is it to be struck now?"""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == self.pid:
            self.status, self.ended = status, now
            return
        kill_after, stall_after, age = (
            self.order["kill_after"],
            self.order["stall_after"],
            now - self.begun,
        )
        if kill_after is not None and age > kill_after and not self.struck:
            if self.order["worker"]:
                self.struck = _signalled(self.pid, signal.SIGKILL)
            else:
                self.struck = True
                self.end()
        if stall_after is not None and age > stall_after and not self.struck:
            if self.order["worker"]:
                self.struck = _signalled(self.pid, signal.SIGSTOP)
            else:
                os.kill(self.pid, signal.SIGSTOP)
                self.struck = self.stopped = True

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.status, self.ended = int(signal.SIGKILL), time.monotonic()

    def told(self) -> dict[str, Any]:
        seen = Path(self.order["said"] + ".seen")
        calls = seen.read_text() if seen.exists() else ""  # empty: it was killed as it noted them
        assert self.status is not None
        return {
            "exit": os.waitstatus_to_exitcode(self.status),
            "hung": self.hung,
            "struck": self.struck,
            "calls": int(calls) if calls else None,
            "seconds": self.ended - self.begun,
        }


def _tried(
    orders: list[dict[str, Any]], shim: ctypes.CDLL, command: Callable[[], None]
) -> list[dict[str, Any]]:
    children, begun = [Child(order) for order in orders], time.monotonic()
    while any(child.status is None for child in children):
        now = time.monotonic()
        for child in children:
            if not child.pid and now - begun >= child.order["delay"]:
                child.start(shim, command)
            elif child.running:
                child.look(now)
        left = [child for child in children if child.status is None]
        if left and all(child.stopped for child in left):  # nobody waits for these any more
            for child in left:
                child.end()
        elif now - begun > orders[0]["limit"]:
            for child in left:
                child.hung = not child.stopped
                child.end()
        time.sleep(0.005)
    return [child.told() for child in children]


def _signalled(pid: int, number: signal.Signals) -> bool:
    """Was there a process that it had started last, to be sent this?"""
    workers = _children(pid)
    with suppress(ProcessLookupError):
        if workers:
            os.kill(workers[-1], number)
            return True
    return False


def _children(pid: int) -> list[int]:
    """Of all its threads: the kernel lists a process with the thread that started it."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(word) for word in path.read_text().split()]
    return sorted(found)


def _child(order: dict[str, Any], shim: ctypes.CDLL, command: Callable[[], None]) -> None:
    """Never returns: the command's end is the process's."""
    said = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["folder"])
    os.environ.update(order["environment"])
    outside = order["said"] + ".outside"
    # for processes that it starts
    os.environ.update({"CHAOS_FOLDER": order["folder"], "CHAOS_OUTSIDE": outside})
    sys.argv = ["fulcrum", *order["words"]]
    code = 0
    if order["memory"] is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + order["memory"]
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    shim.chaos_watch(outside.encode())
    shim.chaos_arm(order["folder"].encode(), order["at"], order["fault"], int(order["on"]))
    try:
        command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # what the command line let through is what we look for
        traceback.print_exc()
        code = 70
    shim.chaos_disarm()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    Path(order["said"] + ".seen").write_text(str(shim.chaos_seen()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
