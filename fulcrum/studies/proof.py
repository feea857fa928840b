"""The proof of a study: real steps show that every arm trains differently from its baseline."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.measure.evaluation import (
    can_measure,
    require_impartial,
    require_known,
    require_measurable,
)
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.progress import Tally
from fulcrum.spec.run import RunSpec, System, cores
from fulcrum.spec.stage import phases
from fulcrum.studies.arm_cost import Clock, read_costs
from fulcrum.studies.arms import Arm, baseline_of
from fulcrum.studies.cell import Layout
from fulcrum.studies.frozen_plan import require_plan
from fulcrum.studies.plan import Plan
from fulcrum.training.average import drawn_weights
from fulcrum.training.build import Built, Context, assemble, backbone_of, require_witness
from fulcrum.training.checkpoint import State, weights_hash
from fulcrum.training.dist.collectives import mesh_shape
from fulcrum.training.dist.machine import at_hand, require_device
from fulcrum.training.dist.ranks import Ranks
from fulcrum.training.feed import Feed
from fulcrum.training.fillers import StandIn
from fulcrum.training.loop import train
from fulcrum.training.model.adapter import is_beside
from fulcrum.training.painter import Painter
from fulcrum.training.trackers import require_trackers

# --------------------------------------------------------------------------------------------------
# The proof of a study: three real steps show that every arm trains (or draws) differently from its
# baseline, and seeds from seeds. Their fingerprints are kept, sealed.


NAME = "proof.json"
STEPS = 3
Say = Callable[[str], None]
PROMPTS = ("a large red circle on the left", "a small blue square")


class Print(NamedTuple):
    """How an arm was seen to differ."""

    arm: str
    by: str  # weights, averaged weights, samples
    baseline: str  # hashes
    found: str


def is_proven(layout: Layout, folder: Path) -> bool:
    """Was every arm seen to differ? A proof that was edited, or is of other arms, is none."""
    path, hint = (
        folder / NAME,
        "remove the file and run the study again: the proof is made anew, cells are kept",
    )
    if not path.exists():
        return False
    prints = read_sealed(path, hint, fields={"fingerprints": list})["fingerprints"]
    proven = [str(one.get("arm")) if isinstance(one, dict) else "nothing" for one in prints]
    expected = [arm.name for arm in layout.proven if not arm.is_baseline]
    if proven != expected:
        raise BadInput(
            f"{path} proves {', '.join(proven)}; the plan's arms are {', '.join(expected)}", hint
        )
    return True


def prove_by_steps(
    layout: Layout, plan: Plan, folder: Path | None, out: Path, clock: Clock, say: Say
) -> None:
    """Three real steps of every arm, once per study: an arm that is the baseline proves nothing.
    Without a folder the proof is not kept."""
    tell = _once(say)
    with clock.counting("encoding"):  # of what they begin with; no cell waits for another's
        for arm in layout.proven:
            feed = Feed(arm.run, plan.seeds[0], out / "cache", tell, at_hand(plan.device))
            feed.encode_abreast(cores())  # no cell runs yet
            feed.at(0)
    with clock.counting("proof"):
        say(f"three steps of each of {len(layout.proven)} arms, to prove that they differ")
        prints = fingerprints(layout.proven, plan.seeds, out / "cache", tell)
        if folder is not None:
            write_sealed(folder / NAME, {"fingerprints": [one._asdict() for one in prints]})


def fingerprints(
    arms: Sequence[Arm], seeds: Sequence[int], cache: Path, say: Say | None = None
) -> list[Print]:
    """Train every arm for three steps in each of its phases, and at the end where that shows
    nothing: a term may be switched off within a phase. Refuse an arm that is its baseline in fact.

    What later phases read is encoded here: `say` is told how far that is.
    """
    _independent(arms[0].run, seeds, cache, say)
    taken: dict[tuple[str, tuple[int, ...]], Built] = {}
    prints: list[Print] = []
    others = [one for one in arms if not one.is_baseline]
    tally = Tally("proven", len(others), say, "arms")
    for arm in others:
        base = baseline_of(arm, arms)
        places = tuple(
            sorted({phase.start for one in (base.run, arm.run) for phase in phases(one)})
        )
        by, before, after = _by(arm), "", ""
        for where in (
            places,
            (*places, max(0, arm.run.budget.images - STEPS * arm.run.budget.batch)),
        ):
            built = _stepped(arm, where, cache, say)
            require_witness(arm.levers, built)
            if (base.name, where) not in taken:
                taken = {(base.name, where): _stepped(base, where, cache, say)}
            before, after = _hash(taken[base.name, where], by), _hash(built, by)
            if before != after:
                break
        if before == after:
            raise BadInput(
                f"the arm '{arm.name}' changes {', '.join(change.path for change in arm.changes)},"
                f" but after {STEPS} steps its {by} are the baseline's, bit for bit",
                "what it sets is read by nobody here: an ablation of nothing; leave it out or"
                " correct the lever",
            )
        prints.append(Print(arm.name, by, before[:16], after[:16]))
        tally.tell(len(prints))
    return prints


def fitting(arms: Sequence[Arm], trunk_runs: Mapping[str, RunSpec]) -> None:
    """Refuse an arm whose model cannot take the trunk's weights, before the trunk is trained."""
    shapes: dict[str, dict[str, Any]] = {scale: _shapes(run) for scale, run in trunk_runs.items()}
    for arm in (one for one in arms if one.scale in shapes):
        own, stem = _shapes(arm.run), shapes[arm.scale]
        wrong = sorted(name for name in own.keys() | stem.keys() if own.get(name) != stem.get(name))
        if wrong:
            raise BadInput(
                f"the arm '{arm.name}' cannot begin from the trunk: {len(wrong)} tensors differ,"
                f" such as '{wrong[0]}'",
                "a lever that changes the model's shape is tested without `trunk`",
            )


