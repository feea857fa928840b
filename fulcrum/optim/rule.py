"""What every update rule offers, and several rules acting as one."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.optim.optimizer_state import load_strictly, require_same_names
from fulcrum.optim.storage import StoredWeights, require_storable


class Rule(Protocol):
    """One update rule over the parameters it was built with."""

    store: StoredWeights
    """How it keeps the weights."""
    stalled: Tensor | None
    """(2,) of the last watched step, this rank's elements: [update rounded to nothing, update was not zero]."""

    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0, counts: Tensor | None = None) -> None:
        """Update the weights with `scale` times the rule's own learning rate; `watch` counts stalled elements.

        `at` says which step this is, in images seen before it: random rounding is keyed by it. `counts`, () bool on the
        weights' device: where it is false the gradients are not finite, and nothing at all must change; the host does not
        know, and must not ask. None: they are finite.
        """

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def state(self) -> dict[str, Tensor]:
        """The live state by "<slot>/<parameter name>"; sharded like its parameter. Not a copy."""

    def load(self, given: dict[str, Tensor]) -> None:
        """Take over a saved state; a missing, unknown or misshapen entry is an error and nothing is changed."""


class NamedRule:
    """What the rules here share: parameters by name, how their weights are kept, strict loading of the state."""

    def __init__(
        self, parameters: Mapping[str, Parameter], storage: torch.dtype, rounding: int | None, state: torch.dtype
    ) -> None:
        require_storable(state, "precision.optimizer")
        self.parameters, self.store = dict(parameters), StoredWeights(storage, rounding)
        self.stalled: Tensor | None = None
        self.slots: dict[str, dict[str, Tensor]] = {}  # what it remembers: slot -> parameter's name -> tensor
        self.store.start(self.parameters)

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        return {f"{slot}/{name}": tensor for slot, held in self.slots.items() for name, tensor in held.items()}

    def load(self, given: dict[str, Tensor]) -> None:
        load_strictly(self.state(), given)


class Joint:
    """Several rules that share a model, e.g. Muon for the matrices and AdamW for the rest."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        if not rules:
            raise ValueError("Joint needs at least one rule, found none; pass e.g. [Muon(...), AdamW(...)]")
        self.rules = list(rules)
        self.stalled: Tensor | None = None
        names = [name for rule in self.rules for name in rule.state()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two rules own the same state {twice[:3]}: build each from its own group of groups()")
        self.store = self.rules[0].store
        if any(rule.store != self.store for rule in self.rules):
            raise ValueError("the rules of one model keep weights differently: give all the same storage and rounding")

    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0, counts: Tensor | None = None) -> None:
        for rule in self.rules:
            rule.step(scale, watch, at, counts)
        self.stalled = (
            torch.stack([rule.stalled for rule in self.rules if rule.stalled is not None]).sum(0) if watch else None
        )

    def zero_grad(self) -> None:
        for rule in self.rules:
            rule.zero_grad()

    def state(self) -> dict[str, Tensor]:
        return {name: tensor for rule in self.rules for name, tensor in rule.state().items()}

    def load(self, given: dict[str, Tensor]) -> None:
        require_same_names(self.state(), given)  # all rules, before the first one takes anything
        for rule in self.rules:
            rule.load({name: given[name] for name in rule.state()})
