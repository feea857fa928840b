"""From a run's description to its working parts, in one order and in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import failed, home
from fulcrum.spec.record import Filler
from fulcrum.spec.run import RunSpec, System
from fulcrum.spec.stage import Phase, phases, route_of, terms_of
from fulcrum.training.average import CODEC, Average, fill
from fulcrum.training.dist.collectives import device_mesh
from fulcrum.training.dist.machine import give_back_gathered, keep_freed_memory
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.dist.shard import DTYPES, bf16_products
from fulcrum.training.feed import Feed
from fulcrum.training.model.parameters import draw, initialise, roles, starts
from fulcrum.training.model.passes import Passes
from fulcrum.training.model.transformer import (
    Backbone,
    OpDtypes,
    compile_backbone,
    compile_blocks,
    emulate_bf16,
    recompute_blocks,
)
from fulcrum.training.optim.optimizers import Rule
from fulcrum.training.optim.schedule import Schedule, schedule_of
from fulcrum.training.step import Step, stem_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


WATCH_EVERY = 50  # steps between two counts of stalled updates


class Context(NamedTuple):
    """What a filler's build may ask for."""

    run: RunSpec
    seed: int
    system: System
    parameters: Mapping[str, nn.Parameter] = {}
    roles: Mapping[str, str] = {}
    ranks: Ranks = ALONE
    rates: Mapping[str, float] = {}  # parameter -> multiple of optim.lr, where it is not 1
    runs: Path | None = None  # the folder of all runs, for a start from one of them

    def dtype(self, slot: str) -> torch.dtype:
        return DTYPES[getattr(self.run.precision, slot)]

    @property
    def emulates(self) -> bool:
        """Are products in bf16 made of rounded fp32 numbers?"""
        return self.run.precision.compute == "bf16" and bf16_products(self.system) == "emulated"


class Built(NamedTuple):
    """A run, ready to go."""

    run: RunSpec
    seed: int
    system: System
    phases: tuple[Phase, ...]
    step: Step
    feed: Feed
    optimizer: Rule
    schedule: Schedule
    average: Average
    #: first row and number of rows of each backward pass of this process
    passes: tuple[tuple[int, int], ...]
    gradient_dtype: torch.dtype = torch.float32
    ranks: Ranks = ALONE

    def weights(self, images: int) -> dict[str, float]:
        """Which terms are on at this point, and how much each counts."""
        return self.feed.weights(images)


def build(
    run: RunSpec,
    seed: int = 0,
    system: System | None = None,
    start: Mapping[str, Tensor] | None = None,
    ranks: Ranks = ALONE,
) -> Step:
    """The Step of a run: `losses = step(batch, draw)`. Weights come from (seed, parameter name), or
    from `start`."""
    system = system or System()
    ctx = Context(run, seed, system, ranks=ranks)
    # no rank of many ever holds the whole
    with torch.device("meta") if ranks.size > 1 else nullcontext():
        backbone = backbone_of(ctx)
    step = Step(
        backbone,
        run.flow.predict.build(ctx),
        {name: _term(term, ctx) for name, term in sorted(terms_of(run).items())},
        {term.name: term.weight for term in run.terms},
        lanes=system.threads if system.device == "cpu" and ranks.size == 1 else 1,
        loss=ctx.dtype("loss"),
    )
    stem = stem_of(backbone, max(step.frozen_taps)) if step.frozen_taps else None
    if ranks.size > 1:
        mesh = device_mesh(system.mesh, ranks)
        _shard(step, ctx, mesh)
        if stem is not None:
            _shard_stem(stem, ctx, mesh)
    else:
        initialise(step, seed)
    if run.encode.codec.trained:
        step.codec = run.encode.codec.build(ctx)  # begins as it was shipped, not from a key
    if start is not None:
        fill(step, start, begins=True)
    step.to(system.device)
    step.stem = None if stem is None else Passes(stem.to(system.device), step.denoise.lanes)
    step.refresh()
    if ranks.size > 1:
        return step
    for model in step.models():
        _recompute(model, system)
        if system.compile:
            compile_backbone(model, step.denoise.lanes)
    return step


def _recompute(model: Backbone, system: System) -> None:
    if system.recompute != "none":
        recompute_blocks(model, every=1 if system.recompute == "full" else 2)


def _shard(step: Step, ctx: Context, mesh: DeviceMesh) -> None:
    """Many processes: each begins with its own slices of the weights that one process would begin
    with."""
    from fulcrum.training.dist.shard import forget, prepare

    how, backbone = starts(step), step.backbone
    forget(step.terms)  # built with memory: they may hold frozen networks
    prepare(
        step,
        backbone.blocks,
        ctx.ranks,
        lambda name, shape: draw(name, shape, how[name], ctx.seed),
        ctx.dtype("reduce"),
        recompute=lambda: _recompute(backbone, ctx.system),
        compile=(lambda: compile_blocks(backbone)) if ctx.system.compile else None,
        mesh=mesh,
        gather=ctx.dtype("compute"),
    )


