"""A process that has imported everything once, and forks for each trial: a trial costs what its command does, no start.

It is started by `trial.Host` with the shim of faults.c before libc, reads orders as JSON lines and answers each with one.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

LIMIT = 120.0  # seconds: what takes longer hangs


def main() -> None:
    import fulcrum.cli
    import fulcrum.study.study_run  # noqa: F401  (the heavy rooms: torch and all that commands import when they run)
    import fulcrum.train.session  # noqa: F401

    shim = ctypes.CDLL(os.environ["CHAOS_SHIM"])
    shim.chaos_seen.restype = ctypes.c_long
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_tried(json.loads(line), shim, fulcrum.cli.main)), flush=True)


def _tried(order: dict[str, Any], shim: ctypes.CDLL, command: Any) -> dict[str, Any]:
    child = os.fork()
    if child == 0:
        _child(order, shim, command)
    begun, ended = time.monotonic(), False
    deadline, kill_after = begun + LIMIT, order.get("kill_after")
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        ended = pid == child
        late = time.monotonic()
        if ended:
            break
        if late > deadline or (kill_after is not None and late - begun > kill_after):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status = signal.SIGKILL
            break
        time.sleep(0.005)
    hung = not ended and kill_after is None
    seen = Path(order["said"] + ".seen")
    calls = int(seen.read_text()) if seen.exists() else None
    return {
        "exit": os.waitstatus_to_exitcode(status),
        "hung": hung,
        "calls": calls,
        "seconds": time.monotonic() - begun,
        "memory": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


def _child(order: dict[str, Any], shim: ctypes.CDLL, command: Any) -> None:
    """Never returns: the command's end is the process's."""
    said = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(order["folder"])
    sys.argv = ["fulcrum", *order["words"]]
    code = 0
    shim.chaos_arm(order["folder"].encode(), order["at"], order["kind"], int(order["on"]))
    try:
        command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # what the command line let through is what we look for
        traceback.print_exc()
        code = 70
    Path(order["said"] + ".seen").write_text(str(shim.chaos_seen()))
    shim.chaos_disarm()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
