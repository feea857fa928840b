"""Muon: orthogonal updates, torch's numbers up to its bf16, matrices only."""

import math

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from fulcrum.training.model.transformer import Cast
from fulcrum.training.optim import muon as orthogonal
from fulcrum.training.optim.muon import A, B, C, Muon, newton_schulz, orthogonalise
from fulcrum.training.optim.optimizers import AdamW, Joint, stalled_share

SHAPES = {"qkv": (48, 16), "out": (16, 16), "gate": (56, 16), "up": (56, 16), "down": (16, 56)}


def parameters() -> dict[str, Parameter]:
    g = torch.Generator().manual_seed(0)
    return {name: Parameter(torch.randn(shape, generator=g)) for name, shape in SHAPES.items()}


def give_gradients(held: dict[str, Parameter], step: int) -> None:
    g = torch.Generator().manual_seed(100 + step)
    for parameter in held.values():
        parameter.grad = torch.randn(parameter.shape, generator=g) * 1e-3


def by_singular_values(x: torch.Tensor) -> torch.Tensor:
    """The definition: the polynomial acts on each singular value of X / ||X|| and leaves the
    vectors alone."""
    u, s, vt = torch.linalg.svd(x.double() / x.double().norm(), full_matrices=False)
    for _ in range(5):
        s = A * s + B * s**3 + C * s**5
    return (u * s) @ vt


@pytest.mark.parametrize("shape", [(16, 16), (16, 24), (16, 56), (48, 16)])
def test_newton_schulz_is_the_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = by_singular_values(x)
    found = orthogonalise({"x": x})["x"]
    assert (found - expected).norm() < 1e-5 * expected.norm()
    assert torch.linalg.svdvals(found).min() > 0.5 and torch.linalg.svdvals(found).max() < 1.3


@pytest.mark.parametrize("tall", [False, True])
def test_through_the_gram_matrix_is_exact_when_ill_conditioned(monkeypatch, tall: bool) -> None:
    """Products of Gram matrices lose accuracy, so X is formed anew after three: all five in one go
    must be worse."""
    g = torch.Generator().manual_seed(1)
    left, right = (torch.linalg.qr(torch.randn(n, 32, generator=g))[0] for n in (32, 112))
    wide = (left * torch.logspace(0, -4, 32)) @ right.T  # (32, 112)
    x = wide.mT.contiguous() if tall else wide
    expected = by_singular_values(x)

    def error() -> float:
        return ((newton_schulz(x[None])[0] - expected).norm() / expected.norm()).item()

    assert error() < 3e-5
    monkeypatch.setattr(orthogonal, "AT_A_TIME", 5)
    assert error() > 1e-4