def _shard_stem(stem: Backbone, ctx: Context, mesh: DeviceMesh) -> None:
    """Sharded as the denoiser is, whose slices it takes over before each step."""
    from fulcrum.training.dist.shard import prepare

    prepare(
        stem,
        stem.blocks,
        ctx.ranks,
        lambda _, shape: torch.zeros(shape),
        ctx.dtype("reduce"),
        recompute=lambda: _recompute(stem, ctx.system),
        compile=(lambda: compile_blocks(stem)) if ctx.system.compile else None,
        mesh=mesh,
        gather=ctx.dtype("compute"),
    )


def assemble(
    run: RunSpec,
    seed: int,
    system: System,
    feed: Feed,
    start: Mapping[str, Tensor] | None = None,
    ranks: Ranks = ALONE,
) -> Built:
    """Everything that training needs: the step, its data and draws, its optimizer, schedule and
    average."""
    _require_whole_chunks(run, system, ranks)
    if feed.device != system.device:
        raise ValueError(
            f"the feed hands batches over on '{feed.device}', the step computes on"
            f" '{system.device}': give both one device"
        )
    if system.device == "cpu":
        keep_freed_memory()
    step = build(run, seed, system, start, ranks)
    named = dict(step.named_parameters())
    if system.device == "cpu":
        give_back_gathered(sum(parameter.numel() for parameter in named.values()), ranks.size)
    slower = (
        {}
        if step.codec is None
        else {name: step.codec.rate for name in named if name.startswith(CODEC)}
    )
    ctx = Context(run, seed, system, named, roles(step), ranks, slower)
    optimizer = run.optim.rule.build(ctx)
    # those that no rule updates are stored as the others are
    optimizer.store.start(dict(step.backbone.named_parameters()))
    average = run.average.build(ctx)
    average.start(step.backbone)
    mine = ranks.rows(run.budget.batch)
    rows = system.microbatch or mine.stop - mine.start
    return Built(
        run,
        seed,
        system,
        phases(run),
        step,
        feed,
        optimizer,
        schedule_of(run),
        average,
        passes=tuple(
            (first, min(rows, mine.stop - first)) for first in range(mine.start, mine.stop, rows)
        ),
        gradient_dtype=ctx.dtype("gradient"),
        ranks=ranks,
    )


def require_witness(levers: Iterable[Any], built: Built) -> None:
    """Every lever says that it is on in this built run, or nothing is trained. A lever limited to a
    stage is not asked."""
    for lever in levers:
        if not hasattr(lever, "witness"):
            continue
        try:
            on = lever.witness(built)
        except BadInput:
            raise
        except Exception as error:
            raise failed(error, f"the witness of '{lever.name}' failed") from error
        if not on:
            raise BadInput(
                f"'{lever.name}'{home(lever)} is not on in the run it was meant to change",
                "its edit has no effect on what is built: correct the lever",
            )


def backbone_of(ctx: Context) -> Backbone:
    """The denoiser that a run describes, its weights not yet drawn."""
    run, model = ctx.run, ctx.run.model
    condition = model.condition.build(ctx)
    backbone = Backbone(
        channels=run.encode.codec.channels,
        patch=model.patch,
        width=model.width,
        depth=model.depth,
        heads=model.heads,
        text_width=run.encode.text.width,
        mlp_ratio=model.mlp_ratio,
        theta=model.theta,
        bottleneck=model.bottleneck,
        route=route_of(run).build(ctx),
        condition=(
            None
            if condition is None
            else _module(condition, model.condition, "condition", "x_t, t and size")
        ),
        compute=ctx.dtype("compute"),
        ops=OpDtypes(*(ctx.dtype(name) for name in OpDtypes._fields)),
    )
    model.learned.build(ctx)(backbone)
    if ctx.emulates:
        emulate_bf16(backbone)
    return backbone


def _term(term: Any, ctx: Context) -> nn.Module:
    module: nn.Module = _module(term.build(ctx), term, f"term '{term.name}'", "a view")
    return module


def _module(built: Any, filler: Filler, name: str, takes: str) -> Any:
    if not isinstance(built, nn.Module):
        raise BadInput(
            f"the build of the {name}{home(filler)} gave {type(built).__name__}, not a torch"
            " module",
            f"return a torch.nn.Module whose forward takes {takes}: docs/write-a-lever.md",
        )
    return built


def _require_whole_chunks(run: RunSpec, system: System, ranks: Ranks) -> None:
    """A term that compares samples does so inside chunks of its own size: a backward pass must hold
    whole ones."""
    own = run.budget.batch // ranks.size
    one_pass = min(system.microbatch or own, own)
    for name, term in sorted(terms_of(run).items()):
        chunk = term.rows_compared()
        for what, count in (
            ("budget.batch", run.budget.batch),
            ("a process", own),
            ("a backward pass", one_pass),
        ):
            if count % chunk:
                raise BadInput(
                    f"the term '{name}' compares chunks of {chunk} rows, but {what} has {count}",
                    f"choose a multiple of {chunk}, or another chunk",
                )
