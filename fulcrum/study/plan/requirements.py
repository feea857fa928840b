"""What a plan must meet before anything of it is trained: asked by `study plan` and `study run` alike."""

import os
from pathlib import Path

from fulcrum.measure.evaluation import can_measure, require_impartial, require_known, require_measurable
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.study.plan.fingerprint import fitting, is_proven
from fulcrum.study.plan.frozen_plan import require_plan
from fulcrum.study.plan.plan import Plan
from fulcrum.study.run.arm_cost import read_costs
from fulcrum.study.run.layout import Layout
from fulcrum.training.dist.collectives import mesh_shape
from fulcrum.training.dist.machine import require_device
from fulcrum.training.dist.ranks import Ranks
from fulcrum.training.fillers import StandIn
from fulcrum.training.trackers import require_trackers

# Of pictures that tell nothing about scenes: unbiased in the number of pictures, and, unlike the validation loss, it may be
# compared between arms whose codec or objective differ.
PRIMARY_ANYWHERE = "mmd"


def with_primary(plan: Plan, run: RunSpec) -> Plan:
    """The plan with a primary metric that its pictures can have: where the plan names none and they cannot have the usual
    one, another, with a margin in deviations of the baseline unless the plan gives one. What a plan names stays, and
    `require_runnable` refuses it with words."""
    if "primary" in plan.model_fields_set or can_measure(run, plan.primary):
        return plan
    margin = plan.smallest_effect if "smallest_effect" in plan.model_fields_set else None
    return plan.model_copy(update={"primary": PRIMARY_ANYWHERE, "smallest_effect": margin})


def require_runnable(plan: Plan, layout: Layout, folder: Path, here: bool = True) -> None:
    """Refuse what could not be trained, measured or shown, and a folder that was edited or cannot be made; cells
    that run `here` also need the plan's device here."""
    require_known(plan.judges)
    mesh_shape(plan.mesh, plan.processes)
    for arm in layout.arms:
        require_measurable(arm.run, plan.primary)
        require_impartial(arm.run, plan.judges, f"the arm '{arm.name}'")
        _ = Ranks(size=plan.processes).rows(arm.run.budget.batch)
        begun = arm.run if plan.trunk is None else put(arm.run, "start", StandIn())  # the trunk will stand there
        if problem := arm.run.model.learned.problem(begun):
            raise BadInput(f"the arm '{arm.name}': {problem}", "here: a `trunk` of the plan, or a `start` in its settings")
    require_trackers(plan.track)
    if here:  # a cluster's GPUs are counted when it is joined
        require_device(plan.device, plan.processes)
    fitting(layout.arms, layout.trunk_runs)
    place = next(path for path in folder.parents if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise BadInput(f"cannot write to {folder.parent}", "choose another place with --out")
    require_plan(plan, folder)
    is_proven(layout, folder)
    read_costs(folder, layout.arms)
