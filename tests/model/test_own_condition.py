"""The seam `model.condition`: a user's own part is added to the time vector, trained, saved and
drawn with."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fulcrum.spec.edit import key, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.run import System
from fulcrum.spec.slots import ConditionFiller
from fulcrum.training.build import build
from fulcrum.training.interop.diffusers import export
from fulcrum.training.model.fillers import NoCondition, Resolution
from fulcrum.training.model.parameters import Role
from fulcrum.training.model.transformer import Linear
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights


class Spread(nn.Module):
    """How far the noisy picture's channels are spread, as a vector."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.into = Linear(channels, width, Role.embed)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        return self.into(x_t.flatten(2).std(-1))  # (B, C) -> (B, D)


class Told(ConditionFiller):
    kind = "told_spread"
    channels: int = 8

    def parameters(self, width: int) -> int:
        return (self.channels + 1) * width

    def multiply_adds(self, width: int) -> int:
        return self.channels * width

    def build(self, ctx: Any) -> Any:
        return Spread(self.channels, ctx.run.model.width)


class Constant(ConditionFiller):
    kind = "constant"

    def build(self, ctx: Any) -> Any:
        return 0.5


def test_it_is_a_part_of_the_denoiser(tiny):
    run = tiny("spark")
    plain, own = build(run).backbone, build(put(run, "model.condition", Told())).backbone
    before, after = plain.state_dict(), own.state_dict()
    assert after.keys() - before.keys() == {"own_condition.into.weight", "own_condition.into.bias"}
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.no_grad():
        for model in (plain, own):
            for name, parameter in model.named_parameters():
                if "condition" not in name:
                    parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(len(name)))
        x_t, t, text = torch.randn(2, 8, 8, 8), torch.rand(2), (torch.randn(2, 3, 96), None)
        added = own.own_condition(x_t, t, None)
        assert torch.equal(own.condition(x_t, t, None), plain.condition(x_t, t, None) + added)
        assert not torch.equal(own(x_t, t, text).pred, plain(x_t, t, text).pred)


def test_it_is_trained_saved_and_drawn_with(tiny, tmp_path):
    # gates open after two steps
    run = put(tiny("spark", "budget.images=32", "budget.batch=8"), "model.condition", Told())
    result = perform(Order(run, 0, "test", tmp_path, System(), quiet=True), print)
    assert result["key"] == key(run, 0) != key(put(run, "model.condition", NoCondition()), 0)
    weights = trained_weights(RunFolder(tmp_path / result["key"]))
    begun = build(run).backbone.state_dict()["own_condition.into.weight"]
    assert not torch.equal(weights["own_condition.into.weight"], begun)
    painter = Painter(run, weights, run.encode.codec.build(None), run.encode.text.build(None))
    other = {**weights, "own_condition.into.weight": weights["own_condition.into.weight"] + 1}
    changed = Painter(run, other, run.encode.codec.build(None), run.encode.text.build(None))
    prompts = ["a red circle"]
    assert not torch.equal(
        painter.latents(prompts, 0, np.arange(1)), changed.latents(prompts, 0, np.arange(1))
    )


def test_it_costs_what_its_record_says(tiny):
    run = tiny("spark")
    told = put(run, "model.condition", Told())
    counted = [sum(p.numel() for p in build(each).backbone.parameters()) for each in (run, told)]
    assert [parameters(run), parameters(told)] == counted
    assert (
        denoiser_training_flops(told) - denoiser_training_flops(run) == 3 * 2 * 8 * run.model.width
    )


def test_what_cannot_be_exported_or_built_is_refused(tiny, tmp_path):
    with pytest.raises(BadInput, match="no slot for own_condition.into.bias"):
        export(build(put(tiny("spark"), "model.condition", Told())).backbone, tmp_path / "out")
    with pytest.raises(BadInput, match="the build of the condition gave float, not a torch module"):
        build(put(tiny("spark"), "model.condition", Constant()))
    resolution = build(put(tiny("spark"), "model.condition", Resolution())).backbone
    assert (
        resolution.resolution
        and "resolution_embedder.mlp.in_layer.weight" in resolution.state_dict()
    )
    assert export(resolution, tmp_path / "size").is_dir()
