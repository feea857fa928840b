"""Sentinel: a weight, a moment or an average whose numbers are not kept as the description says.

Weights of `precision.storage` bf16 are fp32 tensors whose values bf16 can hold (fulcrum/optim/storage.py): of these the
values are looked at, one tensor at a time and only on a CPU, where nobody waits for that.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fulcrum.dist.precision import DTYPES
from fulcrum.optim.optimizer_state import local
from fulcrum.train.build import Built


class DtypeDrift:
    """What the description of a run says of its dtypes; of a person's own rule or average, what they began with."""

    def __init__(self, built: Built) -> None:
        self.built, self.turn = built, 0
        run, parts = built.run, self._parts()
        self.expected = {name: {key: value.dtype for key, value in held.items()} for name, held in parts.items()}
        weights = dict.fromkeys(dict(built.step.backbone.named_parameters()), torch.float32)
        self.expected["weight"].update({f"backbone.{name}": dtype for name, dtype in weights.items()})
        if _ours(run.optim.rule):
            moment = DTYPES[run.precision.optimizer]
            self.expected["optimizer"] = {
                name: moment if value.ndim else value.dtype for name, value in parts["optimizer"].items()
            }
        if _ours(run.average):
            self.expected["average"] = {
                name: torch.float32 if value.is_floating_point() else value.dtype
                for name, value in parts["average"].items()
            }

    def found(self) -> str:
        """What has drifted, in a sentence; empty if nothing has. Only dtypes are looked at: no device is waited for."""
        for part, held in self._parts().items():
            for name, value in held.items():
                expected = self.expected[part].get(name, value.dtype)
                if value.dtype != expected:
                    return f"the {part} {name} is {_word(value.dtype)}, the description says {_word(expected)}"
        return self._unstorable()

    def _parts(self) -> dict[str, Mapping[str, Tensor]]:
        built = self.built
        weights = dict(built.step.named_parameters())
        return {"weight": weights, "optimizer": built.optimizer.state(), "average": built.average.state()}

    @torch.no_grad()
    def _unstorable(self) -> str:
        if self.built.run.precision.storage == "fp32" or self.built.system.device != "cpu":
            return ""
        weights = list(self.built.step.backbone.named_parameters())
        self.turn = (self.turn + 1) % len(weights)
        name, weight = weights[self.turn]
        values, dtype = local(weight), DTYPES[self.built.run.precision.storage]
        if torch.equal(values.to(dtype).to(values.dtype), values):
            return ""
        return (
            f"the weight {name} has values that {_word(dtype)} cannot hold, and the description says that it is stored so"
        )


def _ours(filler: object) -> bool:
    return type(filler).__module__.startswith("fulcrum.")


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
