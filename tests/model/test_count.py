"""What is counted while a model runs equals what the formula and a hand count say."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from fulcrum.spec.flops import forward_flops
from fulcrum.training.model.counted_flops import FORMULAS, counted
from fulcrum.training.model.fillers import Carry
from fulcrum.training.model.transformer import ALIGN, Backbone

SIZES = dict(channels=4, patch=2, width=32, depth=4, heads=2, text_width=24)
# two rows: pictures, texts and times ask for none
NO_GRADIENT = 2 * 2 * (64 * 16 * 32 + 8 * 24 * 32 + 256 * 32)


def attend(grad: bool, mask: bool = False, dtype: torch.dtype = torch.float32) -> float:
    q, k, v = (
        torch.randn(2, 4, length, 8, dtype=dtype, requires_grad=grad) for length in (16, 24, 24)
    )
    bias = torch.zeros(2, 1, 1, 24, dtype=dtype) if mask else None

    def run() -> None:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        if grad:
            out.sum().backward()

    return counted(run)


@pytest.mark.parametrize("mask", [False, True])
def test_attention_by_hand(mask: bool) -> None:
    """q k' is 2 * 16 * 24 * 8 for each of 2 x 4 heads, and the sum of values costs the same."""
    forward = 2 * 4 * 2 * (2 * 16 * 24 * 8)
    assert attend(False, mask) == forward and attend(True, mask) == 3 * forward
    assert attend(True, mask, torch.bfloat16) == 3 * forward


def test_fused_equals_written_out() -> None:
    """The same attention as plain products, for which torch has its own formulas."""
    q, k, v = (torch.randn(8, length, 8, requires_grad=True) for length in (16, 24, 24))
    assert counted(lambda: torch.bmm(torch.bmm(q, k.mT).softmax(-1), v).sum().backward()) == attend(
        True
    )


@pytest.mark.parametrize("kept", [None, 16])
@pytest.mark.parametrize("train", [False, True])
def test_backbone_equals_the_formula(kept: int | None, train: bool) -> None:
    model = Backbone(**SIZES, route=None if kept is None else Carry(start=1, end=2))
    x_t, t, text = (
        torch.randn(2, 4, 16, 16),
        torch.rand(2),
        (torch.randn(2, 8, 24), torch.ones(2, 8, dtype=torch.bool)),
    )
    keep = None if kept is None else torch.arange(kept).expand(2, kept)

    def run() -> None:
        with torch.set_grad_enabled(train):
            out = model(x_t, t, text, keep=keep).pred
        if train:
            out.sum().backward()

    by_formula = 2 * forward_flops(model.sizes, 64, 8, kept).total
    assert counted(run) == (3 * by_formula - NO_GRADIENT if train else by_formula)


def test_padding_is_read_by_attention_but_not_projected() -> None:
    """The formula counts real text tokens; attention also reads padding, up to a multiple of 8
    keys."""
    model = Backbone(**SIZES)
    lengths = torch.tensor([7, 3])
    text = (torch.randn(2, 7, 24), torch.arange(7) < lengths[:, None])
    with torch.no_grad():
        found = counted(lambda: model(torch.randn(2, 4, 16, 16), torch.rand(2), text))
    linears = sum(forward_flops(model.sizes, 64, int(length)).linears for length in lengths)
    assert found == linears + 2 * forward_flops(model.sizes, 64, ALIGN).attention
    real = sum(forward_flops(model.sizes, 64, int(length)).total for length in lengths)
    assert real < found < 1.05 * real


@pytest.mark.parametrize("inference", [False, True])
def test_it_is_what_torchs_counter_finds(inference: bool) -> None:
    """With the same formulas; in inference mode linears and convolutions arrive whole and must be
    taken apart."""
    model, image = Backbone(**SIZES), torch.nn.Conv2d(4, 4, 3)
    x_t, t, text = torch.randn(2, 4, 16, 16), torch.rand(2), (torch.randn(2, 8, 24), None)

    def run() -> None:
        with torch.inference_mode(inference):
            out = model(image(F.pad(x_t, (1, 1, 1, 1))), t, text).pred.sum()
        if not inference:
            out.backward()

    with FlopCounterMode(display=False, custom_mapping=dict(FORMULAS)) as counter:
        run()
    model.zero_grad(), image.zero_grad()
    assert counted(run) == counter.get_total_flops() > 0


def test_nothing_leaks_between_countings() -> None:
    a = torch.randn(4, 4)
    assert counted(lambda: a @ a) == counted(lambda: a @ a) == 2 * 4**3
    assert counted(lambda: None) == 0
