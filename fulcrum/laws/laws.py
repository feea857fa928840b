"""The laws that every lever keeps, tried on real models: each law is a function that raises BrokenLaw.

Six laws are about the lever (edit, commute, witness, resume, leave, cost), three about the parts that it puts into a run
(compile, recompute, copy). The tenth, world, needs two processes and stands in `two_processes.py`.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch

from fulcrum.laws.court import BrokenLaw, Case
from fulcrum.laws.ground import fits, grounds
from fulcrum.spec.edit import diff, digest, inside
from fulcrum.spec.errors import BadInput
from fulcrum.training.build import build
from fulcrum.training.checkpoint import State, weights_hash
from fulcrum.training.interop.diffusers import export, load
from fulcrum.training.loop import after, train
from fulcrum.training.model.adapter import merged
from fulcrum.training.model.transformer import compile_backbone

FLOPS_WITHIN = 0.05  # of the declared cost and the counted one
COMPILED_WITHIN = 1e-5  # of a loss, relative, fp32
KINDS = ("weights", "averaged weights", "samples")


def _require(holds: bool, lever: Any, otherwise: str) -> None:
    if not holds:
        raise BrokenLaw(f"'{lever.name}' {otherwise}")


# ---- the lever


def edit(case: Case) -> None:
    """The edit changes something, only what it declares, and gives the same run every time."""
    changes = diff(case.ground.run, case.lever.edit(case.ground.run))
    _require(bool(changes), case.lever, "changes nothing")
    stray = [change.path for change in changes if not inside(change.path, case.lever.touches)]
    _require(not stray, case.lever, f"changes {', '.join(stray)}, which it does not declare")
    untouched = next(ground.run for ground in grounds(case.court.catalogue) if ground.name == case.ground.name)
    again = [case.lever.edit(case.ground.run) for _ in range(2)]
    _require(all(run == case.run for run in again), case.lever, "edits differently each time")
    _require(digest(case.ground.run) == digest(untouched), case.lever, "changes the run that it is given")
    reason = fits(case.lever, case.ground.run)
    _require(reason is None, case.lever, f"fits none of the grounds; on {case.ground.name}: {reason}")


def commute(case: Case) -> None:
    """With every other lever: the same run in both orders, or a conflict in both."""
    for other in (cls() for cls in case.court.catalogue.levers.values() if cls.name != case.lever.name):
        shared = case.court.shared(case.lever, other) or case.ground
        agree = case.court.commute(case.lever, other, shared)
        _require(agree, case.lever, f"does not commute with '{other.name}' on {shared.name}: order decides the run")


def witness(case: Case) -> None:
    """What the lever says it affects differs from the baseline's after training, all else is bit-equal; it sees itself."""
    base, with_lever = case.court.baseline(case.ground), case.court.trained_once(case)
    _require(bool(case.lever.witness(with_lever.built)), case.lever, "is not seen by its own witness where it is on")
    _require(not case.lever.witness(base.built), case.lever, "is seen by its own witness where it is off")
    unknown = [what for what in case.lever.affects if what not in KINDS]
    _require(not unknown, case.lever, f"affects {unknown}: expected some of {', '.join(KINDS)}")
    expected = set(case.lever.affects) | (set(KINDS) if "weights" in case.lever.affects else set())
    for what in KINDS:
        differs = base.prints[what] != with_lever.prints[what]
        _require(
            differs == (what in expected),
            case.lever,
            f"should {'' if what in expected else 'not '}change the {what}, and does {'' if differs else 'not'}",
        )
    began = weights_hash(dict(case.court.assembled(case.run).step.backbone.state_dict()))
    _require(with_lever.prints["averaged weights"] != began, case.lever, "draws with the weights that training began with")
    _leaves_others_alone(case)


def _leaves_others_alone(case: Case) -> None:
    """A lever that only adds terms changes no other term of the first step."""
    paths = [change.path for change in diff(case.ground.run, case.run)]
    added = all(inside(path, ("terms", "encode.teachers")) for path in paths) and any(
        inside(path, ("terms",)) for path in paths
    )
    first = [case.court.assembled(run) for run in (case.ground.run, case.run)] if added else []
    parts = [built.step(*built.feed.at(0), built.weights(0)).parts for built in first]
    for name in parts[0] if parts else ():
        _require(torch.equal(parts[0][name], parts[1][name]), case.lever, f"changes the term '{name}', which is another's")


