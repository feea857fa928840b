"""Weights that stay, and products beside them: chosen by role, merged without a trace, known to the
formulas of cost."""

import pytest
import torch

from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import layers, learned_weights, own_parameters, parameters, sizes_of
from fulcrum.spec.run import System
from fulcrum.training.build import Context, build
from fulcrum.training.model.adapter import is_beside, merged
from fulcrum.training.model.fillers import ChosenWeights
from fulcrum.training.model.parameters import words
from fulcrum.training.model.transformer import Linear

START = "start=stand_in"
EVERYWHERE = "lora(rank=3, alpha=6, targets=[matrix, embed, head])"
PARTS = (
    "spark",
    "spark + sprint(drop=0.5)",
    "spark + bottleneck(width=8)",
    "spark + resolution_condition",
)


def begun(run):
    return build(run, start=run.start.build(Context(run, 0, System())))


def stirred(step):
    """Products that do something: `up` begins at zero."""
    with torch.no_grad():
        for name, weight in step.backbone.named_parameters():
            if name.endswith("beside.up"):
                weight.normal_(std=0.1)
    return step


def seen_by(backbone, pictures):
    return backbone(*pictures).pred


@pytest.fixture
def pictures():
    return torch.randn(2, 8, 8, 8), torch.rand(2), (torch.randn(2, 5, 96), None)


@pytest.mark.parametrize("text", PARTS)
def test_the_formulas_know_the_layers_that_are_built(tiny, text):
    """Names, sizes and words; those of a condition they know by their cost alone."""
    run = tiny(text)
    backbone = build(run).backbone
    known = words(backbone)
    found = {
        name: (
            known[f"{name}.weight"],
            layer.in_features,
            layer.out_features,
            layer.bias is not None,
        )
        for name, layer in backbone.named_modules()
        if isinstance(layer, Linear) and not name.startswith("resolution_embedder")
    }
    expected = {
        layer.name if layer.block is None else f"blocks.{layer.block}.{layer.name}": (
            layer.words,
            layer.inputs,
            layer.outputs,
            layer.bias,
        )
        for layer in layers(sizes_of(run))
    }
    assert found == expected


def test_a_product_that_begins_at_zero_changes_nothing_and_one_that_moved_is_merged(tiny, pictures):
    plain, step = begun(tiny("spark", START)), begun(tiny(f"spark + {EVERYWHERE}", START))
    before = seen_by(plain.backbone, pictures)
    assert torch.equal(seen_by(step.backbone, pictures), before)
    after = seen_by(stirred(step).backbone, pictures)
    assert (after - before).abs().max() > 0.01
    plain.backbone.load_state_dict(merged(step.backbone.state_dict()))
    assert (seen_by(plain.backbone, pictures) - after).abs().max() <= 1e-5 * after.abs().max()


def test_only_products_get_a_gradient_and_their_number_is_known(tiny):
    run = tiny(f"spark + {EVERYWHERE}", START)
    backbone = begun(run).backbone
    moving = {
        name: weight.numel() for name, weight in backbone.named_parameters() if weight.requires_grad
    }
    assert moving and all(map(is_beside, moving))
    assert sum(moving.values()) == parameters(run) - own_parameters(run)


@pytest.mark.parametrize("roles", ["matrix", "vector", "[embed, head]", "[text, modulation]"])
@pytest.mark.parametrize("bounds", ["", ", start=-2", ", start=1, end=2"])
def test_the_chosen_weights_are_counted_as_they_are_built(tiny, roles, bounds):
    run = tiny(f"spark + train_only(roles={roles}{bounds})", START)
    if "embed" in roles and bounds:
        with pytest.raises(BadInput, match="nothing in it has the chosen role"):
            build(run)
        return
    backbone = begun(run).backbone
    built = sum(weight.numel() for weight in backbone.parameters() if weight.requires_grad)
    assert (
        built
        == learned_weights(
            sizes_of(run), run.model.learned, 3 * (run.model.width // run.model.heads)
        )
        > 0
    )
    inside = {
        name.split(".")[1] for name, weight in backbone.named_parameters() if weight.requires_grad
    } & set("0123")
    assert not bounds or inside == ({"2", "3"} if bounds == ", start=-2" else {"1", "2"})


def test_a_layer_that_is_multiplied_in_halves_has_no_product_beside_it(tiny):
    backbone = build(tiny("spark + sprint(drop=0.5) + lora(rank=3, targets=head)", START)).backbone
    names = {name for name, _ in backbone.named_parameters() if is_beside(name)}
    assert names and all(name.startswith("final_layer.") for name in names)


def test_a_rank_that_does_not_fit_is_refused_when_it_is_built_too(tiny):
    """A pipeline brings its own sizes after the lever has looked."""
    from fulcrum.spec.edit import put

    run = put(tiny("spark + lora(rank=8)", START), "model.learned.rank", 32)
    with pytest.raises(
        BadInput, match="rank 32 beside 'blocks.0.attention.img_qkv_proj', which has 32 inputs"
    ):
        build(run)


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (0, 1, [0, 1]),
        (None, 0, [0]),
        (0, None, [0, 1, 2, 3]),
        (-1, None, [3]),
        (1, -2, [1, 2]),
        (-4, -4, [0]),
    ],
)
def test_ends_of_chosen_blocks_count_from_both_sides(start, end, wanted):
    chosen = ChosenWeights(roles=("attention_in",), start=start, end=end)
    assert [block for block in range(4) if chosen.learns(["attention_in"], block, 4)] == wanted
    assert not chosen.learns(["attention_in"], None, 4) and not chosen.learns(
        ["mlp_in"], wanted[0], 4
    )
