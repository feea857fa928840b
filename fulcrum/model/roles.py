"""What each parameter is for: declared by the module where it is born, so that optimizers never guess from names.

The declaration is an attribute of the module, not of the Parameter: FSDP2 replaces Parameters by sharded ones.
"""

from collections.abc import Mapping
from enum import StrEnum

from torch import nn


class Role(StrEnum):
    matrix = "matrix"  # a 2-D weight inside a block: what Muon orthogonalises
    embed = "embed"  # brings an input into the stream: image patches, text, time, resolution
    head = "head"  # the last layer, out of the stream; a layer that joins two paths of it
    vector = "vector"  # biases, norm scales, single learned tokens


class Use(StrEnum):
    """What a layer of a block is for."""

    attention_in = "attention_in"  # queries, keys and values of the image
    attention_out = "attention_out"
    text = "text"  # keys and values of the text
    feed_forward = "feed_forward"
    modulation = "modulation"  # by time, and by what else the model is told


def words(module: nn.Module) -> dict[str, frozenset[str]]:
    """The words that every parameter is chosen by: its role, and what its layer is for if that is said."""
    uses: dict[str, str] = {prefix: part.use for prefix, part in module.named_modules() if getattr(part, "use", None)}
    return {
        name: frozenset({str(role)} | ({str(uses[layer])} if (layer := name.rpartition(".")[0]) in uses else set()))
        for name, role in roles(module).items()
    }


def roles(module: nn.Module) -> dict[str, Role]:
    """The role of every parameter by its full name; raises unless each is declared exactly once.

    A module declares with an attribute `parameter_roles`: {its own parameter's name, dotted if in a child: role}.
    """
    known: dict[str, Role] = {}
    for prefix, part in module.named_modules():
        declared: Mapping[str, Role] = getattr(part, "parameter_roles", {})
        for name, role in declared.items():
            full = f"{prefix}.{name}" if prefix else name
            if full in known:
                raise ValueError(f"parameter '{full}' has two roles, {known[full]} and {role}: declare it once")
            known[full] = Role(role)
    names = {name for name, _ in module.named_parameters()}
    if lost := sorted(names - known.keys()):
        raise ValueError(f"no role for {', '.join(lost)}: name each in `parameter_roles` of the module that makes it")
    if ghost := sorted(known.keys() - names):
        raise ValueError(f"a role for what is no parameter: {', '.join(ghost)}; correct `parameter_roles`")
    return {name: known[name] for name, _ in module.named_parameters()}
