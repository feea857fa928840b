"""Levers broken on purpose: each must be caught by the law that it breaks, or the laws prove
nothing."""

from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from fulcrum.levers.base import Card, Cost, Lever
from fulcrum.levers.captions import ShortCaptions
from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.laws import LAWS, BrokenLaw, Court
from fulcrum.levers.optim import UseEMA, UseMuon
from fulcrum.levers.routing import Tread
from fulcrum.spec import slots
from fulcrum.spec.edit import put
from fulcrum.spec.phrase import Catalogue
from fulcrum.training.average import MovingAverage


class Term(slots.TermFiller):
    """A user's term around a module."""

    kind: ClassVar[str] = "mutant"
    name: str = "mutant"
    weight: float = 0.1
    module: ClassVar[type[nn.Module]]

    def build(self, ctx: Any) -> Any:
        return self.module()


class WithTerm(Lever):
    name: ClassVar[str] = "mutant"
    touches: ClassVar[tuple[str, ...]] = ("terms.mutant",)
    card: ClassVar[Card] = Card(says="a mutant")
    term: ClassVar[type[Term]]
    slot: ClassVar[str]

    def edit(self, run):
        return put(run, self.slot, self.term())

    def witness(self, built):
        return self.term().name in built.step.terms


class NoEffect(UseMuon):
    """Its effect is removed, as in the published BF16 arm."""

    def edit(self, run):
        return run


class ReadByNobody(Lever):
    """It changes the run's description, but nothing that is built reads what it changed."""

    name: ClassVar[str] = "mutant"
    touches: ClassVar[tuple[str, ...]] = ("precision.reduce",)
    card: ClassVar[Card] = Card(says="a key that is read by nobody")

    def edit(self, run):
        return put(run, "precision.reduce", "bf16")

    def witness(self, built):
        return built.run.precision.reduce == "bf16"


class TwoSeams(UseMuon):
    """It touches a second seam, as the published Muon arm moved Adam's eps."""

    def edit(self, run):
        return put(super().edit(run), "optim.clip", 0.2)


class SecretSeam(UseMuon):
    """It declares the second seam of the first only: its diff is wider than its word."""

    touches: ClassVar[tuple[str, ...]] = ("optim.lr",)


class BlindWitness(UseMuon):
    def witness(self, built):
        return True


class ClaimsLess(Tread):
    """It says that it changes pictures only, and changes training."""

    affects: ClassVar[tuple[str, ...]] = ("samples",)


class ClaimsMore(UseEMA):
    affects: ClassVar[tuple[str, ...]] = ("weights", "samples")


class Noise(nn.Module):
    """It draws its own noise."""

    taps = ()

    def forward(self, view):
        return (view.x + torch.randn_like(view.x)).square().flatten(1).mean(1)


class OwnGenerator(nn.Module):
    """It draws its own noise from a generator of its own: the same in every run, until one is
    resumed."""

    taps = ()

    def __init__(self):
        super().__init__()
        self.seed = 0

    def forward(self, view):
        self.seed += 1
        noise = torch.randn(view.x.shape, generator=torch.Generator().manual_seed(self.seed))
        return (view.x + noise).square().flatten(1).mean(1)


class Counter(nn.Module):
    """It counts its calls where no checkpoint looks."""

    taps = ()

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, view):
        self.calls += 1
        return view.x.square().flatten(1).mean(1) * (1 + self.calls)


def with_term(module, called="mutant"):
    term = type(
        "MutantTerm",
        (Term,),
        {
            "module": module,
            "name": called,
            "__module__": __name__,
            "__annotations__": {"name": str},
        },
    )
    return type(
        f"With{module.__name__}",
        (WithTerm,),
        {
            "term": term,
            "slot": f"terms.{called}",
            "__module__": __name__,
            "touches": (f"terms.{called}",),
        },
    )


class Meddler(nn.Module):
    """It changes what the other terms see; its name stands before theirs."""

    taps = ()

    def forward(self, view):
        view.target.data.mul_(0.5)
        return view.x.square().flatten(1).mean(1)


class InPlace(UseMuon):
    """It changes the run that it is given, so that the baseline changes with it."""

    def edit(self, run):
        object.__setattr__(run.optim, "lr", 0.9)
        return super().edit(run)


class Cheap(Tread):
    """It declares half of what it costs."""

    def cost(self, run):
        return Cost(flops=super().cost(run).flops * 0.9)


class Stays(Lever):
    """It says that nothing of it is left in the model, and leaves a condition in it."""

    name: ClassVar[str] = "mutant"
    touches: ClassVar[tuple[str, ...]] = ("model.bottleneck",)
    card: ClassVar[Card] = Card(says="a mutant", train_only=True)

    def edit(self, run):
        return put(run, "model.bottleneck", 16)

    def witness(self, built):
        return built.run.model.bottleneck == 16


class OrderMatters(ShortCaptions):
    """Its edit looks at what another lever has done."""

    touches: ClassVar[tuple[str, ...]] = ("data.caption", "optim.lr")

    def edit(self, run):
        rate = 1e-3 if run.average.kind == "last_weights" else 2e-3
        return put(super().edit(run), "optim.lr", rate)


MUTANTS = [
    (NoEffect, "edit"),
    (NoEffect, "witness"),
    (ReadByNobody, "witness"),
    (TwoSeams, "edit"),
    (SecretSeam, "edit"),
    (BlindWitness, "witness"),
    (ClaimsLess, "witness"),
    (ClaimsMore, "witness"),
    (with_term(Noise), "resume"),
    (with_term(OwnGenerator), "resume"),
    (with_term(Counter), "resume"),
    (Cheap, "cost"),
    (Stays, "leave"),
    (OrderMatters, "commute"),
    (with_term(Meddler, "aaa"), "witness"),
    (InPlace, "edit"),
]


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    return Court(CATALOG, tmp_path_factory.mktemp("court"))


@pytest.mark.parametrize(
    ("mutant", "law"), MUTANTS, ids=[f"{mutant.__name__}-{law}" for mutant, law in MUTANTS]
)
def test_a_broken_lever_turns_the_suite_red(mutant, law, court, monkeypatch):
    levers = {name: lever for name, lever in CATALOG.levers.items() if name != mutant.name} | {
        mutant.name: mutant
    }
    monkeypatch.setattr(court, "catalogue", Catalogue(CATALOG.recipes, levers, CATALOG.fillers))
    with pytest.raises(BrokenLaw):
        LAWS[law](court.case(mutant()))


def test_an_average_that_never_moves_is_caught(court, monkeypatch):
    monkeypatch.setattr(MovingAverage, "update", lambda self, model: None)
    with pytest.raises(BrokenLaw, match="began with"):
        LAWS["witness"](court.case(UseEMA()))
