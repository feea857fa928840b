"""Numbers in bf16, 8 significant bits: rounding to them, the cast of a product's operands, and what else is computed so.

An operation in bf16 takes numbers that bf16 can hold and gives such numbers; inside it sums in fp32, as torch's own
kernels do. Its gradient is rounded on the way in and on the way out, as it would be between two bf16 tensors.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


def nearest(x: Tensor) -> Tensor:
    """fp32 values, each the nearest that bf16 can hold, ties to even.

    Inductor takes a cast to bf16 and back out of its graphs (its pass `pointless_convert`): what it is to keep is written
    in integers. A bf16 number is the upper half of an fp32 one.
    """
    if not torch.compiler.is_compiling():
        return x.bfloat16().float()
    bits = x.contiguous().view(torch.int32)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
    return torch.where(x.isnan(), x, upper.view(torch.float32))


class RoundTrip(torch.autograd.Function):
    """To bf16 and back, forward and backward."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return nearest(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return nearest(gradient)


def narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x, whose values and gradients the dtype can hold; it stays an fp32 tensor."""
    return x if dtype == torch.float32 else RoundTrip.apply(x)  # type: ignore[no-untyped-call]


class Cast(NamedTuple):
    """What happens to the operands and to the result of a matrix product.

    Emulated, they are rounded and multiplied in fp32: on CPUs without units for bf16 that is faster than torch's own
    products, and both sum in fp32. The backward's two products see rounded operands too, and their results are rounded.
    """

    dtype: torch.dtype
    emulated: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return narrowed(x.float(), self.dtype) if self.emulated else x.to(self.dtype)


EXACT = Cast(torch.float32)


def emulate_bf16(module: nn.Module) -> None:
    """Multiply in rounded fp32 numbers wherever the module would in bf16. Decided outside, as compiling is."""
    for part in module.modules():
        cast = vars(part).get("cast")
        if isinstance(cast, Cast) and cast.dtype == torch.bfloat16:
            vars(part)["cast"] = cast._replace(emulated=True)


class OpDtypes(NamedTuple):
    """The operations that are said to need fp32, and what each computes in."""

    norm: torch.dtype = torch.float32
    softmax: torch.dtype = torch.float32
    rope: torch.dtype = torch.float32
    time: torch.dtype = torch.float32


ALL_FP32 = OpDtypes()
