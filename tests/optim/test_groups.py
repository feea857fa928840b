"""Every trainable parameter is in exactly one group, or the build fails."""

import pytest
import torch
from torch import nn

from fulcrum.training.optim.optimizers import groups

RULE = {"matrix": "muon", "vector": "adamw"}


def linear() -> tuple[nn.Module, dict[str, str]]:
    return nn.Linear(3, 2), {"weight": "matrix", "bias": "vector"}


def test_roles_decide() -> None:
    module, roles = linear()
    dealt = groups(module.named_parameters(), roles, RULE)
    assert {group: list(members) for group, members in dealt.items()} == {
        "muon": ["weight"],
        "adamw": ["bias"],
    }
    assert dealt["muon"]["weight"] is module.weight


def test_a_frozen_parameter_is_in_no_group() -> None:
    module = nn.ModuleDict(
        {"kept": nn.Linear(2, 2), "frozen": nn.Linear(2, 2).requires_grad_(False)}
    )
    dealt = groups(
        module.named_parameters(), {"kept.weight": "matrix", "kept.bias": "vector"}, RULE
    )
    assert sorted(name for members in dealt.values() for name in members) == [
        "kept.bias",
        "kept.weight",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, roles, rule: roles.pop("bias"), "'bias' .* has no role"),
        (lambda m, roles, rule: roles.update(ghost="matrix"), "ghost.*does not have"),
        (lambda m, roles, rule: roles.update(bias="wheel"), "role 'wheel'"),
        (lambda m, roles, rule: roles.update(weight="vector"), "group 'muon' got no parameter"),
        (
            lambda m, roles, rule: (
                m.register_parameter("again", m.weight),
                roles.update(again="matrix"),
            ),
            "same tensor",
        ),
    ],
)
def test_what_is_not_placed_once_is_refused(change, message) -> None:
    module, roles = linear()
    rule = dict(RULE)
    change(module, roles, rule)
    with pytest.raises(ValueError, match=message):
        groups(module.named_parameters(remove_duplicate=False), roles, rule)


def test_roles_may_be_a_string_enum() -> None:
    from enum import StrEnum

    role = StrEnum("Role", ["matrix", "vector"])
    module = nn.Linear(2, 2)
    dealt = groups(module.named_parameters(), {"weight": role.matrix, "bias": role.vector}, RULE)
    assert torch.equal(dealt["muon"]["weight"], module.weight)
