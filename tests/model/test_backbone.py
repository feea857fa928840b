"""The backbone beyond parity: routing, padding, roles, keyed starts, recomputation, compilation, cached text, FLOPs.

B batch, N tokens, K kept, L text tokens
"""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fulcrum.model.backbone import Backbone, compile_blocks, recompute_blocks
from fulcrum.model.flops import forward_flops
from fulcrum.model.init import initialise
from fulcrum.model.roles import Role, roles
from fulcrum.model.route import CarryRoute


def backbone(**changes):
    made = Backbone(**{"channels": 4, "patch": 2, "width": 32, "depth": 4, "heads": 2, "text_width": 12, **changes})
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.2, generator=generator)
    return made


def inputs(rows=3, length=6):
    generator = torch.Generator().manual_seed(1)
    x_t, t = torch.randn(rows, 4, 8, 8, generator=generator), torch.rand(rows, generator=generator)
    text = torch.randn(rows, length, 12, generator=generator)
    mask = torch.arange(length) < torch.tensor([6, 3, 1])[:rows, None]
    return x_t, t, (text, mask)


def test_padding_has_no_say():
    model, (x_t, t, (text, mask)) = backbone(), inputs()
    noisy = torch.where(mask[..., None], text, torch.full_like(text, 1e4))
    longer = (torch.cat([noisy, torch.ones(3, 5, 12)], 1), torch.cat([mask, torch.zeros(3, 5, dtype=torch.bool)], 1))
    expected = model(x_t, t, (text, mask)).pred
    assert torch.allclose(model(x_t, t, (noisy, mask)).pred, expected, atol=1e-5)
    assert torch.allclose(model(x_t, t, longer).pred, expected, atol=1e-5)


def test_a_row_does_not_depend_on_its_batch():
    model, (x_t, t, (text, mask)) = backbone(), inputs()
    whole = model(x_t, t, (text, mask)).pred
    alone = torch.cat([model(x_t[i:i + 1], t[i:i + 1], (text[i:i + 1], mask[i:i + 1])).pred for i in range(3)])
    assert torch.allclose(whole, alone, atol=1e-5)


def test_many_rows_go_through_in_several_passes_with_the_same_result():
    model = backbone()
    x_t, t, text = torch.randn(256, 4, 8, 8), torch.rand(256), torch.randn(256, 3, 12)
    mask = torch.ones(256, 3, dtype=torch.bool)
    whole = model(x_t, t, (text, mask), taps=(1,))
    parts = [model(x_t[i:i + 16], t[i:i + 16], (text[i:i + 16], mask[i:i + 16])).pred for i in range(0, 256, 16)]
    assert torch.allclose(whole.pred, torch.cat(parts), atol=1e-5) and whole.taps[1].h.shape == (256, 16, 32)


def test_keeping_every_token_equals_dense():
    model = backbone(route=CarryRoute(1, 2))
    every = torch.arange(16).expand(3, -1)
    x_t, t, text = inputs()
    assert torch.allclose(model(x_t, t, text, keep=every).pred, model(x_t, t, text).pred, atol=1e-5)


def test_dropped_tokens_pass_the_span_unchanged_and_taps_know_their_places():
    model = backbone(route=CarryRoute(1, 2))
    x_t, t, text = inputs()
    keep = torch.tensor([[0, 3, 5, 9], [1, 2, 3, 4], [7, 8, 9, 15]])
    out = model(x_t, t, text, keep=keep, taps=(0, 1, 2, 3))
    assert torch.equal(out.taps[1].index, keep) and out.taps[1].h.shape == (3, 4, 32)
    assert out.taps[3].h.shape == (3, 16, 32)
    before = out.taps[0].h
    merged = model.route.merge(out.taps[0], out.taps[2]).h
    dropped = torch.ones(3, 16, dtype=torch.bool).scatter(1, keep, False)
    assert torch.equal(merged[dropped], before[dropped]) and not torch.allclose(merged[~dropped], before[~dropped])


def test_text_can_be_read_once_for_many_steps():
    model, (x_t, t, text) = backbone(), inputs()
    read = model.read_text(text)
    assert torch.allclose(model(x_t, t, read).pred, model(x_t, t, text).pred, atol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"bottleneck": 6}, {"resolution": True}])
def test_every_parameter_has_one_role(changes):
    found = roles(backbone(**changes))
    assert found["blocks.0.attention.img_qkv_proj.weight"] == Role.matrix
    assert found["blocks.0.modulation.lin.weight"] == Role.matrix and found["final_layer.linear.weight"] == Role.head
    assert found["txt_in.weight"] == Role.embed and found["blocks.3.attention.norm_q.weight"] == Role.vector


def test_a_parameter_without_a_role_is_an_error():
    model = backbone()
    model.extra = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(ValueError, match="no role for extra"):
        roles(model)


def test_the_start_of_a_parameter_depends_on_its_name_and_the_seed_only():
    shallow, deep, other = backbone(), backbone(depth=6), backbone()
    initialise(shallow, 0)
    initialise(deep, 0)
    initialise(other, 1)
    shared = dict(shallow.named_parameters())
    assert all(torch.equal(parameter, dict(deep.named_parameters())[name]) for name, parameter in shared.items())
    name = "blocks.1.gate_proj.weight"
    assert not torch.equal(shared[name], dict(other.named_parameters())[name])
    assert not torch.equal(shared[name], shared["blocks.2.gate_proj.weight"])
    assert not shallow.final_layer.linear.weight.any()


def test_recomputing_blocks_changes_no_bit():
    plain, again = backbone(), backbone()
    recompute_blocks(again)
    for model in (plain, again):
        model(*inputs()).pred.square().mean().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), again.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:.*is not a leaf Tensor.*")
def test_blocks_compile_without_a_graph_break():
    plain, compiled = backbone(), backbone()
    compile_blocks(compiled, backend="aot_eager")             # fullgraph: a break is an error
    for model in (plain, compiled):
        model(*inputs()).pred.square().mean().backward()
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_linear_flops_are_what_torch_counts():
    model, (x_t, t, (text, _)) = backbone(), inputs()
    with FlopCounterMode(display=False) as counter:
        model(x_t, t, (text, torch.ones(3, 6, dtype=torch.bool)))
    counted = sum(flops for op, flops in counter.get_flop_counts()["Global"].items() if "mm" in str(op))
    assert counted == pytest.approx(3 * forward_flops(model, 16, 6).linears, rel=0.01)


def test_attention_flops_by_hand():
    # two heads of 16: q k' is 2 N (N+L) 32, the sum of values the same, in each of four blocks
    assert forward_flops(backbone(), 16, 6).attention == 4 * (2 * 16 * 22 * 32) * 2


def test_impossible_inputs_say_what_was_expected():
    model, (x_t, t, text) = backbone(), inputs()
    with pytest.raises(ValueError, match="multiples of patch"):
        model(x_t[..., :7], t, text)
    with pytest.raises(ValueError, match="no block to tap"):
        model(x_t, t, text, taps=(9,))
    with pytest.raises(ValueError, match="the route is dense"):
        model(x_t, t, text, keep=torch.zeros(3, 4, dtype=torch.long))
