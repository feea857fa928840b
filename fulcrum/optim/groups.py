"""Which rule updates which parameter: decided by roles, never by parts of a name."""

from collections.abc import Iterable, Mapping

from torch.nn import Parameter


def groups(
    named_parameters: Iterable[tuple[str, Parameter]], roles: Mapping[str, str], rule: Mapping[str, str]
) -> dict[str, dict[str, Parameter]]:
    """Deal the trainable parameters to groups: {group: {parameter name: parameter}}.

    `roles` gives each parameter's role (matrix, embed, head, vector), `rule` each role's group, e.g.
    `{"matrix": "muon", "embed": "adamw", "head": "adamw", "vector": "adamw"}`. Every trainable parameter ends in
    exactly one group, or this raises. A frozen parameter (requires_grad=False) is in none; a group is empty only if all
    that would be in it are frozen, or this raises too.
    """
    all_named = list(named_parameters)
    stray = sorted(set(roles) - {name for name, _ in all_named})
    if stray:
        raise ValueError(
            f"roles were declared for {stray[:3]}, which the model does not have; "
            "take the roles and the parameters from the same module"
        )
    dealt: dict[str, dict[str, Parameter]] = {group: {} for group in rule.values()}
    first_name: dict[int, str] = {}
    for name, parameter in all_named:
        if not parameter.requires_grad:
            continue
        if id(parameter) in first_name:
            raise ValueError(
                f"parameter {name!r} is the same tensor as {first_name[id(parameter)]!r} and would be "
                "updated twice; list a shared parameter once (named_parameters() does so by itself)"
            )
        first_name[id(parameter)] = name
        if name not in roles:
            raise ValueError(
                f"parameter {name!r} {tuple(parameter.shape)} has no role; "
                "declare matrix, embed, head or vector in the module where it is born"
            )
        role = roles[name]
        if role not in rule:
            raise ValueError(
                f"parameter {name!r} has the role {str(role)!r}, but the optimizer places only "
                f"{sorted(str(known) for known in rule)}; give that role a group"
            )
        dealt[rule[role]][name] = parameter
    frozen = {rule.get(roles[name]) for name, parameter in all_named if not parameter.requires_grad and name in roles}
    empty = [group for group, members in dealt.items() if not members and group not in frozen]
    if empty:
        raise ValueError(
            f"the optimizer's group {empty[0]!r} got no parameter, so it would do nothing; "
            f"the model has the roles {sorted({str(role) for role in roles.values()})}"
        )
    return dealt
