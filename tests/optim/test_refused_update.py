"""A flag inside the update: where a step does not count nothing changes at all, where it does
nothing differs."""

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from fulcrum.training.average import MovingAverage
from fulcrum.training.optim.muon import Muon
from fulcrum.training.optim.optimizers import AdamW, Joint, Rule

GOOD, BAD = torch.tensor(True), torch.tensor(False)
BF16 = torch.bfloat16
RULES = {
    "adamw": lambda held: AdamW(held, lr=1e-2, weight_decay=0.1),
    "adamw in bf16": lambda held: AdamW(held, lr=1e-2, storage=BF16, state=BF16),
    "adamw rounded at random": lambda held: AdamW(held, lr=1e-2, storage=BF16, rounding=3),
    "muon": lambda held: Muon(held, lr=1e-2, weight_decay=0.1),
    "muon in bf16": lambda held: Muon(held, lr=1e-2, storage=BF16, state=BF16),
    "both": lambda held: Joint([Muon({"a": held["a"]}, lr=1e-2), AdamW({"b": held["b"]}, lr=1e-2)]),
}


def made(name: str) -> tuple[dict[str, Parameter], Rule]:
    g = torch.Generator().manual_seed(0)
    held = {
        key: Parameter(torch.randn(shape, generator=g))
        for key, shape in (("a", (8, 5)), ("b", (5, 8)))
    }
    return held, RULES[name](held)


def give(held: dict[str, Parameter], number: int, bad: bool = False) -> None:
    g = torch.Generator().manual_seed(number)
    for parameter in held.values():
        parameter.grad = (
            torch.full_like(parameter, torch.nan)
            if bad
            else torch.randn(parameter.shape, generator=g)
        )


def everything(held: dict[str, Parameter], rule: Rule) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in {**held, **rule.state()}.items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert set(one) == set(other)
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_step_that_does_not_count_changes_nothing(name: str, first: bool) -> None:
    held, rule = made(name)
    if not first:
        give(held, 1)
        rule.step(at=0)
    before = everything(held, rule)
    give(held, 2, bad=True)
    rule.step(watch=True, at=8, counts=BAD)
    assert_same(everything(held, rule), before)
    assert rule.stalled is not None and rule.stalled.tolist() == [0, 0]


@pytest.mark.parametrize("name", RULES)
def test_a_step_that_counts_is_the_step_without_a_flag(name: str) -> None:
    (plain, rule), (flagged, other) = made(name), made(name)
    for number in range(3):
        give(plain, number)
        rule.step(0.5, watch=True, at=8 * number)
        give(flagged, number)
        other.step(0.5, watch=True, at=8 * number, counts=GOOD)
    assert_same(everything(plain, rule), everything(flagged, other))
    assert (
        rule.stalled is not None
        and other.stalled is not None
        and rule.stalled.tolist() == other.stalled.tolist()
    )


def test_an_average_takes_nothing_from_a_step_that_does_not_count() -> None:
    """Every second step that counts: one that did not is taken back, and the next one takes its
    turn."""
    model = nn.Linear(3, 2)
    told, plain = MovingAverage(0.9, every=2), MovingAverage(0.9, every=2)
    told.start(model)
    plain.start(model)
    for number, counts in enumerate((GOOD, BAD, GOOD, BAD, GOOD, GOOD)):
        with torch.no_grad():
            model.weight.add_(float(counts) * (number + 1))
        told.update(model, counts)
        if counts:
            plain.update(model)
        else:
            told.take_back()
    assert_same(told.state(), plain.state())
    assert told.steps == 4
