"""The formula counts what the model computes."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fulcrum.spec.flops import forward_flops, training_flops
from fulcrum.training.model.fillers import Carry
from fulcrum.training.model.transformer import Backbone

SIZES = dict(channels=4, patch=2, width=32, depth=4, heads=2, text_width=24)
CASES = {
    "dense": ({}, None),
    "routed": (dict(route=Carry(start=1, end=2)), 6),
    "bottleneck and resolution": (dict(channels=3, patch=4, bottleneck=8, resolution=True), None),
}


@pytest.mark.parametrize("case", CASES)
def test_linears_equal_the_counter(case: str) -> None:
    """The counter knows no formula for CPU attention, so what it counts here is the linears
    alone."""
    changes, kept = CASES[case]
    model = Backbone(**(SIZES | changes))
    lengths = torch.tensor([7, 3])
    x_t = torch.randn(2, model.channels, 16, 16)
    tokens = (16 // model.patch) ** 2
    keep = None if kept is None else torch.arange(kept).expand(2, kept)
    text = (torch.randn(2, 7, 24), torch.arange(7) < lengths[:, None])
    with FlopCounterMode(display=False) as counter:
        model(x_t, torch.rand(2), text, keep=keep)
    flops = sum(forward_flops(model.sizes, tokens, int(length), kept).linears for length in lengths)
    assert counter.get_total_flops() == flops


def test_training_is_three_forwards_but_for_inputs_without_gradient() -> None:
    model = Backbone(**SIZES)
    text = (torch.randn(2, 5, 24), torch.ones(2, 5, dtype=torch.bool))
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(2, 4, 16, 16), torch.rand(2), text).pred.sum().backward()
    linears = 2 * 3 * forward_flops(model.sizes, 64, 5).linears
    # images, texts and times ask for none
    no_gradient = 2 * 2 * (64 * 16 * 32 + 5 * 24 * 32 + 256 * 32)
    assert counter.get_total_flops() == linears - no_gradient


def test_attention_by_hand() -> None:
    model = Backbone(**SIZES, route=Carry(start=1, end=2))
    scores_and_sums = 2 * 2 * 32  # multiply-adds over the width, twice
    assert forward_flops(model.sizes, 64, 7).attention == 4 * scores_and_sums * 64 * 71
    assert forward_flops(model.sizes, 64, 7, 16).attention == scores_and_sums * (
        2 * 64 * 71 + 2 * 16 * 23
    )
    assert training_flops(model.sizes, 64, 7) == 3 * forward_flops(model.sizes, 64, 7).total