def resume(case: Case) -> None:
    """Six steps equal three and three through a real checkpoint; a step depends on nothing but its batch and its draw."""
    whole, broken = case.court.trained_once(case), case.court.trained(case.run, killed_after=3)
    _require(whole.prints == broken.prints, case.lever, "does not resume exactly: it uses what is not in the checkpoint")
    built = case.court.assembled(case.run)
    for phase in built.phases:
        batch, draw = built.feed.at(phase.start)
        one, two = (built.step(batch, draw, built.weights(phase.start)).total for _ in range(2))
        _require(torch.equal(one, two), case.lever, "gives another loss for the same batch and draw: it draws by itself")


def leave(case: Case) -> None:
    """What is only for training is not in the exported model; what cannot be exported is refused, never dropped."""
    built = build(case.run)
    folder = case.court.folder / f"export-{case.lever.name}"
    try:
        exported = load(export(built.backbone, folder))
    except BadInput as error:
        _require(not case.lever.card.train_only, case.lever, f"should leave nothing behind, but: {error.message}")
        return
    shapes = {name: value.shape for name, value in exported.state_dict().items()}
    own = {name: value.shape for name, value in merged(built.backbone.state_dict()).items()}
    _require(shapes == own, case.lever, "loses a tensor of its model on export")
    if case.lever.card.train_only:
        plain = {name: value.shape for name, value in build(case.ground.run).backbone.state_dict().items()}
        _require(shapes == plain, case.lever, "is only for training, but its model is not the baseline's")


def cost(case: Case) -> None:
    """The declared FLOPs of a step, over the baseline's, are those counted."""
    declared = case.lever.cost(case.ground.run).flops
    ratio = case.court.counted(case.run) / case.court.baseline_flops(case.ground)
    _require(
        abs(declared / ratio - 1) <= FLOPS_WITHIN,
        case.lever,
        f"declares {declared:.3f} times the FLOPs, {ratio:.3f} were counted",
    )


# ---- what it puts into a run


def compiles(case: Case) -> None:
    """Compiled equals eager, without a graph break (a trivial backend: the real compiler is asked in the slow suite)."""
    eager, graph = (case.court.assembled(case.run) for _ in range(2))
    for model in graph.step.models():
        compile_backbone(model, backend="eager")
    for phase in eager.phases:
        batch, draw = eager.feed.at(phase.start)
        one, two = (float(built.step(batch, draw, built.weights(phase.start)).total.detach()) for built in (eager, graph))
        _require(abs(one - two) <= COMPILED_WITHIN * abs(one), case.lever, f"compiled gives {two}, eager {one}")


def recompute(case: Case) -> None:
    """Activation checkpointing changes no bit."""
    hashes = set()
    for blocks in ("none", "selective", "full"):
        built = case.court.assembled(case.run, case.court.system.model_copy(update={"recompute": blocks}))
        train(built, State(), [], after(2))
        hashes.add(weights_hash(dict(built.step.state_dict())))
    _require(len(hashes) == 1, case.lever, "trains differently when activations are computed again")


def copies(case: Case) -> None:
    """A deep copy computes what the original computes, and so does a model filled with the averaged weights."""
    built = case.court.assembled(case.run)
    train(built, State(), [], after(1))
    batch, draw = built.feed.at(0)
    own = built.step(batch, draw, built.weights(0)).total
    _require(
        torch.equal(copy.deepcopy(built.step)(batch, draw, built.weights(0)).total, own),
        case.lever,
        "computes something else in a deep copy",
    )
    built.average.start(built.step.backbone)
    twin = build(case.run)
    twin.load_state_dict(built.step.state_dict())
    twin.backbone.load_state_dict(built.average.weights(built.step.backbone))
    _require(
        torch.equal(twin(batch, draw, built.weights(0)).total, own),
        case.lever,
        "computes something else with its averaged weights",
    )


LAWS: dict[str, Callable[[Case], None]] = {
    "edit": edit,
    "commute": commute,
    "witness": witness,
    "resume": resume,
    "leave": leave,
    "cost": cost,
    "compile": compiles,
    "recompute": recompute,
    "copy": copies,
}
