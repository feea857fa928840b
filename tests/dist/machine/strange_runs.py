"""Real runs on the strange device, started as a script by test_strange.py: it prints one JSON line
of what was found.

    python strange_runs.py runs|levers OUT

A spark and a pocket with several levers, on both devices: three steps of the loop, pictures drawn
with the weights, the held-out loss. Sessions with previews, checkpoint and resume, measured at
their end. Every lever: its witness and a step.
"""

import json
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import strange
import torch
from pydantic import AfterValidator
from torch import Tensor

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.laws import TINY, ground_of, tried
from fulcrum.measure import evaluation as run_evaluation
from fulcrum.measure import preview
from fulcrum.measure.evaluation import Held, measure
from fulcrum.measure.preview import previews
from fulcrum.spec.edit import key, put_all
from fulcrum.spec.errors import TrainingFailed
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import RunSpec, System
from fulcrum.training import checkpoint
from fulcrum.training import feed as feeding
from fulcrum.training.average import drawn_weights
from fulcrum.training.build import assemble, require_witness
from fulcrum.training.checkpoint import State, weights_hash
from fulcrum.training.feed import Feed
from fulcrum.training.loop import after, train
from fulcrum.training.observers import Every, ProgressLine, Recorder
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights

warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")


def known(**said: Any) -> System:
    """System itself knows cpu and cuda only."""
    return System().model_copy(update=said)


class StateOfAnyDevice(checkpoint.StateFile):
    system: Annotated[Any, AfterValidator(lambda said: known(**said))]


checkpoint.StateFile = StateOfAnyDevice  # what a checkpoint says of its system
FAR = known(device=strange.NAME)
# batches: a GPU copies them from pinned memory, and nobody waits
PINNED = {"training/dist/machine.py moved"}
PROMPTS = ["a large red circle on the left", "a small blue square"]
POCKET = "pocket + muon + repa + tread + ema(every=2)"
# is trained too, through blocks that share the denoiser's memory
CODEC = "spark + repa + end_to_end_codec"
# with 1e-15 a step is a sign, and rounding turns it where a gradient is nearly zero
SMOOTH = "optim.rule.eps=1e-5"
SMALL = (*TINY, "data.source.count=64", SMOOTH)
SESSION = parse("spark + ema(every=2) + muon", CATALOG, [*TINY, SMOOTH, "budget.images=24"]).run
OUT = Path(sys.argv[2])
# pictures: what is tried is where they are, not how good
run_evaluation.REFERENCE, run_evaluation.VALIDATION = 128, 64
preview.LOOKS, preview.SHOWN = 1, 2


def trained(run: RunSpec, system: System) -> dict[str, Any]:
    """Three steps and what is done with a run: weights, pictures, held-out loss, all on the CPU at
    the end."""
    built = assemble(run, 0, system, Feed(run, 0, OUT / "cache", device=system.device))
    begun = {
        name: value.cpu().clone()
        for name, value in drawn_weights(built.step, built.average).items()
    }
    train(built, State(), [], after(3))
    draw = built.feed.at(3 * run.budget.batch)[1]
    weights = drawn_weights(built.step, built.average)
    painter = Painter(run, weights, built.feed.codec(), built.feed.text(), system.bare())
    pictures = torch.cat(list(painter.pictures(PROMPTS, 0, np.arange(2))))
    held = Held(run, built.feed.codec(), built.feed.text(), OUT / "cache", system.bare()).loss(
        weights
    )
    return {
        "begun": begun,
        "weights": {name: value.cpu() for name, value in weights.items()},
        "where": places(built),
        "pictures": pictures,
        "loss": held.loss,
        "draw": {
            name: value.cpu()
            for name, value in {**draw._asdict(), **draw.extra}.items()
            if isinstance(value, Tensor)
        },
    }


def places(built: Any) -> list[str]:
    return sorted(
        {
            value.device.type
            for value in (*built.step.parameters(), *built.optimizer.state().values())
        }
    )


def stepped(lever: Any) -> dict[str, Any]:
    """One lever on the ground that it fits: it is on, and a step of it computes."""
    run = lever.edit(ground_of(lever, CATALOG).run)
    built = assemble(run, 0, FAR, Feed(run, 0, OUT / "cache", device=strange.NAME))
    require_witness([lever], built)
    train(built, State(), [], after(1))
    strange.WAITS.clear()
    train(built, State(run.budget.batch), [], after(1))
    return {"where": places(built), "waits": sorted(set(strange.WAITS) - PINNED)}


def compared(run: RunSpec) -> dict[str, Any]:
    near = trained(run, System())
    with strange.Strange():
        far = trained(run, FAR)
    way = sum(
        float((near["weights"][name].double() - one.double()).square().sum())
        for name, one in near["begun"].items()
    )
    off = sum(
        float((far["weights"][name].double() - one.double()).square().sum())
        for name, one in near["weights"].items()
    )
    same = (near["pictures"].int() - far["pictures"].int()).abs().max()
    return {
        "where": far["where"],
        "apart": (off / max(way, 1e-30)) ** 0.5,
        "pictures": int(same),
        "loss": abs(far["loss"] - near["loss"]) / near["loss"],
        "draws": {
            name: float((value.double() - far["draw"][name].double()).abs().max())
            for name, value in near["draw"].items()
        },
    }


