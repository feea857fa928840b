"""One probed step: it changes nothing, and says in which formats the sensitive operations really
ran."""

import time

import pytest
import torch
from torch import nn

from fulcrum.advice.audit import audit_step, probe_step


class Block(nn.Module):
    """Attention with rotary positions and a time, each of which may be computed in its own
    format."""

    def __init__(self, width=32, stored=torch.float32, sensitive=torch.float32):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.time, self.drop, self.batch = (
            nn.Linear(8, width),
            nn.Dropout(0.1),
            nn.BatchNorm1d(width),
        )
        self.sensitive = sensitive
        self.to(stored)
        self.register_buffer("freqs", 10_000 ** -torch.linspace(0, 1, width // 2), persistent=False)

    def forward(self, x, timestep):
        kind, low = self.sensitive, self.qkv.weight.dtype
        angles = timestep.to(kind)[:, None] * self.freqs[:8].to(kind)
        x = x + self.time(torch.cos(angles).to(low))[:, None]
        h = nn.functional.layer_norm(
            x.to(kind), x.shape[-1:], self.norm.weight.to(kind), self.norm.bias.to(kind)
        )
        q, k, v = self.qkv(h.to(low)).chunk(3, -1)
        places = torch.arange(x.shape[1])[:, None] * self.freqs
        cos, sin = (f(places).to(kind).repeat(1, 2) for f in (torch.cos, torch.sin))
        q, k = (one.to(kind) * cos + one.roll(1, -1).to(kind) * sin for one in (q, k))
        weights = (q @ k.transpose(1, 2)).softmax(-1).to(low)
        return self.drop(self.batch((weights @ v).transpose(1, 2)).transpose(1, 2))


def batch():
    torch.manual_seed(0)
    return torch.randn(4, 16, 32), torch.rand(4)


def formats(trace):
    return {
        kind: {one.formats for one in trace.of(kind)}
        for kind in ("norm", "softmax", "rope", "time", "loss")
    }


def test_a_step_in_fp32_has_no_fault():
    module = Block()
    audited = audit_step(module, *batch(), loss=lambda out: out.square().mean())
    assert audited.faults == []
    seen = formats(probe_step(module, *batch(), loss=lambda out: out.square().mean()))
    assert all(one == {"fp32"} for one in seen.values()), seen


def test_every_operation_in_bf16_is_seen_where_it_ran():
    module = Block(stored=torch.bfloat16, sensitive=torch.bfloat16)
    x, t = batch()
    audited = audit_step(module, x.bfloat16(), t, loss=lambda out: out.square().mean())
    found = {fault.rule: fault for fault in audited.faults}
    assert {
        "weights-in-bf16",
        "norm-in-bf16",
        "softmax-in-bf16",
        "rotary-in-bf16",
        "time-in-bf16",
        "loss-in-bf16",
    } == set(found)
    assert "test_probed_step.py" in found["softmax-in-bf16"].place and found[
        "softmax-in-bf16"
    ].place.startswith("Block")


def test_autocast_is_seen_as_it_works_and_not_as_it_is_meant():
    """The products run in bf16; norms and softmax in what autocast makes of them on this device."""
    module = Block()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trace = probe_step(module, *batch(), loss=lambda out: out.float().square().mean())
    norms = {one.operation: one.formats for one in trace.of("norm")}
    assert formats(trace)["loss"] == {"fp32"} and "bf16" not in formats(trace)["time"]
    # it is given what a product gave
    assert norms["native_layer_norm"] == "fp32" and norms["native_batch_norm"] == "bf16"


def test_nothing_is_changed():
    module, (x, t) = Block(), batch()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(5)
    expected = module(x, t)
    module.load_state_dict(before)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    probe_step(module, x, t, loss=lambda out: out.square().mean())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(module(x, t), expected)


def test_the_optimizer_is_looked_at():
    module = nn.Linear(64, 64).bfloat16()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-6)
    module(torch.randn(2, 64).bfloat16()).sum().backward()
    optimizer.step()
    found = {
        fault.rule
        for fault in audit_step(module, torch.randn(2, 64).bfloat16(), optimizer=optimizer).faults
    }
    assert found == {"weights-in-bf16", "optimizer-state-in-bf16", "updates-round-away"}


@pytest.mark.slow
def test_a_probed_step_costs_at_most_twice_its_time():
    module, x, t = Block(width=512).eval(), torch.randn(8, 256, 512), torch.rand(8)

    def seconds(call):
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
        return best

    def plain():
        return module(x, t).square().mean()

    assert seconds(
        lambda: probe_step(module, x, t, loss=lambda out: out.square().mean())
    ) < 2 * seconds(plain)
