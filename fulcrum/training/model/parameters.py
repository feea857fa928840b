"""Parameters: what each one is for, and how it begins. Both are declared where it is created."""

import hashlib
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor, nn

# --------------------------------------------------------------------------------------------------
# Roles. An optimizer chooses parameters by role and never by parts of names. The declaration is an
# attribute of the module, not of the Parameter, because FSDP2 replaces Parameters by sharded ones.


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
    modulation = "modulation"  # by the condition: time, and sizes if the model has them


def roles(module: nn.Module) -> dict[str, Role]:
    """Return the role of every parameter by its full name. Raise unless each is declared exactly
    once.

    A module declares roles in an attribute `parameter_roles`: {name of its parameter, dotted if it
    belongs to a child: role}.
    """
    known: dict[str, Role] = {}
    for prefix, part in module.named_modules():
        declared: Mapping[str, Role] = getattr(part, "parameter_roles", {})
        for name, role in declared.items():
            full = f"{prefix}.{name}" if prefix else name
            if full in known:
                raise ValueError(
                    f"parameter '{full}' has two roles, {known[full]} and {role}: declare it once"
                )
            known[full] = Role(role)
    names = {name for name, _ in module.named_parameters()}
    if lost := sorted(names - known.keys()):
        raise ValueError(
            f"no role for {', '.join(lost)}: name each in `parameter_roles` of the module that"
            " makes it"
        )
    if ghost := sorted(known.keys() - names):
        raise ValueError(
            f"a role for what is no parameter: {', '.join(ghost)}; correct `parameter_roles`"
        )
    return {name: known[name] for name, _ in module.named_parameters()}


def words(module: nn.Module) -> dict[str, frozenset[str]]:
    """Return the words that each parameter is chosen by: its role, and the use of its layer if that
    is declared."""
    uses: dict[str, str] = {
        prefix: part.use for prefix, part in module.named_modules() if getattr(part, "use", None)
    }
    chosen: dict[str, frozenset[str]] = {}
    for name, role in roles(module).items():
        use = uses.get(name.rpartition(".")[0])
        chosen[name] = frozenset({str(role)} if use is None else {str(role), str(use)})
    return chosen


# --------------------------------------------------------------------------------------------------
# Initial values. Each parameter depends on (seed, its name) alone.


class InitialValue(NamedTuple):
    """Uniform between two bounds; equal bounds are a constant."""

    low: float
    high: float


ZERO, ONE = InitialValue(0.0, 0.0), InitialValue(1.0, 1.0)


def fan_in(inputs: int) -> InitialValue:
    """Uniform within 1/sqrt(inputs): torch's own rule for weights and biases of linear layers,
    which PRX keeps."""
    bound = 1 / math.sqrt(inputs)
    return InitialValue(-bound, bound)


def starts(module: nn.Module) -> dict[str, InitialValue]:
    """Return the initial value of every parameter, as modules declare it in `parameter_starts`.
    Raise if one is not declared."""
    values: dict[str, InitialValue] = {}
    for prefix, part in module.named_modules():
        declared: Mapping[str, InitialValue] = getattr(part, "parameter_starts", {})
        values |= {
            f"{prefix}.{name}" if prefix else name: start for name, start in declared.items()
        }
    names = [name for name, _ in module.named_parameters()]
    if lost := [name for name in names if name not in values]:
        raise ValueError(
            f"no start for {', '.join(lost)}: name each in `parameter_starts` of the module that"
            " makes it"
        )
    return {name: values[name] for name in names}


def draw(name: str, shape: torch.Size, start: InitialValue, seed: int) -> Tensor:
    """Draw the whole parameter `name` of seed `seed`, in fp32 on the CPU."""
    if start.low == start.high:
        return torch.full(shape, start.low, dtype=torch.float32)
    key = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little")
    generator = torch.Generator().manual_seed(key >> 1)  # 63 bits: torch's seeds are signed
    return torch.empty(shape, dtype=torch.float32).uniform_(
        start.low, start.high, generator=generator
    )


@torch.no_grad()
def initialise(module: nn.Module, seed: int) -> None:
    """Fill every parameter in place, one at a time. `fulcrum.training.dist.shard` fills sharded
    ones."""
    how = starts(module)
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            raise ValueError(
                f"parameter '{name}' is on the meta device: call `to_empty(device=...)` before"
                " initialise"
            )
        parameter.copy_(draw(name, parameter.shape, how[name], seed))