@pytest.mark.parametrize("shape", [(96, 576), (336, 96), (96, 96)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_equals_the_textbook(shape: tuple[int, int], scale: float) -> None:
    """A few strong directions above noise, as momentum has, against the iteration as it is written.

    In fp64: in fp32 the textbook's own form is 6e-6 away from it here, and so are we.
    """
    g = torch.Generator().manual_seed(2)
    strong = torch.randn(shape[0], 4, generator=g) @ torch.randn(4, shape[1], generator=g)
    x = scale * (strong + 0.03 * torch.randn(shape, generator=g))
    wide = (x if shape[0] <= shape[1] else x.T).double()
    expected = wide / wide.norm()
    for _ in range(5):
        gram = expected @ expected.T
        expected = A * expected + (B * gram + C * gram @ gram) @ expected
    expected = expected if shape[0] <= shape[1] else expected.T
    found = orthogonalise({"x": x})["x"]
    assert (found - expected).norm() < 1e-5 * expected.norm()


def test_batches_of_any_size_agree(monkeypatch) -> None:
    matrices = {name: p.detach() for name, p in parameters().items()}
    together = orthogonalise(matrices)
    monkeypatch.setitem(orthogonal.AT_ONCE, "cpu", 1)
    alone = orthogonalise(matrices)
    assert list(alone) == list(matrices)
    for name in matrices:
        torch.testing.assert_close(together[name], alone[name], rtol=1e-4, atol=1e-5)


def test_a_zero_gradient_moves_nothing() -> None:
    assert orthogonalise({"x": torch.zeros(4, 9)})["x"].count_nonzero() == 0


@pytest.mark.parametrize(
    ("compute", "emulated", "tolerance"),
    [(torch.float32, False, 0.02), (torch.bfloat16, False, 0.03), (torch.bfloat16, True, 0.03)],
)
def test_equals_torch(compute: torch.dtype, emulated: bool, tolerance: float) -> None:
    """torch iterates in bf16 always; that alone moves its update by one percent here (two roundings
    differ by more).

    In fp32 the same formula agrees to 1e-4: the next test.
    """
    ours, theirs = parameters(), parameters()
    start = parameters()
    rule = Muon(ours, lr=2e-3, compute=Cast(compute, emulated))
    peer = torch.optim.Muon(
        theirs.values(), lr=1e-3, weight_decay=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(4):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        rule.step(0.5)
        peer.step()
    for name in ours:
        moved = theirs[name] - start[name]
        assert (ours[name] - theirs[name]).norm() < tolerance * moved.norm(), name


def test_equals_torch_in_fp32(monkeypatch) -> None:
    """With torch's hard-coded cast to bf16 undone, only the order of summation differs."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self.clone())
    ours, theirs, start = parameters(), parameters(), parameters()
    rule = Muon(ours, lr=1e-3, weight_decay=0.1)
    peer = torch.optim.Muon(
        theirs.values(), lr=1e-3, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(4):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        rule.step()
        peer.step()
    for name in ours:
        assert (ours[name] - theirs[name]).norm() < 1e-4 * (theirs[name] - start[name]).norm(), name


def test_the_update_has_the_size_of_adamws() -> None:
    held, start = parameters(), parameters()
    rule = Muon(held, lr=1e-2)
    give_gradients(held, 0)
    rule.step()
    for name, parameter in held.items():
        rms = (parameter - start[name]).square().mean().sqrt().item()
        # RMS of a matrix with singular values one
        singular = math.sqrt(min(parameter.shape) / parameter.numel())
        assert rms == pytest.approx(
            1e-2 * 0.2 * math.sqrt(max(parameter.shape)) * singular, rel=0.2
        )
        assert rms == pytest.approx(1e-2 * 0.2, rel=0.2)


def test_resume_is_exact() -> None:
    def run(rule: Muon, steps: range) -> None:
        for step in steps:
            give_gradients(rule.parameters, step)
            rule.step()

    for state in (torch.float32, torch.bfloat16):
        whole, first = Muon(parameters(), state=state), Muon(parameters(), state=state)
        run(whole, range(4))
        run(first, range(2))
        second = Muon(
            {name: Parameter(p.detach().clone()) for name, p in first.parameters.items()},
            state=state,
        )
        for name, tensor in first.state().items():
            second.state()[name].copy_(tensor)
        run(second, range(2, 4))
        assert all(torch.equal(p, second.parameters[name]) for name, p in whole.parameters.items())
        assert set(second.state()) == {f"momentum/{name}" for name in SHAPES}


def test_bf16_storage() -> None:
    rule = Muon(parameters(), lr=1e-4, storage=torch.bfloat16)
    give_gradients(rule.parameters, 0)
    rule.step(watch=True)
    assert all(torch.equal(p, p.bfloat16().float()) for p in rule.parameters.values())
    assert stalled_share(rule.stalled) > 0.8


def test_only_matrices() -> None:
    with pytest.raises(ValueError, match="'bias' has shape"):
        Muon({"bias": Parameter(torch.zeros(3))})


def test_the_rest_is_updated_exactly_as_under_adamw() -> None:
    def trained(build) -> tuple[nn.Module, object]:
        torch.manual_seed(0)
        module = nn.Linear(12, 8)
        rule = build(module)
        module.weight.grad, module.bias.grad = torch.randn(8, 12), torch.randn(8)
        rule.step(0.5, watch=True)
        return module, rule

    with_muon, rule = trained(
        lambda m: Joint([Muon({"weight": m.weight}, lr=1e-3), AdamW({"bias": m.bias}, lr=1e-3)])
    )
    plain, _ = trained(lambda m: AdamW(dict(m.named_parameters()), lr=1e-3))
    assert torch.equal(with_muon.bias, plain.bias) and not torch.equal(
        with_muon.weight, plain.weight
    )
    assert rule.stalled[1] == 8 * 12 + 8
    assert set(rule.state()) == {"momentum/weight", "first/bias", "second/bias", "count/bias"}


def test_joint_refuses_a_shared_parameter() -> None:
    held = parameters()
    with pytest.raises(ValueError, match="two rules own"):
        Joint([AdamW({"up": held["up"]}), AdamW({"up": held["up"]})])
