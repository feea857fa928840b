"""Processes of one run as a launcher starts them, each with words of its own; what they said and
how they ended."""

import os
import signal
import socket
import subprocess
import sys
import time

SETTINGS = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "data.source.count=64",
    "sample.steps=2",
)


def words(out, *more, images=80):
    """`fulcrum train` of the smallest run."""
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    usual = [
        "train",
        "spark",
        "--images",
        str(images),
        "--out",
        str(out),
        "--threads",
        "1",
        "--no-compile",
    ]
    return ["-m", "fulcrum", *usual, "--preview-every", "0", *settings, *more]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Started:
    """The processes of a run, rank by rank; what is left of them ends with the block. `size`: what
    they are told, if they are not all; `env`: what a rank is told besides."""

    def __init__(self, *commands, wrap=None, size=None, env=None):
        self.port, told, own = (
            free_port(),
            {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"},
            env or {},
        )
        told |= {"WORLD_SIZE": str(size or len(commands)), "MASTER_PORT": self.port}
        self.processes = [
            subprocess.Popen(
                [*((wrap or {}).get(rank, ())), sys.executable, *command],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ
                | told
                | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                | own.get(rank, {}),
            )
            for rank, command in enumerate(commands)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()

    def ended(self, seconds, without=()):
        """[(exit code, what was printed)] of all ranks, or None of those `without` which are not
        waited for."""
        deadline, ends = time.monotonic() + seconds, []
        for rank, process in enumerate(self.processes):
            if rank in without:
                ends.append(None)
                continue
            out, err = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            ends.append((process.returncode, out + err))
        return ends


def wait_for(what, seconds=120):
    deadline = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.05)
    return result
