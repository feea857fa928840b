"""A linear layer that stores fp32, multiplies in the dtype it is told, and declares its parameters' roles and starts."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.model.bf16 import Cast
from fulcrum.model.init import ONE, InitialValue, fan_in
from fulcrum.model.roles import Role, Use


class Linear(nn.Linear):
    """The cast stands here and nowhere else: what is between two linears is fp32 arithmetic."""

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        role: Role,
        bias: bool = True,
        start: InitialValue | None = None,
        compute: torch.dtype = torch.float32,
        use: Use | None = None,
        whole: bool = True,  # false: it is never called, its weight is multiplied in parts
    ):
        super().__init__(inputs, outputs, bias=bias, dtype=torch.float32)
        self.use, self.whole = use, whole
        self.beside: nn.Module | None = None  # what learns in its place: `adapter`
        self.cast = Cast(compute)
        self.parameter_roles = {"weight": role, "bias": Role.vector} if bias else {"weight": role}
        self.parameter_starts = dict.fromkeys(self.parameter_roles, start or fan_in(inputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.product(x, self.weight, self.bias)
        return out if self.beside is None else out + self.beside(x)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x W' + b in the layer's dtype, with a part of its weight or the whole."""
        cast = self.cast
        return cast(F.linear(cast(x), cast(weight), None if bias is None else cast(bias)))


class Gain(nn.Module):
    """The learned gain of a norm, (D,), under the name `weight`; the norm itself is arithmetic of the caller."""

    parameter_roles = {"weight": Role.vector}
    parameter_starts = {"weight": ONE}

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.float32))
