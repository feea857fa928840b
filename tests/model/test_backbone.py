"""What must not change the numbers: padding, passes, recomputation, compilation, copies, reading
the text once."""

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from fulcrum.training.model import passes as room
from fulcrum.training.model.fillers import Carry
from fulcrum.training.model.passes import Passes, rows_per_pass
from fulcrum.training.model.transformer import (
    ONE_GRAPH,
    Backbone,
    compile_backbone,
    compile_blocks,
    gelu,
    pack_at_most,
    recompute_blocks,
)

SIZES = dict(channels=4, patch=2, width=16, depth=3, heads=2, text_width=8)
# Dynamo looks; nobody else does
LOOKS_ITSELF = "ignore:The .grad attribute of a Tensor that is not a leaf"


@pytest.fixture
def model() -> Backbone:
    made = Backbone(**SIZES, route=Carry(start=1, end=1))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return made


def inputs(batch: int = 4, lengths: tuple[int, ...] = (5, 2, 1, 3), seed: int = 0) -> tuple:
    generator = torch.Generator().manual_seed(seed)
    x_t, t = (
        torch.randn(batch, 4, 8, 8, generator=generator),
        torch.rand(batch, generator=generator),
    )
    emb = torch.randn(batch, max(lengths), 8, generator=generator)
    return x_t, t, (emb, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def gradients(model: Backbone, *given: object, **more: object) -> dict[str, torch.Tensor]:
    model.zero_grad()
    Passes(model)(*given, **more).pred.square().mean().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def test_padding_is_not_read(model: Backbone) -> None:
    x_t, t, (emb, mask) = inputs()
    expected = model(x_t, t, (emb, mask)).pred
    noise = torch.where(mask[..., None], emb, 1e4 * torch.randn_like(emb))
    assert torch.equal(model(x_t, t, (noise, mask)).pred, expected)
    longer = torch.nn.functional.pad(noise, (0, 0, 0, 9)), torch.nn.functional.pad(mask, (0, 9))
    assert (model(x_t, t, longer).pred - expected).abs().max() < 1e-5 * expected.abs().max()
    cut = model(x_t[1:2], t[1:2], (emb[1:2, :2], None)).pred
    assert (cut - expected[1:2]).abs().max() < 1e-5 * expected[1:2].abs().max()
    # and without the mask it is
    assert (model(x_t, t, (noise, None)).pred - expected).abs().max() > 1e-2


def test_where_tokens_are_not_counted_as_many_rows_are_taken_as_may_be_real(
    model: Backbone,
) -> None:
    """Off the CPU: padding among them goes to its own place, which nobody reads, whatever it
    holds."""
    x_t, t, (emb, mask) = inputs()
    expected, real = model(x_t, t, (emb, mask)).pred, int(mask.sum())
    noise = torch.where(mask[..., None], emb, 1e4 * torch.randn_like(emb))
    assert real + 2 < mask.numel()
    for most in (real, real + 2, mask.numel(), 10 * mask.numel()):
        packed = pack_at_most(noise, mask, most)
        assert len(packed.rows) == min(most, mask.numel())
        torch.testing.assert_close(model(x_t, t, packed).pred, expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=f"{real} tokens are real, and at most {real - 1}"):
        model(x_t, t, (emb, mask, real - 1))


def test_the_mask_is_never_spread_over_heads_and_queries(
    model: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def watched(q, k, v, attn_mask=None):
        shapes.append((tuple(attn_mask.shape), attn_mask.untyped_storage().nbytes()))
        return attend(q, k, v, attn_mask=attn_mask)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    model(*inputs())
    assert shapes == [((4, 1, 1, 8 + 16), 4 * 4 * 24)] * 3


def test_reading_the_text_once_is_the_same(model: Backbone) -> None:
    x_t, t, text = inputs()
    read = model.read_text(text)
    for time in (t, t * 0.5):
        assert torch.equal(model(x_t, time, read).pred, model(x_t, time, text).pred)


def test_passes_add_up_to_the_batch(model: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    x_t, t, text = inputs()
    keep = torch.arange(0, 16, 2).expand(4, 8)
    whole, expected = (
        model(x_t, t, text, keep=keep, taps=(0, 1)),
        gradients(model, x_t, t, text, keep=keep),
    )
    monkeypatch.setattr(room, "CACHED_TOKENS", 32)
    passed = Passes(model)(x_t, t, text, keep=keep, taps=(0, 1))
    assert (passed.pred - whole.pred).abs().max() < 1e-5 * whole.pred.abs().max()
    for layer in (0, 1):
        stream = whole.taps[layer].h
        assert (passed.taps[layer].h - stream).abs().max() < 1e-5 * stream.abs().max()
    assert passed.taps[0].index is None and torch.equal(passed.taps[1].index, keep)
    for name, grad in gradients(model, x_t, t, text, keep=keep).items():
        assert (grad - expected[name]).abs().max() <= 1e-5 * expected[name].abs().max() + 1e-7, name
    read = Passes(model)(x_t, t, model.read_text(text), keep=keep)
    assert (read.pred - whole.pred).abs().max() < 1e-5 * whole.pred.abs().max()


def test_passes_are_equal_parts() -> None:
    cpu = torch.device("cpu")
    assert rows_per_pass(64, 16, cpu) * 16 <= room.CACHED_TOKENS
    for batch, tokens in ((64, 64), (64, 256), (48, 100), (7, 256), (2, 4096)):
        rows = rows_per_pass(batch, tokens, cpu)
        assert batch % rows == 0 and (rows * tokens <= room.CACHED_TOKENS or rows == 1)
    assert rows_per_pass(64, 256, torch.device("meta")) == 64


def test_recomputed_activations_give_the_same_bits(model: Backbone) -> None:
    given = inputs()
    expected = gradients(model, *given)
    recompute_blocks(model)
    found = gradients(model, *given)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.filterwarnings(LOOKS_ITSELF)
def test_one_graph_without_breaks_serves_all_blocks_and_captions(model: Backbone) -> None:
    given = [inputs(), inputs(lengths=(4, 5, 2, 3), seed=1), inputs(lengths=(1, 5, 1, 1), seed=2)]
    expected = [gradients(model, *each) for each in given]
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compile_blocks(model, backend=counter)
    for each, wanted in zip(given, expected, strict=True):
        for name, grad in gradients(model, *each).items():
            assert (grad - wanted[name]).abs().max() <= 1e-5 * wanted[name].abs().max() + 1e-7, name
    assert counter.frame_count == 1
    keep = torch.arange(0, 16, 2).expand(4, 8)
    gradients(model, *given[0], keep=keep)
    assert counter.frame_count == 2  # the routed span has fewer tokens, and its own rotary rows
    torch._dynamo.reset()


@pytest.mark.filterwarnings(LOOKS_ITSELF)
def test_a_shallow_stack_is_one_graph_for_captions_of_any_length(model: Backbone) -> None:
    given = [inputs(), inputs(lengths=(4, 5, 2, 3), seed=1), inputs(lengths=(1, 5, 1, 1), seed=2)]
    expected = [gradients(model, *each) for each in given]
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compile_backbone(model, backend=counter)
    for each, wanted in zip(given, expected, strict=True):
        for name, grad in gradients(model, *each).items():
            assert (grad - wanted[name]).abs().max() <= 1e-5 * wanted[name].abs().max() + 1e-7, name
    assert counter.frame_count == 1
    out = Passes(model)(*given[0], keep=torch.arange(0, 16, 2).expand(4, 8), taps=(0, 1))
    assert counter.frame_count == 2 and out.taps[1].h.shape[1] == 8
    torch._dynamo.reset()


def test_a_deep_stack_is_compiled_by_blocks() -> None:
    deep = Backbone(channels=2, patch=2, width=8, depth=ONE_GRAPH + 1, heads=1, text_width=4)
    compile_backbone(deep, backend="eager")
    assert deep.runner is None and all(block.runner is not None for block in deep.blocks)


def test_a_copy_computes_the_same_and_is_its_own(model: Backbone) -> None:
    given = inputs()
    twin = copy.deepcopy(model)
    assert torch.equal(twin(*given).pred, model(*given).pred)
    with torch.no_grad():
        twin.blocks[0].up_proj.weight.zero_()
    assert not torch.equal(twin(*given).pred, model(*given).pred)


@pytest.mark.filterwarnings(LOOKS_ITSELF)
def test_a_copy_of_a_compiled_model_is_free(model: Backbone) -> None:
    compile_blocks(model, backend="eager")
    twin = copy.deepcopy(model)
    given = inputs()
    with torch.no_grad():
        twin.blocks[0].up_proj.weight.zero_()
    assert not torch.equal(twin(*given).pred, model(*given).pred)
    torch._dynamo.reset()


def test_low_precision_touches_the_linears_only() -> None:
    exact, low = Backbone(**SIZES), Backbone(**SIZES, compute=torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in exact.parameters():
            parameter.normal_(std=0.2, generator=generator)
    low.load_state_dict(exact.state_dict())
    given = inputs()
    expected, found = exact(*given), low(*given, taps=(0,))
    assert found.pred.dtype == torch.float32 and found.taps[0].h.dtype == torch.float32
    assert all(parameter.dtype == torch.float32 for parameter in low.parameters())
    error = (found.pred - expected.pred).abs().max() / expected.pred.abs().max()
    assert 1e-5 < error < 0.05
    grads = gradients(low, *given)
    assert all(grad.dtype == torch.float32 for grad in grads.values())


def test_gelu_is_the_tanh_form() -> None:
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    assert (gelu(x) - torch.nn.functional.gelu(x, approximate="tanh")).abs().max() < 1e-12
    single = torch.tensor([-1e4, -50.0, 0.0, 50.0, 1e4], requires_grad=True)
    gelu(single).sum().backward()
    assert single.grad.tolist() == [0, 0, 0.5, 1, 1]


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(heads=3), "not divisible by heads"),
        (dict(heads=8), "multiple of 4"),
        (dict(axes=(4, 6)), "add up to the head width 8"),
    ],
)
def test_impossible_sizes_say_so(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Backbone(**(SIZES | changes))


@pytest.mark.parametrize(
    "shape", [(2, 5, 8, 8), (4, 8, 8), (2, 4, 7, 8), (2, 4, 8, 7), (1, 2, 4, 8, 8)]
)
def test_a_picture_of_another_shape_says_so(model: Backbone, shape: tuple[int, ...]) -> None:
    _, t, text = inputs()
    with pytest.raises(
        ValueError, match=r"x_t must be \(B, 4, h, w\) with h and w multiples of patch 2, found"
    ):
        model(torch.zeros(shape), t, text)


def test_a_mask_of_another_length_says_so(model: Backbone) -> None:
    x_t, t, (emb, mask) = inputs()
    with pytest.raises(ValueError, match="mask must be"):
        model(x_t, t, (emb, mask[:, :3]))


def test_size_conditions_where_the_model_was_built_for_it() -> None:
    model = Backbone(**SIZES, resolution=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    x_t, t, text = inputs()
    own = model(x_t, t, text).pred
    told = model(x_t, t, text, size=torch.tensor([8.0, 8.0]).expand(4, 2)).pred
    other = model(x_t, t, text, size=torch.tensor([64.0, 8.0]).expand(4, 2)).pred
    assert torch.equal(own, told) and (own - other).abs().max() > 1e-3
