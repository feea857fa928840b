"""What FSDP2 does on GPUs alone to what a step is given: it is walked through and built anew; no
CPU test comes there."""

import torch
from torch import Tensor
from torch.distributed.utils import _to_kwargs

from fulcrum.networks.rows import Batch
from fulcrum.training.feed import Feed
from fulcrum.training.flow.noise import Draw


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, Tensor) or one is None:
        assert one is other, "on its device already: not copied"
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name, part in one.items():
            assert_same(part, other[name])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for part, again in zip(one, other, strict=True):
            assert_same(part, again)
    else:
        assert one == other


def test_a_batch_and_a_draw_keep_their_form(tiny, cache):
    """Records within records, fields that are not there, dicts with nothing in them."""
    run = tiny("spark + tread(start=1, end=1) + repa + resolution_condition")
    feed = Feed(run, 0, cache)
    batch, draw = feed.at(0)
    given = (batch, draw, feed.weights(0))
    (taken,), _ = _to_kwargs(given, {}, torch.device("cpu"), False)
    assert (
        isinstance(taken[0], Batch)
        and isinstance(taken[1], Draw)
        and batch.teacher
        and draw.drop_path is None
    )
    assert_same(given, taken)
