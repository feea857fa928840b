"""One rank of two or four, run as a script by test_meshes.py: sessions on several meshes, one after
the other.

python mesh_world.py OUT NAME:PORT[:FOLDER[:IMAGES]] ...

RANK, LOCAL_RANK and WORLD_SIZE are in the environment.

A session is kept in OUT/FOLDER, by default OUT/NAME, and is stopped after so many images.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path

import torch
from train_world import TINY

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training.dist.ranks import start
from fulcrum.training.session import Order, perform

warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
warnings.filterwarnings("ignore", category=FutureWarning, module="torch")

# matrices with owners, an average, a route, a term with weights
ALL = "spark + muon + ema(every=2) + tread + repa"
IMAGES = 40  # five steps of eight
CASES = {  # name -> what the system is besides
    "ddp": {"mesh": "ddp"},
    "fsdp": {"mesh": "fsdp"},
    "hsdp": {"mesh": "2x2"},
    "microbatch": {"mesh": "ddp", "microbatch": 1, "recompute": "selective"},
    "full": {"mesh": "fsdp", "microbatch": 2, "recompute": "full"},
    "bf16": {"mesh": "fsdp"},
    "saving": {"mesh": "fsdp", "save_every": 8},
    # the second process finds no room for its second checkpoint
    "full_disk": {"mesh": "fsdp", "save_every": 8},
}


def order(out: Path, name: str = "fsdp", images: int = IMAGES) -> Order:
    more = ("precision.compute=bf16",) if name == "bf16" else ("precision.compute=fp32",)
    run = parse(ALL, CATALOG, [*TINY, *more, f"budget.images={images}"]).run
    return Order(run, 0, ALL, out, System(**CASES[name]), quiet=True)


def fill_the_disk() -> None:
    """From the second checkpoint on nothing can be written."""
    real, written = checkpoint.write_tensors, []

    def write(path, tensors, rows):
        written.append(path)
        if len(written) > 3:
            raise OSError(28, "No space left on device")
        return real(path, tensors, rows)

    checkpoint.write_tensors = write


def session(name: str, out: Path, stop: int | None = None) -> dict:
    kinds: dict[str, str] = {}

    def look(seen):
        if seen.state.images == stop and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)

    def observers(built, folder, state):
        for parameter, value in built.step.named_parameters():
            kinds[parameter] = str(getattr(value, "placements", "whole"))
        return [look]

    said: list[str] = []
    if name == "full_disk" and os.environ["RANK"] == "1":
        fill_the_disk()
    try:
        with start(timeout=60.0) as ranks:
            result = perform(order(out, name), said.append, observers, ranks)
            return {"result": result, "kinds": kinds, "said": said}
    except FulcrumError as error:
        return {"error": type(error).__name__, "message": str(error), "said": said}


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, found = Path(sys.argv[1]), {}
    for asked in sys.argv[2:]:
        case, port, folder, stop = [*asked.split(":"), "", ""][:4]
        os.environ["MASTER_PORT"] = port  # a group of its own for each
        found[folder or case] = session(case, place / (folder or case), int(stop) if stop else None)
    (place / f"{os.environ['WORLD_SIZE']}_{os.environ['RANK']}.json").write_text(json.dumps(found))
