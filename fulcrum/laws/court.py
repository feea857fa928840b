"""Where levers are tried: their grounds, trainings that are kept, and what a training leaves behind."""

from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fulcrum.laws.ground import Ground, ground_of, usable
from fulcrum.spec.edit import digest
from fulcrum.spec.errors import BadInput, OrderDecides
from fulcrum.spec.phrase import Catalogue, apply, edited_by
from fulcrum.spec.run import RunSpec, System
from fulcrum.training.build import Built, Context, assemble
from fulcrum.training.checkpoint import State, weights_hash
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.feed import Feed
from fulcrum.training.loop import Look, train
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.painter import Painter
from fulcrum.training.session import Order, perform

PROMPTS = ("a large red circle on the left", "a small blue square")


class BrokenLaw(Exception):
    """What was expected of a lever and what was found."""


class _Killed(Exception):
    """Ends a training in the middle, as a lost machine would."""


class Trained(NamedTuple):
    """A run after its last step, and what it left behind."""

    built: Built
    prints: dict[str, str]  # what a lever may change, as hashes


class Court:
    """Where levers are tried. Baselines are trained once per ground and kept."""

    def __init__(self, catalogue: Catalogue, folder: Path, system: System | None = None) -> None:
        self.catalogue, self.folder, self.system = catalogue, folder, system or System()
        self.kept: dict[str, Trained] = {}
        self.flops: dict[str, float] = {}
        self.grounds: dict[Any, Ground] = {}
        self.usable: dict[Any, list[Ground]] = {}
        self.last: tuple[Any, Trained] | None = None  # witness and resume ask for the same training, one after the other
        self.agree: dict[Any, bool] = {}
        self.number = 0

    def feed(self, run: RunSpec) -> Feed:
        return Feed(run, 0, self.folder / "cache", device=self.system.device)

    def assembled(self, run: RunSpec, system: System | None = None) -> Built:
        return assembled(run, self.feed(run), system or self.system)

    def case(self, lever: Any) -> "Case":
        if lever not in self.grounds:
            self.grounds[lever] = ground_of(lever, self.catalogue)
        ground = self.grounds[lever]
        return Case(self, lever, ground, lever.edit(ground.run))

    def shared(self, one: Any, other: Any) -> Ground | None:
        """A ground that both levers fit, if there is one."""
        for lever in (one, other):
            if lever not in self.usable:
                self.usable[lever] = usable(lever, self.catalogue)
        names = {ground.name for ground in self.usable[other]}
        return next((ground for ground in self.usable[one] if ground.name in names), None)

    def baseline(self, ground: Ground) -> Trained:
        if ground.name not in self.kept:
            self.kept[ground.name] = self.trained(ground.run)
        return self.kept[ground.name]

    def baseline_flops(self, ground: Ground) -> float:
        if ground.name not in self.flops:
            self.flops[ground.name] = self.counted(ground.run)
        return self.flops[ground.name]

    def commute(self, one: Any, other: Any, ground: Ground) -> bool:
        """Do both orders give the same run, or a conflict? Asked once for each pair, whichever of the two is tried."""
        pair = frozenset((one, other)), ground.name
        if pair not in self.agree:
            runs = [_together(ground.run, levers) for levers in ((one, other), (other, one))]
            self.agree[pair] = runs[0] == runs[1]
        return self.agree[pair]

    def trained_once(self, case: "Case") -> Trained:
        """The case's run, trained; the last one is kept. Two levers may describe a run alike and build it differently."""
        asked = case.lever, digest(case.run)
        if self.last is None or self.last[0] != asked:
            self.last = asked, self.trained(case.run)
        return self.last[1]

    def trained(self, run: RunSpec, killed_after: int | None = None) -> Trained:
        """Train through the session that the command uses; if asked, lose the process after some steps and start again."""
        self.number += 1
        last: list[Look] = []

        def watch(look: Look) -> None:
            last[:] = [look]
            if killed_after is not None and look.state.images > killed_after * run.budget.batch:
                raise _Killed

        def order(out: Path) -> Order:
            cache = out / "cache"
            if not cache.exists():
                out.mkdir(parents=True, exist_ok=True)
                cache.symlink_to(self.folder / "cache", target_is_directory=True)
            return Order(run, 0, "law", out, self.system, quiet=True)

        (self.folder / "cache").mkdir(parents=True, exist_ok=True)
        asked = order(self.folder / f"run-{self.number}")
        if killed_after is not None:
            try:
                perform(asked, _silent, lambda *_: [watch])
                raise BrokenLaw("a run that should have been interrupted went to its end")
            except _Killed:
                killed_after = None
        perform(asked, _silent, lambda *_: [watch])
        built = last[0].built
        return Trained(built, fingerprints(built))

    def counted(self, run: RunSpec) -> float:
        """FLOPs of the whole tiny training, forward, backward and optimizer."""
        built = self.assembled(run)
        for job in built.feed.jobs():  # frozen networks are no part of it, whichever test comes first
            built.feed.cache.finished(job)
        return counted(lambda: train(built, State(), [], lambda: False))


def assembled(run: RunSpec, feed: Feed, system: System | None = None, ranks: Ranks = ALONE) -> Built:
    """A run of the laws, with the weights that it begins from."""
    system = system or System()
    return assemble(run, 0, system, feed, run.start.build(Context(run, 0, system, ranks=ranks)), ranks)


class Case(NamedTuple):
    """One lever before the court."""

    court: Court
    lever: Any
    ground: Ground
    run: RunSpec  # the ground with the lever


def fingerprints(built: Built) -> dict[str, str]:
    """What a lever may change: trained weights, averaged weights, and the pictures drawn with them."""
    weights = built.average.weights(built.step.backbone)
    painter = Painter.of(built)
    pictures = torch.cat(list(painter.pictures(PROMPTS, 0, np.arange(len(PROMPTS)))))
    return {
        "weights": weights_hash(dict(built.step.backbone.state_dict())),
        "averaged weights": weights_hash(weights),
        "samples": weights_hash({"pictures": pictures}),
    }


def _silent(_: str) -> None:
    pass


def _together(run: RunSpec, levers: tuple[Any, ...]) -> RunSpec | None:
    """None: refused. A pair that is refused only because its order would decide the run gives that run, to be compared."""
    try:
        return apply(run, levers)
    except OrderDecides:
        return reduce(lambda edited, lever: edited_by(lever, edited), levers, run)
    except BadInput:
        return None
