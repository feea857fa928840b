"""Every parameter has exactly one role, declared where it is born."""

import pytest
import torch
from torch import nn

from fulcrum.training.model.parameters import Role, roles
from fulcrum.training.model.transformer import Backbone

SIZES = dict(
    channels=3, patch=2, width=16, depth=2, heads=2, text_width=8, bottleneck=4, resolution=True
)


def test_all_parameters_of_the_backbone_have_the_expected_role() -> None:
    model = Backbone(**SIZES)
    found = roles(model)
    assert list(found) == [name for name, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            expected = Role.vector
        elif name.startswith("blocks."):
            expected = Role.matrix
        elif name.startswith("final_layer."):
            expected = Role.head
        else:
            expected = Role.embed
        assert found[name] is expected, name


def test_roles_survive_new_parameter_objects() -> None:
    """FSDP2 replaces every Parameter by a sharded one; the declaration must not sit on the
    object."""
    model = Backbone(**SIZES)
    before = roles(model)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.detach().clone()))
    assert roles(model) == before


def test_a_parameter_without_a_role_is_an_error() -> None:
    model = Backbone(**SIZES)
    model.mask_token = nn.Parameter(torch.zeros(16))
    with pytest.raises(ValueError, match="no role for mask_token"):
        roles(model)


def test_two_roles_and_roles_of_nothing_are_errors() -> None:
    model = Backbone(**SIZES)
    model.parameter_roles = {"txt_in.weight": Role.matrix}
    with pytest.raises(ValueError, match="'txt_in.weight' has two roles"):
        roles(model)
    model.parameter_roles = {"ghost": Role.vector}
    with pytest.raises(ValueError, match="no parameter: ghost"):
        roles(model)