def _shapes(run: RunSpec) -> dict[str, Any]:
    with torch.device("meta"):
        backbone = backbone_of(Context(run, 0, System()))
    return {
        name: tuple(value.shape)
        for name, value in backbone.state_dict().items()
        if not is_beside(name)
    }


def _independent(run: RunSpec, seeds: Sequence[int], cache: Path, say: Say | None = None) -> None:
    """Two seeds must see other pictures in another order with other noises, or repeats repeat
    nothing."""
    (one, mine), (other, yours) = (Feed(run, seed, cache, say).at(0) for seed in seeds[:2])
    same = [
        what
        for what, equal in (
            ("order of the data", torch.equal(one.ids, other.ids)),
            ("noise", torch.equal(mine.eps, yours.eps)),
            ("times", torch.equal(mine.t, yours.t)),
        )
        if equal
    ]
    if same:
        raise BadInput(
            f"the seeds {seeds[0]} and {seeds[1]} give the same {' and the same '.join(same)}",
            "repeats would not be independent: the source or the time filler must use the seed it"
            " is given",
        )


def _stepped(arm: Arm, places: Sequence[int], cache: Path, say: Say | None) -> Built:
    built = assemble(arm.run, 0, System(), Feed(arm.run, 0, cache, say))
    for place in places:
        left = iter(range(STEPS))
        try:
            train(built, State(images=place), [], lambda steps=left: next(steps, None) is None)  # type: ignore[misc]
        except (TrainingFailed, BadInput) as error:  # every seed would fail: hours are saved
            raise BadInput(
                f"the arm '{arm.name}' fails in its first steps: {error.message}", error.hint
            ) from error
    return built


def _by(arm: Arm) -> str:
    """What must differ: the strongest thing that any of its levers says it affects."""
    affected = {
        what
        for lever in (*arm.added, *arm.removed)
        for what in getattr(getattr(lever, "lever", lever), "affects", ("weights",))
    }
    return next(
        (what for what in ("weights", "averaged weights", "samples") if what in affected), "weights"
    )


def _hash(built: Built, by: str) -> str:
    if by == "weights":
        return weights_hash(dict(built.step.state_dict()))
    if by == "averaged weights":
        return weights_hash(drawn_weights(built.step, built.average))
    return weights_hash({"latents": Painter.of(built).latents(PROMPTS, 0, np.arange(len(PROMPTS)))})


def _once(say: Say) -> Say:
    """Every arm reads the same captions and would say the same."""
    heard = set[str]()

    def tell(text: str) -> None:
        if text not in heard:
            heard.add(text)
            say(text)

    return tell


# --------------------------------------------------------------------------------------------------
# What a plan must meet before anything of it is trained: asked by `study plan` and `study run`
# alike.


# Of pictures that tell nothing about scenes: unbiased in the number of pictures, and, unlike the
# validation loss, it may be compared between arms whose codec or objective differ.
PRIMARY_ANYWHERE = "mmd"


def with_primary(plan: Plan, run: RunSpec) -> Plan:
    """The plan with a primary metric that its pictures can have: where the plan names none and they
    cannot have the usual one, another, with a margin in deviations of the baseline unless the plan
    gives one. What a plan names stays, and `require_runnable` refuses it with words."""
    if "primary" in plan.model_fields_set or can_measure(run, plan.primary):
        return plan
    margin = plan.smallest_effect if "smallest_effect" in plan.model_fields_set else None
    return plan.model_copy(update={"primary": PRIMARY_ANYWHERE, "smallest_effect": margin})


def require_runnable(plan: Plan, layout: Layout, folder: Path, here: bool = True) -> None:
    """Refuse what could not be trained, measured or shown, and a folder that was edited or cannot
    be made; cells that run `here` also need the plan's device here."""
    require_known(plan.judges)
    mesh_shape(plan.mesh, plan.processes)
    for arm in layout.arms:
        require_measurable(arm.run, plan.primary)
        require_impartial(arm.run, plan.judges, f"the arm '{arm.name}'")
        _ = Ranks(size=plan.processes).rows(arm.run.budget.batch)
        # the trunk will stand there
        begun = arm.run if plan.trunk is None else put(arm.run, "start", StandIn())
        if problem := arm.run.model.learned.problem(begun):
            raise BadInput(
                f"the arm '{arm.name}': {problem}",
                "here: a `trunk` of the plan, or a `start` in its settings",
            )
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
