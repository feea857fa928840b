"""The moving average, number for number: what it holds is what its formula gives, in a built run
too."""

import pytest
import torch
from torch import nn

from fulcrum.spec.run import System
from fulcrum.training.average import Average, MovingAverage
from fulcrum.training.build import assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.ranks import ALONE
from fulcrum.training.feed import Feed
from fulcrum.training.loop import after, train


class One(nn.Module):
    def __init__(self, value, dtype=torch.float32):
        super().__init__()
        self.w = nn.Parameter(torch.full((3,), value, dtype=dtype))

    def become(self, value):
        with torch.no_grad():
            self.w.fill_(value)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("every", [1, 3])
def test_it_is_the_formula(decay, every):
    model, average = One(1.0), MovingAverage(decay, every)
    average.start(model)
    expected = 1.0
    for step in range(1, 13):
        value = float(step * step)
        model.become(value)
        average.update(model)
        if step % every == 0:
            expected = decay * expected + (1 - decay) * value
        assert average.weights(model)["w"].tolist() == pytest.approx([expected] * 3, rel=1e-6)


def test_after_a_half_life_half_of_the_beginning_is_left():
    model, average = One(1.0), MovingAverage(0.5 ** (1 / 8), 1)
    average.start(model)
    model.become(0.0)
    for _ in range(8):
        average.update(model)
    assert average.weights(model)["w"].tolist() == pytest.approx([0.5] * 3, rel=1e-6)


def test_it_is_kept_in_fp32_and_goes_on_from_its_state():
    model, average = One(1.0, torch.bfloat16), MovingAverage(0.999, 1)
    average.start(model)
    model.become(2.0)
    average.update(model)
    assert average.mean["w"].dtype == torch.float32
    # bf16 would round it to 1
    assert average.mean["w"].tolist() == pytest.approx([1.001] * 3, rel=1e-6)
    other = MovingAverage(0.999, 1)
    other.start(One(5.0, torch.bfloat16))
    other.load(average.state())
    for one in (average, other):
        one.update(model)
    assert other.steps == 2 and torch.equal(average.mean["w"], other.mean["w"])


def test_without_one_the_last_weights_are_drawn_with():
    model, average = One(1.0), Average()
    average.start(model)
    model.become(7.0)
    average.update(model)
    assert average.weights(model)["w"].tolist() == [7.0] * 3 and average.state() == {}


def test_a_built_run_averages_with_the_half_life_that_it_describes(tiny, tmp_path):
    run = tiny("spark + ema(half_life=0.5, every=2)")  # 6 steps: half of them are gone after 3
    feed = Feed(run, 0, tmp_path, lambda text: None)
    built = assemble(run, 0, System(), feed, None, ALONE)
    decay, seen = 0.5 ** (2 / 3), {"w": [], "m": []}
    name = max(built.average.mean, key=lambda one: built.average.mean[one].numel())

    def look(at):
        seen["w"].append(built.step.backbone.state_dict()[name].clone())
        seen["m"].append(built.average.weights(built.step.backbone)[name].clone())

    expected = built.average.mean[name].clone()
    train(built, State(), [look], after(6))
    assert len(seen["w"]) == 6
    for step, (weights, mean) in enumerate(zip(seen["w"], seen["m"], strict=True), start=1):
        if step % 2 == 0:
            expected = decay * expected + (1 - decay) * weights
        torch.testing.assert_close(mean, expected, rtol=1e-5, atol=1e-7)
    assert (seen["m"][-1] - seen["w"][-1]).abs().max() > 1e-4  # else nothing was tested
