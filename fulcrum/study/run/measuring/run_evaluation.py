"""Evaluation of a run: held-out prompts drawn and measured, and the loss at fixed times and noises.

B pictures.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.data.stores.finish_import import FEWEST_TO_JUDGE
from fulcrum.measure.card import Measured, Sampling
from fulcrum.measure.features.image_checks import BadImages
from fulcrum.measure.metrics.attributes import NEED_SCENES
from fulcrum.measure.metrics.validation_loss import TimeBin, ValidationLoss
from fulcrum.networks.batch import Encoder
from fulcrum.networks.cache import Cache
from fulcrum.spec.edit import canonical, digest, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import tree
from fulcrum.spec.run import RunSpec, System
from fulcrum.spec.stage import phases
from fulcrum.study.run.measuring.plan_judges import Bench, Sources, measures, require_impartial
from fulcrum.training.average import codec_part, fill
from fulcrum.training.build import Context, build
from fulcrum.training.checkpoint import weights_hash
from fulcrum.training.dist.collectives import total
from fulcrum.training.dist.machine import moved
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.dist.shard import bf16_products
from fulcrum.training.feed import stored
from fulcrum.training.flow.fillers import CFG, UniformTime
from fulcrum.training.flow.noise import Draws
from fulcrum.training.model.fast_drawing import FrozenRunner
from fulcrum.training.painter import BATCH, Painter
from fulcrum.training.trained_run import shared_batches

REFERENCE = 4096  # real pictures that generated ones are held against
VALIDATION = 512  # held-out pictures of the validation loss
FAR_TOKENS = 2**15  # of the held-out pictures that a device other than the CPU has at a time
BINS = 4  # of time
SEED = 20_260  # of all evaluation draws: the same for every run


class Prompts(NamedTuple):
    """Held-out captions: what to draw, and what must then be seen, where the source knows it."""

    texts: list[str]
    scenes: Any  # None: the user's own pictures

    @property
    def hash(self) -> str:
        return digest(self.texts)[:16]


def _source(run: RunSpec, split: str, count: int) -> Any:
    """Another split of the run's own world, real and truly captioned, whatever the run trains on."""
    return run.data.source.held_out(split, count).build(Context(run, 0, System()))


def prompts(run: RunSpec, count: int) -> Prompts:
    """Captions of the reference pictures, in the style that the run is evaluated with; where there are fewer, they come
    again, each time with another noise."""
    source = _source(run, "reference", max(count, REFERENCE))
    index = np.arange(count) % len(source)
    scenes = source.scenes(index) if _knows_scenes(source) else None
    return Prompts(source.prompts(run.sample.prompts.build(None), index), scenes)


def _knows_scenes(source: Any) -> bool:
    return bool(getattr(source, "has_scenes", True))


def can_measure(run: RunSpec, metric: str) -> bool:
    """Does this run's source tell what the metric asks?"""
    if "." in metric:
        return measures(_source(run, "reference", REFERENCE), metric)
    return metric not in NEED_SCENES or _knows_scenes(run.data.source)


def require_measurable(run: RunSpec, primary: str | None = None) -> None:
    """Refuse before training what could not be judged afterwards: too few held-out pictures, a metric that needs scenes."""
    source = _source(run, "reference", REFERENCE)
    _ = _source(run, "validation", VALIDATION)
    if len(source) < FEWEST_TO_JUDGE:
        raise BadInput(
            f"{len(source)} reference pictures are held out; distances need at least {FEWEST_TO_JUDGE}",
            "import more pictures, or with a larger --hold-out",
        )
    if primary is not None and not can_measure(run, primary):
        asks = (
            "for pictures' names: captions called short"
            if "." in primary
            else "what is seen where, which only the embedded world knows"
        )
        raise BadInput(f"'{primary}' asks {asks}", "choose another primary metric: mmd, frechet, validation_loss")


def bench(run: RunSpec, judges: Sequence[str], cache: Path, device: str = "cpu") -> Bench:
    """The judges of this run's pictures, with the real pictures at the run's size to judge by."""
    require_measurable(run)
    require_impartial(run, judges)
    reference = _source(run, "reference", REFERENCE)
    named = (_source(run, "train", 4 * REFERENCE), _source(run, "validation", REFERENCE)) if judges else ()
    return Bench(("embedded", *judges), Sources(reference, *named), cache, device, REFERENCE)


def measure(
    run: RunSpec,
    painter: Painter,
    cache: Path,
    count: int,
    progress: Callable[[int], None] | None = None,
    judges: Sequence[str] = (),
    ranks: Ranks = ALONE,
) -> dict[str, Measured]:
    """Draw `count` held-out prompts and measure them, on the painter's device. Many processes draw together, and the first
    judges; the others get no numbers."""
    wanted = prompts(run, count)
    drawn = shared_batches(painter, wanted.texts, SEED, ranks)
    if not ranks.first:
        deque(drawn, maxlen=0)
        return {}
    judging = bench(run, judges, cache, painter.device)
    guide = run.sample.guide
    sampling = Sampling(
        sampler=f"euler, shift {run.sample.shift:g}",
        steps=run.sample.steps,
        guidance=guide.scale if isinstance(guide, CFG) else str(guide),
        prompts=wanted.hash,
        noise=f"keyed by (seed {SEED}, image index)",
    )
    try:
        for index, images in drawn:
            judging.look(images, index, None if wanted.scenes is None else wanted.scenes.take(index).grid())
            if progress:
                progress(int(index[-1]) + 1)
    except BadImages:
        if ranks.size > 1:
            deque(drawn, maxlen=0)  # the others still draw for this process
        raise
    return judging.compute(sampling, count)


