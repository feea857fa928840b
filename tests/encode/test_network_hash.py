"""The hash of a network is remembered, and made again whenever a weight is another: however it was
written."""

import pytest
import torch
from torch import nn

from fulcrum.networks import network_hash as room
from fulcrum.networks.network_hash import network_hash

WAYS = {
    "through .data": lambda weight: weight.data.add_(1),
    "by an initialiser of .data": lambda weight: nn.init.normal_(weight.data),
    "through numpy": lambda weight: weight.detach().numpy().__setitem__(slice(None), 7),
    "in the order of its rows": lambda weight: weight.data.copy_(weight.data.flip(0)),
    "in two signs": lambda weight: weight.data.view(-1)[1:4:2].neg_(),
    "in all signs": lambda weight: weight.data.neg_(),
    "in its last bit": lambda weight: (
        weight.data.view(-1)[-1:].view(torch.uint8)[:1].bitwise_xor_(1)
    ),
    "by an optimizer": lambda weight: weight.data.sub_(1e-7 * weight.data),
}


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.ModuleList([nn.Linear(9, 7), nn.BatchNorm1d(3)]).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_a_weight_that_changes_is_seen_however_it_is_written(way, dtype):
    one = network(dtype)
    before = network_hash(one)
    WAYS[way](one[0].weight)
    other = network(dtype)
    other.load_state_dict(one.state_dict())
    assert network_hash(one) == network_hash(other) != before, (
        "the name of the network that it is now"
    )


@pytest.mark.parametrize("count", [1, 65535, 65536, 131075])
def test_every_stretch_of_a_tensor_is_looked_at(count):
    """Around the 65,536 words that a CPU looks at in one go, two numbers each."""
    one = nn.ParameterList([torch.zeros(2 * count + 1)])
    hashes = {network_hash(one)}
    for place in (0, 2 * count, -1, count):
        one[0].data[place] += 1
        hashes.add(network_hash(one))
    assert len(hashes) == 5


def test_tensors_of_any_kind_are_looked_at():
    one = network(torch.bfloat16)
    one.register_buffer("none", torch.empty(0))
    one.register_buffer("flag", torch.tensor(True))
    one.register_buffer("odd", torch.arange(9, dtype=torch.uint8)[1:])  # begins between two words
    one.register_buffer("strided", torch.arange(12.0).view(3, 4).T)
    hashes = [network_hash(one)]
    for name in ("flag", "odd", "strided"):
        getattr(one, name).data.zero_()
        hashes.append(network_hash(one))
    assert len(set(hashes)) == 4 and network_hash(one) == hashes[-1]


def test_one_that_stays_is_hashed_once(monkeypatch):
    made, own = [], room._content
    monkeypatch.setattr(room, "_content", lambda *about: made.append(1) or own(*about))
    one = network()
    with torch.inference_mode():
        one.register_buffer("drawn", torch.ones(3))  # torch counts no writes of such a one
    assert network_hash(one) == network_hash(one) and len(made) == 1
    one[0].weight.data = one[0].weight.data.clone()
    assert network_hash(one) and len(made) == 1, "elsewhere, with the same content"
