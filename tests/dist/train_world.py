"""One rank of two, run as a script by test_train_world.py: real commands and sessions, one after
the other.

python train_world.py OUT PORT PORT ...     with RANK, LOCAL_RANK and WORLD_SIZE in the environment
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import torch

from fulcrum.cli import main
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure import evaluation as run_evaluation
from fulcrum.measure import preview
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.dist.collectives import device_mesh
from fulcrum.training.dist.ranks import start
from fulcrum.training.model import passes as room
from fulcrum.training.optim.optimizers import StoredWeights
from fulcrum.training.session import Order, perform

warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
warnings.filterwarnings("ignore", category=FutureWarning, module="torch")

TINY = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "data.source.count=64",
    "data.source.max_objects=2",
    "sample.steps=2",
    # smooth: with 1e-15 a step is a sign, and rounding turns it where a gradient is nearly zero
    "optim.rule.eps=1e-5",
)
IMAGES, FEW = 80, 40  # ten steps, and five
MUON = "spark + muon + ema(every=2)"
CODEC = "spark + repa + end_to_end_codec"  # a term with weights, and weights that all ranks hold
# the codec's gradients are a hundred times smaller; with 1e-7 rounding turned one of them
FINER = "optim.rule.eps=1e-6"
RANK = int(os.environ.get("RANK", "0"))


def order(text: str, out: Path, *settings: str, images: int = FEW) -> Order:
    finer = [FINER] if text == CODEC else []
    run = parse(text, CATALOG, [*TINY, *finer, f"budget.images={images}", *settings]).run
    return Order(run, 0, text, out, System(), quiet=True)


def command(text: str, out: Path, *settings: str) -> dict:
    """`fulcrum train` as a person types it: what it printed and how it ended."""
    words = ["train", text, "--images", str(IMAGES), "--out", str(out), "--quiet", "--json"]
    for setting in (*TINY, *settings):
        words += ["--set", setting]
    heard, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(told):
        try:
            main(words)
        except SystemExit as ended:
            return {"code": ended.code, "out": heard.getvalue(), "err": told.getvalue()}
    raise AssertionError("a command always exits")


def session(asked: Order, at: int | None = None, act=None, passes: int = 1) -> dict:
    """A session in which rank 1 does something after `at` images; its four rows go through the
    blocks in `passes`."""
    room.CACHED_TOKENS = 16 * 4 // passes
    said: list[str] = []

    def observers(built, folder, state):
        def look(seen):
            if seen.state.images == at and RANK == 1:
                act(seen)

        return [look]

    try:
        with start(timeout=60.0) as ranks:
            return {"result": perform(asked, said.append, observers, ranks), "said": said}
    except FulcrumError as error:
        return {
            "error": type(error).__name__,
            "message": str(error),
            "said": said,
            "code": error.exit_code,
        }


def stop(seen) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def poison(seen) -> None:
    encoder = seen.built.feed.ready[0].encoder
    encoder.latents.stored = lambda ids, pinned=False: torch.full((len(ids), 8, 8, 8), torch.nan)


def fail(seen) -> None:
    raise FulcrumError("rank 1 has had enough")


def rounding() -> dict:
    """Shards of an odd number of rows, rounded at random, are the shards of the whole rounded at
    random."""
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = torch.randn(61, 7, generator=torch.Generator().manual_seed(0))
    store = StoredWeights(torch.bfloat16, seed=3)
    with start(timeout=60.0) as ranks:
        parts = distribute_tensor(
            whole.clone(), device_mesh("fsdp", ranks), [Shard(0)], src_data_rank=None
        )
        store.keep({"w": whole}, at=8)
        store.keep({"w": parts}, at=8)
        return {"same": torch.equal(parts.full_tensor(), whole), "local": parts.to_local().shape[0]}


def scenarios(out: Path):
    """(name, what to do), in an order that ends with the one that breaks the group."""
    yield "adamw", lambda: command("spark + ema(every=2)", out / "pair")
    yield "again", lambda: command("spark + ema(every=2)", out / "pair")
    yield "muon", lambda: session(order(MUON, out / "pair"))
    yield "codec", lambda: session(order(CODEC, out / "pair", images=24))
    yield "goes_on", lambda: session(order(MUON, out / "begun_alone"))
    yield "stopped", lambda: session(order(MUON, out / "begun_together"), 24, stop)
    yield "odd", lambda: command("spark", out / "odd", "budget.batch=5")
    yield "not_finite", lambda: session(order("spark", out / "poisoned"), 8, poison)
    skipping = order("spark", out / "poisoned", "optim.not_finite=skip")._replace(most_skipped=0.5)
    yield "skipped", lambda: session(skipping, 24, poison)
    yield "rounding", rounding
    yield "passes", lambda: session(order(MUON, out / "passes"), passes=2)
    yield "failed", lambda: session(order("spark", out / "failed"), 8, fail)


def run(out: Path, ports: list[str]) -> dict:
    found: dict = {"seconds": {}}
    for (name, act), port in zip(scenarios(out), ports, strict=True):
        os.environ["MASTER_PORT"] = port  # a group of its own for each
        begun = time.process_time()
        found[name] = act()
        found["seconds"][name] = round(time.process_time() - begun, 2)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    # the same acts, fewer pictures
    preview.LOOKS, run_evaluation.VALIDATION, run_evaluation.REFERENCE = 1, 64, 64
    place = Path(sys.argv[1])
    (place / f"{RANK}.json").write_text(json.dumps(run(place, sys.argv[2:])))
