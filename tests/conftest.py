"""What tests share: a process like any other, the smallest run that has every part, and a cache for
the session.

A test must not depend on the shell that started it. Signals, threads, the terminal and the
variables that the package reads are set here, before torch is imported; processes that tests start
inherit them.
"""

import os
import random
import signal
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# A script that a test starts must import this tree, not another one that is installed as editable.
PYTHON_PATH = (str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, PYTHON_PATH))
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
):
    # a job in the background of a script inherits an ignored Ctrl-C, and hands it on
    signal.signal(number, handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
OF_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
OF_A_TERMINAL = (
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "TTY_COMPATIBLE",
    "GITHUB_ACTIONS",
)
OF_FULCRUM = ("FULCRUM_SHELF", "FULCRUM_SHELF_GB", "FULCRUM_TRACEBACK", "RAY_ADDRESS")
for name in (*OF_TORCHRUN, *OF_A_TERMINAL, *OF_FULCRUM):
    os.environ.pop(name, None)
# nothing of the user's is read or written
CACHE_HOME = tempfile.TemporaryDirectory(prefix="fulcrum-tests-")
os.environ["XDG_CACHE_HOME"] = CACHE_HOME.name

import pytest  # noqa: E402
import torch  # noqa: E402

from fulcrum.levers.catalog import CATALOG  # noqa: E402
from fulcrum.spec.phrase import parse  # noqa: E402
from tests.one_process_per_file import pytest_xdist_make_scheduler  # noqa: E402, F401
from tests.patch_guard import install_guard  # noqa: E402

install_guard()
torch.set_num_threads(1)

TINY = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "budget.images=48",
    "data.source.count=64",
    "data.source.max_objects=2",
    "sample.steps=2",
)


@pytest.fixture(autouse=True)
def seeded():
    """Random inputs are the same in every run of a test, in any order; also those of a fixture that
    outlives the test."""
    seed_everything()
    yield
    seed_everything()


def seed_everything():
    torch.manual_seed(0)
    random.seed(0)


seed_everything()


@pytest.fixture(scope="session")
def tiny():
    """Phrase -> run, on the smallest model that still has every part."""

    def make(text="spark", *settings, catalogue=CATALOG):
        return parse(text, catalogue, [*TINY, *settings]).run

    return make


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")
