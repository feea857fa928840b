"""A cell on many processes of one machine: torchrun starts them, they train it together, the first
of them measures it.

The worker that asked waits and holds their standard input open. When it goes away, by whatever
death, they read the end of it and leave: a cell that is run again elsewhere must not find its old
processes at work.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fulcrum.files.atomic import write_json
from fulcrum.files.sealed import read_json
from fulcrum.spec.errors import BadInput, FulcrumError

ORDER = "order.json"
TORCHRUN_POLL_SECONDS, TORCHRUN_PATIENCE = (
    0.1,
    10.0,
)  # seconds between two looks, and for torchrun to end when all its processes have answered


def answer_together(asked: Mapping[str, Any], setup: Mapping[str, Any]) -> dict[str, Any] | None:
    """Run one cell on as many processes as the system says; None when they were stopped, or one of
    them was lost."""
    count = setup["system"]["processes"]
    with tempfile.TemporaryDirectory(prefix="fulcrum-cell-") as place:
        (Path(place) / ORDER).write_text(json.dumps({"asked": asked, "setup": setup}))
        files = [Path(place) / f"{rank}.json" for rank in range(count)]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--local-addr",
                "127.0.0.1",
                "--nproc-per-node",
                str(count),
                "-m",
                "fulcrum.studies.torchrun_cell",
                place,
            ],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            with _passing_on(process):
                wait_for_launcher(process, files, TORCHRUN_PATIENCE)
        finally:
            if process.poll() is None:
                process.kill()
            if process.stdin is not None:
                process.stdin.close()  # whoever is left reads the end and leaves
            process.wait()
        if lost := [str(rank) for rank in range(count) if not files[rank].exists()]:
            print(
                f"rank {', '.join(lost)} of {count} of a cell ended without a word",
                file=sys.stderr,
                flush=True,
            )
        return verdict([_read(path) for path in files])


def wait_for_launcher(
    process: "subprocess.Popen[bytes]", files: Sequence[Path], patience: float
) -> None:
    """Until torchrun has ended. Where it stands still all are waited for, but not for ever once
    each has answered."""
    answered = 0.0
    while process.poll() is None and answered < patience:
        time.sleep(TORCHRUN_POLL_SECONDS)
        answered += TORCHRUN_POLL_SECONDS if all(path.exists() for path in files) else 0.0


def verdict(answers: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """One answer from those of all processes. A process that was lost, saved and left, or missed
    another says nothing."""
    failed = next((one for one in answers if one is not None and not one["ok"]), None)
    return failed or (answers[0] if all(one is not None for one in answers) else None)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path, "")
    except BadInput:  # nothing, or the "null" of a process that has nothing to say
        return None


@contextlib.contextmanager
def _passing_on(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Who asks this worker to stop asks all of them: torchrun hands SIGTERM on, and they save the
    cell."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda *_: process.terminate())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_at_end_of_input() -> None:
    while os.read(0, 1):  # not sys.stdin: its lock would be held when Python ends
        pass
    os._exit(1)


def main() -> None:
    threading.Thread(target=leave_at_end_of_input, daemon=True).start()
    from fulcrum.levers.catalog import with_files
    from fulcrum.studies.worker import answer
    from fulcrum.training.dist.ranks import TIMEOUT, start

    place = Path(sys.argv[1])
    order = json.loads((place / ORDER).read_text())
    catalogue, _ = with_files(Path(path) for path in order["setup"]["files"])
    answered: dict[str, Any] | None = None
    setup = order["setup"]
    try:  # the others also wait while the first draws and measures
        with start(setup["system"]["device"], setup.get("timeout", TIMEOUT)) as ranks:
            answered = answer(order["asked"], setup, catalogue, ranks)
    except FulcrumError as error:
        if getattr(error, "speaker", True):  # of a lost process one tells
            print(error, file=sys.stderr, flush=True)
    write_json(place / f"{os.environ['RANK']}.json", answered, flush=False)
    if answered is None or not answered["ok"]:
        sys.exit(1)  # torchrun ends the others: they may wait for this one


if __name__ == "__main__":
    main()