def poisoned(run: RunSpec, how: str, system: System, every: int) -> dict[str, Any]:
    """Eight steps, every `every`-th on pixels that are no numbers: what is learned, how many are
    skipped, what is said."""
    run = put_all(run, [("optim.not_finite", how), ("budget.images", 8 * run.budget.batch)])
    built = assemble(run, 0, system, Feed(run, 0, OUT / "cache", device=system.device))
    built.feed.at(0)
    latents, calls = built.feed.ready[0].encoder.latents, []
    read = latents.stored

    def stored(ids: Any, pinned: bool = False) -> Tensor:
        calls.append(ids)
        return torch.full_like(read(ids), torch.nan) if len(calls) % every == 0 else read(ids)

    latents.stored, seen = stored, []
    try:
        state = train(built, State(), [seen.append], lambda: False)
    except TrainingFailed as error:
        return {
            "said": error.message,
            "seen": len(seen),
            "weights": weights_hash(built.step.state_dict()),
        }
    average = built.average.state()
    steps = int(average["_steps"]) if "_steps" in average else 0
    return {
        "skipped": state.skipped,
        "weights": drawn_weights(built.step, built.average),
        "averaged": steps,
    }


def refused(run: RunSpec) -> dict[str, Any]:
    """Bad steps there and here: refused alike."""
    near = poisoned(run, "skip", System(), 3)
    with strange.Strange():
        far = poisoned(run, "skip", FAR, 3)
        stopped = poisoned(run, "stop", FAR, 3)
        two = assemble(run, 0, FAR, Feed(run, 0, OUT / "cache", device=strange.NAME))
        train(two, State(), [], after(2))
        good = weights_hash(two.step.state_dict())
    apart = max(
        float((value - far["weights"][name].cpu()).abs().max())
        for name, value in near["weights"].items()
    )
    return {
        "skipped": [near["skipped"], far["skipped"]],
        "averaged": [near["averaged"], far["averaged"]],
        "apart": apart,
        "stopped": [stopped["said"], stopped["seen"]],
        "as it was": stopped["weights"] == good,
    }


def waits(run: RunSpec) -> dict[str, list[str]]:
    """Where the host waits for the device in steps four to six, with the observers of a session:
    every crossing back."""
    built = assemble(run, 0, FAR, Feed(run, 0, OUT / "cache", device=strange.NAME))
    folder = OUT / "waits"
    folder.mkdir(parents=True)
    watching = [
        Recorder(folder / "record.jsonl", 0),
        ProgressLine("waits", 0),
        Every(10**9, lambda look: None),
    ]
    train(built, State(), watching, after(3))
    strange.WAITS.clear()
    train(built, State(3 * run.budget.batch), watching, after(3))
    return {place: count for place, count in strange.WAITS.items() if place not in PINNED}


def told(make: Any, *args: Any) -> Any:
    try:
        return make(*args)
    except Exception as error:
        return {
            "error": (
                f"{type(error).__name__}:"
                f" {error}\n{''.join(traceback.format_tb(error.__traceback__)[-4:])}"
            )
        }


def session(out: Path, system: System, stop: int | None = None) -> str:
    """The hash of a whole run's weights; `stop`: lost after some images and started again, from its
    checkpoint."""
    if not (out / "cache").exists():
        out.mkdir(parents=True, exist_ok=True)
        (out / "cache").symlink_to(OUT / "cache", target_is_directory=True)

    def lost(look: Any) -> None:
        if look.state.images >= stop:
            raise InterruptedError

    def watchers(built: Any, folder: Any, state: State) -> list[Any]:
        return [*previews(built, folder, state), lost] if stop else previews(built, folder, state)

    try:
        return str(
            perform(Order(SESSION, 0, "strange", out, system, quiet=True), quiet, watchers)[
                "weights_sha256"
            ]
        )
    except InterruptedError:
        return session(out, system)


def quiet(text: str) -> None:
    pass


def measured(out: Path, system: System) -> float:
    """A metric of a session's end, as `fulcrum measure` finds it: from its saved weights, with
    networks built anew."""
    weights = trained_weights(RunFolder(out / key(SESSION, 0)))
    parts = SESSION.encode.codec.build(None), SESSION.encode.text.build(None)
    return measure(SESSION, Painter(SESSION, weights, *parts, system.bare()), OUT / "cache", 64)[
        "mmd"
    ].value


def forgotten(run: RunSpec) -> str:
    """The same with the one move left out: the device must refuse it."""
    kept, feeding.moved = feeding.moved, lambda value, device: value
    try:
        return str(told(trained, run, FAR).get("error", "nothing was refused"))
    finally:
        feeding.moved = kept


def runs() -> dict[str, Any]:
    spark, pocket, codec = (parse(text, CATALOG, SMALL).run for text in ("spark", POCKET, CODEC))
    found = {
        "spark": told(compared, spark),
        "pocket": told(compared, pocket),
        "codec": told(compared, codec),
        "refused": told(refused, pocket),
        "near": session(OUT / "near", System()),
        "near measured": measured(OUT / "near", System()),
    }
    with strange.Strange():
        return {
            **found,
            "forgotten": forgotten(spark),
            "waits": told(waits, pocket),
            "far": told(session, OUT / "far", FAR),
            "resumed": told(session, OUT / "resumed", FAR, 16),
            "far measured": told(measured, OUT / "far", FAR),
        }


def levers() -> dict[str, Any]:
    with strange.Strange():
        return {name: told(stepped, tried(kind, OUT)) for name, kind in CATALOG.levers.items()}


if __name__ == "__main__":
    strange.register()
    torch.set_num_threads(1)
    print(json.dumps({"runs": runs, "levers": levers}[sys.argv[1]]()))
