"""One rank of several, run as a script by test_joining.py: it joins, and does what the word says.
Its clocks are faster.

python joining_ranks.py WORD TIMEOUT     with torchrun's variables in the environment
"""

import os
import signal
import sys
import time

import torch

from fulcrum.spec.errors import FulcrumError
from fulcrum.training.dist import ranks as joining
from fulcrum.training.dist import ranks as start
from fulcrum.training.dist import ranks as watch
from fulcrum.training.dist.ranks import SAVING

SILENT, BEAT = 6.0, 0.3
watch.SILENT = joining.SILENT = SILENT
watch.BEAT = joining.BEAT = BEAT
watch.FINISH, watch.GRACE, watch.QUIET, watch.HELD = 1.0, 2.0, 1.5, 1.5


def save(ranks):
    """Where all write a checkpoint; the last rank is stopped in the midst of it."""
    ranks.standing.at(SAVING, 7)
    ranks.any(False)
    if ranks.rank == ranks.size - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    ranks.any(False)


def draw(ranks):
    """The first draws for longer than a rank may be silent; the others wait for it, and all go
    on."""
    ranks.standing.at(SAVING, 7)
    if ranks.first:
        time.sleep(SILENT + 3)
    ranks.any(False)


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        with start.start(timeout=float(sys.argv[2])) as ranks:
            {"save": save, "draw": draw, "join": lambda ranks: None}[sys.argv[1]](ranks)
    except FulcrumError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
