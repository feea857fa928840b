"""AdamW: torch's numbers, by parameter name, in the precision asked for."""

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from fulcrum.training.optim import optimizers as room
from fulcrum.training.optim.optimizers import AdamW, stalled_share


def parameters(seed: int = 0) -> dict[str, Parameter]:
    g = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (8, 5), "a.bias": (8,), "b.weight": (3, 8)}
    return {name: Parameter(torch.randn(shape, generator=g)) for name, shape in shapes.items()}


def give_gradients(held: dict[str, Parameter], step: int) -> None:
    g = torch.Generator().manual_seed(100 + step)
    for parameter in held.values():
        parameter.grad = torch.randn(parameter.shape, generator=g) * 1e-3


def run(rule: AdamW, steps: range, scale: float = 1.0) -> None:
    for step in steps:
        give_gradients(rule.parameters, step)
        rule.step(scale)
        rule.zero_grad()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_equals_torch(decay: float) -> None:
    ours, theirs = parameters(), parameters()
    rule = AdamW(ours, lr=2e-3, weight_decay=decay)
    peer = torch.optim.AdamW(
        theirs.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-15, weight_decay=decay, foreach=False
    )
    for step in range(5):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        rule.step(0.5)
        peer.step()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("state", [torch.float32, torch.bfloat16])
def test_resume_is_exact(state: torch.dtype) -> None:
    whole, first = AdamW(parameters(), state=state), AdamW(parameters(), state=state)
    run(whole, range(6))
    run(first, range(3))
    saved = {name: tensor.clone() for name, tensor in first.state().items()}
    second = AdamW(
        {name: Parameter(p.detach().clone()) for name, p in first.parameters.items()}, state=state
    )
    for name, tensor in second.state().items():
        tensor.copy_(saved[name])
    run(second, range(3, 6))
    assert all(torch.equal(p, second.parameters[name]) for name, p in whole.parameters.items())
    assert saved["first/a.weight"].dtype == state


def test_a_parameter_without_gradient_does_not_age() -> None:
    rule = AdamW(parameters())
    start = rule.parameters["a.bias"].detach().clone()
    give_gradients(rule.parameters, 0)
    rule.parameters["a.bias"].grad = None
    rule.step()
    assert torch.equal(rule.parameters["a.bias"], start) and rule.state()["count/a.bias"] == 0
    assert rule.state()["count/a.weight"] == 1


def test_bf16_storage_keeps_only_bf16_values_and_counts_what_it_swallows() -> None:
    stored, exact = (
        AdamW(parameters(), lr=1e-4, storage=torch.bfloat16),
        AdamW(parameters(), lr=1e-4),
    )
    for rule in (stored, exact):
        give_gradients(rule.parameters, 0)
        rule.step(watch=True)
    assert all(torch.equal(p, p.bfloat16().float()) for p in stored.parameters.values())
    # Steps of 1e-4 vanish in a bf16 weight of about one, whose neighbours are 2^-8 away; tiny
    # weights still move.
    assert stalled_share(stored.stalled) > 0.8
    assert stalled_share(exact.stalled) == 0.0
    assert stored.stalled[1] == sum(p.numel() for p in stored.parameters.values())


def test_the_start_is_stored_too_and_a_rate_of_zero_stalls_nothing() -> None:
    rule = AdamW(parameters(), storage=torch.bfloat16)
    assert all(torch.equal(p, p.bfloat16().float()) for p in rule.parameters.values())
    give_gradients(rule.parameters, 0)
    rule.step(0.0, watch=True)
    assert rule.stalled.tolist() == [0, 0] and stalled_share(rule.stalled) == 0


def test_rounding_is_to_nearest_even() -> None:
    ulp = 2.0**-7  # between bf16 neighbours from one to two
    held = {"w": Parameter(torch.tensor([1 + 0.5 * ulp, 1 + 1.5 * ulp, 1 + 0.6 * ulp]))}
    AdamW(held, storage=torch.bfloat16)
    assert held["w"].tolist() == [1.0, 1 + 2 * ulp, 1 + ulp]


def test_chunks_do_not_change_bf16_state(monkeypatch) -> None:
    one, many = AdamW(parameters(), state=torch.bfloat16), AdamW(parameters(), state=torch.bfloat16)
    run(one, range(3))
    monkeypatch.setattr(room, "ADAMW_CHUNK", 10)
    assert len(list(many._chunks())) == 1  # nobody has a gradient yet
    run(many, range(3))
    assert all(torch.equal(p, many.parameters[name]) for name, p in one.parameters.items())


def test_as_many_parameters_are_widened_at_a_time_as_fit(monkeypatch) -> None:
    """40, 8 and 24 numbers: the temporary memory is bounded, and used."""
    wide, narrow = AdamW(parameters()), AdamW(parameters(), state=torch.bfloat16)
    for rule in (wide, narrow):
        give_gradients(rule.parameters, 0)
    a, bias, b = narrow.parameters
    for limit, chunks in {
        10: [[a], [bias], [b]],
        48: [[a, bias], [b]],
        71: [[a, bias], [b]],
        72: [[a, bias, b]],
    }.items():
        monkeypatch.setattr(room, "ADAMW_CHUNK", limit)
        assert list(narrow._chunks()) == chunks and list(wide._chunks()) == [[a, bias, b]]


def test_bf16_state_learns_about_the_same() -> None:
    results = []
    for state in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        module, x = nn.Linear(6, 1), torch.randn(64, 6)
        rule = AdamW(dict(module.named_parameters()), lr=1e-2, state=state)
        for _ in range(150):
            loss = (module(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            rule.step()
            rule.zero_grad()
        results.append(loss.item())
    assert results[0] < 0.05 and results[1] < 0.1


def test_a_step_without_any_gradient_does_nothing() -> None:
    rule = AdamW(parameters())
    rule.step(watch=True)
    assert all(torch.equal(p, rule.parameters[name]) for name, p in parameters().items())
    assert rule.stalled.tolist() == [0, 0]
