"""From a run's description to its working parts, in one order and in one place."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fulcrum.model.backbone import Backbone, compile_blocks, recompute_blocks
from fulcrum.model.init import initialise
from fulcrum.model.roles import roles
from fulcrum.optim.schedule import Schedule
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import Phase, phases
from fulcrum.spec.system import System
from fulcrum.train.feed import Feed
from fulcrum.train.state import State
from fulcrum.train.step import Step

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WATCH_EVERY = 50                                             # steps between two counts of stalled updates


class Context(NamedTuple):
    """What a filler's build may ask for."""

    run: RunSpec
    seed: int
    system: System
    parameters: Mapping[str, nn.Parameter] = {}
    roles: Mapping[str, str] = {}

    def dtype(self, slot: str) -> torch.dtype:
        return DTYPES[getattr(self.run.precision, slot)]


class Built(NamedTuple):
    """A run, ready to go."""

    run: RunSpec
    seed: int
    system: System
    phases: tuple[Phase, ...]
    step: Step
    feed: Feed
    optimizer: Any
    schedule: Schedule
    average: Any

    def weights(self, images: int) -> dict[str, float]:
        """Which terms are on at this point, and how much each counts."""
        run = next((phase.run for phase in self.phases if images < phase.end), self.phases[-1].run)
        weights = {term.name: term.weight_at(images / self.run.budget.images) for term in run.terms}
        return {name: weight for name, weight in weights.items() if weight}

    def watches(self, state: State) -> bool:
        return (state.images // self.run.budget.batch) % WATCH_EVERY == 0


def build(run: RunSpec, seed: int = 0, system: System | None = None, start: Mapping[str, Tensor] | None = None) -> Step:
    """The Step of a run: `losses = step(batch, draw)`. Weights come from (seed, parameter name), or from `start`."""
    system = system or System()
    ctx = Context(run, seed, system)
    backbone = Backbone(channels=run.encode.codec.channels, **shape_of(run), route=_route(run, ctx),
                        compute=ctx.dtype("compute"))
    step = Step(backbone, run.flow.predict.build(ctx), {term.name: term.build(ctx) for term in _terms(run)},
                {term.name: term.weight for term in run.terms})
    initialise(step, seed)
    if start is not None:
        _begin_from(backbone, start)
    step.to(system.device)
    if system.recompute:
        recompute_blocks(backbone)
    if system.compile:
        compile_blocks(backbone)
    return step


def assemble(run: RunSpec, seed: int, system: System, feed: Feed, start: Mapping[str, Tensor] | None = None) -> Built:
    """Everything that training needs: the step, its data and draws, its optimizer, schedule and average."""
    step = build(run, seed, system, start)
    named = dict(step.named_parameters())
    ctx = Context(run, seed, system, named, roles(step))
    optimizer = run.optim.rule.build(ctx)
    average = run.average.build(ctx)
    average.start(step.backbone)
    schedule = Schedule(run.budget.images, run.optim.warmup, run.optim.decay).checked()
    return Built(run, seed, system, phases(run), step, feed, optimizer, schedule, average)


def require_witness(levers: Iterable[Any], built: Built) -> None:
    """Every lever says that it is on in this built run, or nothing is trained. A lever limited to a stage is not asked."""
    for lever in levers:
        if not hasattr(lever, "witness"):
            continue
        try:
            on = lever.witness(built)
        except Exception as error:
            raise BadInput(f"the witness of '{lever.name}' failed: {type(error).__name__}: {error}",
                           "correct the lever") from error
        if not on:
            raise BadInput(f"'{lever.name}' is not on in the run it was meant to change",
                           "its edit has no effect on what is built: correct the lever")


def shape_of(run: RunSpec) -> dict[str, Any]:
    """The backbone's sizes, for building it and for export."""
    model = run.model
    return {"patch": model.patch, "width": model.width, "depth": model.depth, "heads": model.heads,
            "text_width": run.encode.text.width, "mlp_ratio": model.mlp_ratio, "theta": model.theta,
            "bottleneck": model.bottleneck, "resolution": model.condition.kind == "resolution"}


def _route(run: RunSpec, ctx: Context) -> nn.Module:
    """The one route that is used in any phase; dense phases simply draw no `keep`."""
    routes = {str(phase.run.model.route): phase.run.model.route for phase in phases(run)}
    routed = [route for route in routes.values() if route.kind != "dense"]
    if len(routed) > 1:
        raise BadInput(f"two routes in one run: {', '.join(map(str, routed))}", "a run may switch one route on and off")
    built: nn.Module = (routed[0] if routed else run.model.route).build(ctx)
    return built


def _terms(run: RunSpec) -> list[Any]:
    """Every term of any phase, once."""
    found = {term.name: term for phase in phases(run) for term in phase.run.terms}
    return [found[name] for name in sorted(found)]


def _begin_from(backbone: nn.Module, weights: Mapping[str, Tensor]) -> None:
    own = backbone.state_dict()
    wrong = [name for name in own.keys() | weights.keys()
             if name not in own or name not in weights or own[name].shape != weights[name].shape]
    if wrong:
        raise BadInput(f"the starting weights do not fit this model: {len(wrong)} tensors differ, "
                       f"such as '{sorted(wrong)[0]}'",
                       "start from a run with the same model, or change the model's sizes")
    backbone.load_state_dict(dict(weights))
