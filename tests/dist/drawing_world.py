"""One rank of two, run as a script by test_shared_drawing.py: a run that draws as it trains, and
its last weights asked in every way that is shared.

python drawing_world.py OUT MESH     with torchrun's variables in the environment
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from train_world import TINY

from fulcrum.levers.catalog import CATALOG
from fulcrum.measure import evaluation as plan_judges
from fulcrum.measure import evaluation as run_evaluation
from fulcrum.measure import preview
from fulcrum.measure.evaluation import SEED, Held
from fulcrum.measure.features.extractor import BadImages
from fulcrum.measure.preview import PreviewPlan, previews
from fulcrum.spec.errors import TrainingFailed
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.studies import cell as evaluation_points
from fulcrum.studies.cell import Points, quality_of
from fulcrum.training.average import shared_weights
from fulcrum.training.dist.ranks import ALONE, start
from fulcrum.training.painter import Painter
from fulcrum.training.session import Order, perform
from fulcrum.training.trained_run import shared_batches, shared_sheet

warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
warnings.filterwarnings("ignore", category=FutureWarning, module="torch")

PROMPTS = [
    "a red circle",
    "a blue ring at the left.",
    "a large green square at the top left.",
    "",
    "a ring",
]
MANY = 70  # three batches of 32, 32 and 6: one process has two of them
SAMPLES = 70


def spared(put=setattr) -> None:
    """The same acts, fewer pictures, and all of them: a run of a moment has no time to spare."""
    put(preview, "LOOKS", 1)
    put(preview, "SHARE", 1000.0)
    put(run_evaluation, "VALIDATION", 96)
    put(run_evaluation, "REFERENCE", 64)


def order(out: Path, mesh: str = "fsdp") -> Order:
    run = parse("spark + ema(every=2)", CATALOG, [*TINY, "budget.images=24"]).run
    return Order(run, 0, "spark", out, System(mesh=mesh), quiet=True)


def watching(asked, found):
    """Previews of five prompts, one point on the way, and at the end every shared question."""

    def observers(built, folder, state):
        points = Points(
            built,
            folder,
            SAMPLES,
            "here",
            (0.34,),
            tell=lambda metrics, images: found.update(point=metrics),
        )
        last = [lambda look: asked(look, found) if look.state.images >= 24 else None]
        return [*previews(built, folder, state, PreviewPlan(tuple(PROMPTS))), points, *last]

    return observers


class Counting(Painter):
    """Tells how many pictures it was asked for."""

    drawn = 0

    def pictures(self, prompts, *more, **others):
        Counting.drawn += len(prompts)
        return super().pictures(prompts, *more, **others)


def counted(act):
    Counting.drawn = 0
    answer = act()
    return answer, Counting.drawn


def ask(look, found) -> None:
    built, ranks = look.built, look.built.ranks
    run, feed, bare = built.run, built.feed, built.system.bare()
    weights, parts = shared_weights(built.step, built.average, ranks), (feed.codec(), feed.text())
    prompts = [PROMPTS[number % len(PROMPTS)] for number in range(MANY)]

    def painter():
        return Counting(run, weights, *parts, bare)

    sheet, found["sheet_drawn"] = counted(
        lambda: shared_sheet(painter, run.data.size, PROMPTS, SEED, ranks)
    )
    alone = shared_sheet(painter, run.data.size, PROMPTS, SEED, ALONE)
    batches, found["batches_drawn"] = counted(
        lambda: list(shared_batches(painter(), prompts, SEED, ranks))
    )
    if ranks.first:
        found["sheet_apart"] = (sheet.int() - alone.int()).abs().max().item()
        found["sheet_contrast"] = (alone.int() - alone[:1].int()).abs().max().item()
        found["batch_rows"] = [len(images) for _, images in batches]
        expected = torch.cat(list(painter().pictures(prompts, SEED, steady=True)))
        found["batches_equal"] = torch.equal(torch.cat([images for _, images in batches]), expected)
        found["index"] = [number for index, _ in batches for number in index.tolist()]
    found["others_get"] = 0 if sheet is None else len(sheet)

    shared, whole = (Held(run, *parts, feed.root, bare, who) for who in (ranks, ALONE))
    found["held_parts"] = len(shared.parts)
    found["held"] = [held.loss(weights).model_dump() for held in (shared, whole)]

    evaluation_points.Painter = Counting
    (metrics, _), found["measured_drawn"] = counted(
        lambda: quality_of(run, weights, parts, feed.root, SAMPLES, (), bare, ranks)
    )
    found["measured"] = metrics
    if ranks.first:
        found["measured_alone"] = quality_of(run, weights, parts, feed.root, SAMPLES, (), bare)[0]

    def no_room():
        if ranks.rank == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return painter()

    found["no_room"] = shared_sheet(no_room, run.data.size, PROMPTS, SEED, ranks) is None

    def refuse(*_):
        raise BadImages("all of one colour")

    kept, plan_judges.Bench.look = plan_judges.Bench.look, refuse
    try:
        quality_of(run, weights, parts, feed.root, SAMPLES, (), bare, ranks)
    except TrainingFailed as error:
        found["collapsed"] = error.message
    plan_judges.Bench.look = kept


if __name__ == "__main__":
    torch.set_num_threads(1)
    spared()
    out, mesh = Path(sys.argv[1]), sys.argv[2]
    found: dict = {}
    with start(timeout=60.0) as ranks:
        found["result"] = perform(order(out, mesh), lambda text: None, watching(ask, found), ranks)
        (out / f"{ranks.rank}.json").write_text(json.dumps(found))
