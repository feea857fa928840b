"""What pictures are drawn with: only for a backbone whose passes it computes, and then with the
same numbers."""

import pytest
import torch

from fulcrum.training.model import fast_drawing as frozen_backbone
from fulcrum.training.model.fast_drawing import FrozenBackbone
from fulcrum.training.model.fillers import Carry
from fulcrum.training.model.transformer import Backbone, FuseRoute, OpDtypes, SizeCropIn

SIZES = dict(channels=4, patch=2, width=16, depth=3, heads=2, text_width=8)


def built(**other) -> Backbone:
    model, generator = Backbone(**SIZES, **other).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model


@pytest.mark.parametrize(
    ("fits", "other"),
    [
        (True, {}),
        (True, {"route": Carry(start=1, end=1)}),
        (False, {"route": FuseRoute(1, 1, 16)}),
        (False, {"resolution": True}),
        (False, {"condition": SizeCropIn(16, torch.float32, 8)}),
        (False, {"compute": torch.bfloat16}),
        (False, {"ops": OpDtypes(time=torch.bfloat16)}),
        (False, {"ops": OpDtypes(norm=torch.bfloat16)}),
    ],
)
def test_only_what_is_told_nothing_but_the_time_and_is_all_fp32(fits, other):
    """A condition that was left out would be a wrong picture, and no error."""
    assert FrozenBackbone.fits(built(**other)) is fits


def test_without_a_head_there_is_no_picture():
    model = built()
    model.final_layer = None
    assert not FrozenBackbone.fits(model)


def test_the_numbers_are_those_of_a_forward(monkeypatch):
    """Of several times and sizes, also of a time that was forgotten."""
    monkeypatch.setattr(frozen_backbone, "KEPT", 2)
    model, generator = built(), torch.Generator().manual_seed(1)
    frozen = FrozenBackbone(model)
    text = (
        torch.randn(2, 5, 8, generator=generator),
        torch.arange(5) < torch.tensor([5, 2])[:, None],
    )
    for t, (height, width) in ((0.9, (8, 6)), (0.5, (4, 8)), (0.1, (8, 6)), (0.9, (4, 8))):
        x_t = torch.randn(2, 4, height, width, generator=generator)
        with torch.no_grad():
            found, expected = (
                frozen(x_t, t, model.read_text(text)),
                model(x_t, torch.full((2,), t), text).pred,
            )
        assert (found - expected).abs().max() < 1e-5 * expected.abs().max()
        assert t in frozen.times and len(frozen.times) <= 2
