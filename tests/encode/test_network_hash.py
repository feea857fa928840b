"""The hash of a network is remembered, and made again when a weight is written to."""

import pytest
import torch
from torch import nn

from fulcrum.networks import network_hash as room
from fulcrum.networks.network_hash import network_hash

WAYS = {
    "in place": lambda weight: weight.add_(1),
    "by an initialiser": nn.init.normal_,
    "in the order of its rows": lambda weight: weight.copy_(weight.flip(0)),
    "in all signs": lambda weight: weight.neg_(),
    "in one number": lambda weight: weight.view(-1)[-1:].add_(1),
    "by another tensor": lambda weight: setattr(weight, "data", weight.data + 1),
}


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.ModuleList([nn.Linear(9, 7), nn.BatchNorm1d(3)]).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_a_weight_that_is_written_to_is_seen(way, dtype):
    one = network(dtype)
    before = network_hash(one)
    with torch.no_grad():
        WAYS[way](one[0].weight)
    other = network(dtype)
    other.load_state_dict(one.state_dict())
    assert network_hash(one) == network_hash(other) != before, (
        "the name of the network that it is now"
    )


def test_a_step_of_an_optimizer_is_seen():
    one = network()
    before = network_hash(one)
    one[0](torch.ones(2, 9)).sum().backward()
    torch.optim.AdamW(one.parameters()).step()
    assert network_hash(one) != before


def test_one_that_stays_is_hashed_once(monkeypatch):
    made, own = [], room._content
    monkeypatch.setattr(room, "_content", lambda *about: made.append(1) or own(*about))
    one = network()
    assert network_hash(one) == network_hash(one) and len(made) == 1
    with torch.inference_mode():
        one.register_buffer("drawn", torch.ones(3))  # torch counts no writes of such a one
    assert network_hash(one) == network_hash(one) and len(made) == 3