def loss_of(run: RunSpec) -> dict[str, str]:
    """What a run's held-out loss is a loss of. Runs that differ in here have no losses to compare: the loss looks at all
    times alike, so a run that was trained on other times or weights is judged by what it was not asked for."""
    times = sorted({canonical(phase.run.flow.time) for phase in phases(run)})
    flow = run.flow
    objective = {"predict": flow.predict, "weight": flow.weight, "time": times, "noise_scale": flow.noise_scale}
    codec = run.encode.codec
    return {
        "latents": digest([tree(codec, identity=True), codec.hashes()])[:16],
        "objective": canonical(objective),
        "prompts": canonical(run.sample.prompts),
    }


def rows_at_once(run: RunSpec, device: str) -> int:
    """Held-out pictures that are looked at together. A GPU has the training's weights beside them: of large pictures it is
    given fewer."""
    if device == "cpu":
        return BATCH
    return next(rows for rows in (BATCH, 16, 8, 4, 2, 1) if rows * run.tokens <= FAR_TOKENS or rows == 1)


class Held:
    """The loss on held-out pictures, each with its own fixed time and noise; looks at weights, never changes them.

    Between two looks all of it is in the host's memory: a device needs its own for the training, and of pictures of 1024
    pixels the batches alone are 14 GB."""

    def __init__(
        self, run: RunSpec, codec: Any, text: Any, cache: Path, system: System | None = None, ranks: Ranks = ALONE
    ) -> None:
        """Many processes ask it together: each looks at its share of the pictures, and all get the loss."""
        self.ranks, self.run = ranks, put(run, "data.stages", ())
        source, chooser = _source(run, "validation", VALIDATION), run.sample.prompts.build(None)
        geometry = run.model.condition.geometry
        encoder = Encoder(source, chooser, SEED, stored(run, codec), text, Cache(cache), None, geometry)
        side = run.data.size // run.encode.codec.stride
        draws = Draws(
            seed=SEED,
            time=UniformTime().build(None),
            shape=(run.encode.codec.channels, side, side),
            drop_text=0.0,
            noise_scale=run.flow.noise_scale,
        )
        system = system or System()
        self.device, rows = system.device, rows_at_once(run, system.device)
        firsts = range(0, VALIDATION, rows)
        self.t = torch.cat([draws.times(first, rows) for first in firsts])
        self.parts = {
            first: (encoder.rows(encoder.ids(first, rows)), draws.at(first, rows))
            for first in firsts[ranks.rank :: ranks.size]
        }
        # An eager copy: the trained one is left alone. How it multiplies is the device's, where it waits is the host.
        waiting = system.model_copy(update={"device": "cpu", "bf16": bf16_products(system)})
        self.step = build(self.run, 0, waiting)
        if system.device == "cpu":
            self.step.backbone.run_block = FrozenRunner()
        about = loss_of(run)
        self.about = {
            "latents": about["latents"],
            "objective": about["objective"],
            "pictures": source.fingerprint()[:16] + "/" + about["prompts"],
            "draws": f"seed {SEED}",
        }

    @torch.no_grad()
    def loss(self, weights: Mapping[str, Tensor]) -> ValidationLoss:
        tuned = codec_part(weights)  # a codec that was trained with the run is like no other
        latents = {"latents": f"{self.about['latents']}/{weights_hash(tuned)[:16]}"} if tuned else {}
        t, losses = self.t, torch.zeros(len(self.t), dtype=torch.float64)
        try:
            fill(self.step.to(self.device), weights)
            for first, part in self.parts.items():
                batch, draw = moved(part, self.device)
                view = self.step.look(batch, draw)
                error = (view.v - view.target).square().flatten(1).mean(1)
                losses[first : first + len(error)] = error.cpu().double()
        finally:
            self.step.to("cpu")
        losses = total(losses, self.ranks).cpu()  # each picture is one process's, and nothing on the others: exact
        edges = torch.linspace(0, 1, BINS + 1).tolist()
        bins = []
        for low, high in zip(edges, edges[1:], strict=False):
            inside = (t >= low) & ((t < high) | (high == 1.0))
            bins.append(TimeBin(low=low, high=high, n=int(inside.sum()), loss=float(losses[inside].mean())))
        return ValidationLoss(
            n=len(losses), loss=float(losses.mean()), sd=float(losses.std()), bins=tuple(bins), **(self.about | latents)
        )
