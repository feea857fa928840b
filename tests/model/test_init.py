"""Initial values depend on (seed, name) alone."""

import pytest
import torch
from torch import nn

from fulcrum.training.model.parameters import ONE, InitialValue, draw, fan_in, initialise, starts
from fulcrum.training.model.transformer import Backbone

SIZES = dict(channels=3, patch=2, width=16, depth=2, heads=2, text_width=8)


def made(seed: int = 0, **changes: object) -> dict[str, torch.Tensor]:
    model = Backbone(**(SIZES | changes))
    initialise(model, seed)
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_a_deeper_model_begins_with_the_same_blocks() -> None:
    """Parameters are drawn on their own: what else the model holds does not matter."""
    shallow, deep = made(), made(depth=3, resolution=True)
    assert shallow.keys() < deep.keys()
    assert all(torch.equal(shallow[name], deep[name]) for name in shallow)


def test_seed_and_name_both_matter() -> None:
    zero, one = made(0), made(1)
    name, other = "blocks.0.gate_proj.weight", "blocks.0.up_proj.weight"
    assert not torch.equal(zero[name], one[name])
    assert not torch.equal(zero[name], zero[other])
    assert torch.equal(zero[name], made(0)[name])


def test_the_global_generator_is_not_touched() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = Backbone(**SIZES)
    torch.manual_seed(5)
    initialise(model, 0)
    assert torch.equal(torch.rand(3), expected)


def test_the_scheme_is_the_published_one() -> None:
    values = made()
    for name, value in values.items():
        if "modulation" in name or name.startswith("final_layer"):
            assert not value.any(), name
        elif "norm" in name:
            assert (value == 1).all(), name
        else:
            inputs = values[
                name.removesuffix("bias") + "weight" if name.endswith("bias") else name
            ].shape[1]
            assert value.abs().max() <= inputs**-0.5 and value.std() > 0.3 * inputs**-0.5, name


def test_meta_comes_to_life_with_the_same_values() -> None:
    with torch.device("meta"):
        model = Backbone(**SIZES)
    with pytest.raises(ValueError, match="to_empty"):
        initialise(model, 0)
    model.to_empty(device="cpu")
    initialise(model, 0)
    expected = made()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


def test_undeclared_parameters_are_an_error() -> None:
    model = Backbone(**SIZES)
    model.extra = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="no start for extra.weight, extra.bias"):
        starts(model)


def test_draw_fills_its_bounds() -> None:
    value = draw("w", torch.Size((4000,)), fan_in(4), seed=0)
    assert value.min() < -0.49 and value.max() < 0.5 < value.max() + 0.01
    assert (draw("w", torch.Size((3,)), ONE, 0) == 1).all()
    assert InitialValue(2.0, 2.0).low == 2.0
