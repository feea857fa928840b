"""One sensitive operation in bf16: norms, softmax, rotary positions, time, or loss; all else as it was."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from fulcrum.levers.base import Built, Card, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec

if TYPE_CHECKING:
    from torch import Tensor

Operation = Literal["norm", "softmax", "rope", "time", "loss"]


class BF16Op(Lever):
    op: Operation = "norm"  # norm of stream, queries and keys; softmax of the attention; rope; time; loss

    name = "bf16_op"
    touches = tuple(f"precision.{op}" for op in get_args(Operation))
    card = Card(
        says="one operation that is said to need fp32 computes in bf16: it takes and gives numbers with 8 bits of "
        "precision, gradients too, and sums in fp32 inside, as torch's kernels do",
        warns="PRX Part 2 names such operations and measures none: no claim. Its released code has two of them in bf16 by "
        "accident (fault A18: FSDP casts the time and the rotary table at the door of each block), here op=time and "
        "op=rope. A time near 1 is then a multiple of 1/256. op=softmax stores the scores, which a fused kernel does not: "
        "slower, and more memory with many tokens",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, f"precision.{self.op}", "bf16")

    def witness(self, built: Built) -> bool:
        """What the built model makes of numbers that bf16 cannot hold, where it computes this operation."""
        return PROBES[self.op](built)


def _holds(x: "Tensor") -> bool:
    return bool((x == x.bfloat16().float()).all())


def _numbers(*shape: int) -> "Tensor":
    import torch

    return torch.linspace(-1.5, 1.5, torch.Size(shape).numel()).reshape(shape)


def _norm(built: Built) -> bool:
    return all(_holds(block.norm(_numbers(3, 7))) for block in built.step.backbone.blocks)


def _softmax(built: Built) -> bool:
    """Scores of 8 and 8.01 are the same number in bf16: two opposite values then cancel."""
    import torch

    q, k, v = torch.ones(1, 1, 1, 1), torch.tensor([8.0, 8.01]).reshape(1, 2, 1, 1), torch.tensor([1.0, -1.0])
    return all(not block.attention.attend(q, k, v.reshape(1, 2, 1, 1), None).any() for block in built.step.backbone.blocks)


def _rope(built: Built) -> bool:
    import torch

    x, table = _numbers(1, 3, 2, 4), _numbers(1, 3, 4).cos()
    return all(_holds(block.attention.placed(x, torch.ones(4), table)) for block in built.step.backbone.blocks)


def _time(built: Built) -> bool:
    import torch

    near = built.step.backbone.time_sinusoids(torch.tensor([0.9970, 0.9975]))  # both 255 of 256
    return bool((near[0] == near[1]).all())


def _loss(built: Built) -> bool:
    from fulcrum.training.loss.terms import View

    x = _numbers(2, 1, 3, 3)
    view = built.step.as_terms_see(View(None, None, v=x, target=x, x=x, taps={}))
    return all(_holds(field) for field in (view.v, view.target, view.x))


PROBES: dict[Operation, Callable[[Built], bool]] = {
    "norm": _norm,
    "softmax": _softmax,
    "rope": _rope,
    "time": _time,
    "loss": _loss,
}
