"""Levers of number formats: BF16 storage, products, optimizer state and single operations;
stochastic rounding."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.levers.published import claim, memory_ratio
from fulcrum.spec.edit import put, put_all
from fulcrum.spec.run import RunSpec

if TYPE_CHECKING:
    from torch import Tensor


# --------------------------------------------------------------------------------------------------
# BF16 products: operands and results of every matrix product of the denoiser in bf16, all between
# them in fp32.


class BF16Compute(Lever):
    name = "bf16_compute"
    touches = ("precision.compute",)
    card = Card(
        says=(
            "matrix products take and give bf16 numbers and sum in fp32, forward and backward;"
            " weights, norms, softmax, positions, time and loss stay fp32: what autocast does, and"
            " the half of the claim that says it is harmless"
        ),
        warns=(
            "all published arms have it on, so none measures it: no claim, and the published"
            " recipes have it already. On CPUs without bf16 units the products are emulated"
            " (operands and results rounded, fp32 sums): no faster than fp32. Muon's Newton-Schulz"
            " follows, and takes more FLOPs on long matrices: in bf16 it cannot go through Gram"
            " matrices"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.compute", "bf16")

    def witness(self, built: Built) -> bool:
        """Operands that differ from one by less than bf16 can tell have the product one, in every
        layer."""
        import torch

        from fulcrum.training.model.transformer import Linear

        near = torch.full((1, 1), 1 + 2.0**-10)
        layers = [part for part in built.step.backbone.modules() if isinstance(part, Linear)]
        return all(float(layer.cast.linear(near, near)) == 1.0 for layer in layers)


# --------------------------------------------------------------------------------------------------
# BF16 everywhere that numbers are kept: weights, gradients and moments.


class BF16Everything(Lever):
    name = "bf16_everything"
    touches = ("precision.storage", "precision.gradient", "precision.optimizer")
    card = Card(
        says=(
            "weights, gradients and moments keep 8 bits of precision each: a model turned to bf16"
            " as a whole, which is what the key of the published arm would have done, had anybody"
            " read it (fault A10)"
        ),
        warns=(
            "the published +3.67 FID stands on the card of weights stored in bf16, the words of the"
            " article; which of the two was meant cannot be told. A gradient is rounded once a"
            " step, when the whole batch is in it. The released projector of the alignment term was"
            " kept so by accident (fault A17): here the projector is kept like everything else."
            " Real bf16 tensors would take 8 bytes a parameter with two moments; ours keep weights"
            " and gradients in fp32 tensors, so only the moments' bytes are saved"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put_all(run, [(slot, "bf16") for slot in self.touches])

    def cost(self, run: RunSpec) -> Cost:
        plain = put_all(run, [(slot, "fp32") for slot in self.touches])
        return Cost(memory=memory_ratio(plain, self.edit(run)))

    def witness(self, built: Built) -> bool:
        kept = BF16Storage().witness(built) and BF16OptimizerState().witness(built)
        return kept and bool(built.gradient_dtype.itemsize == 2)


# --------------------------------------------------------------------------------------------------
# One sensitive operation in bf16: norms, softmax, rotary positions, time, or loss; all else as it
# was.


Operation = Literal["norm", "softmax", "rope", "time", "loss"]


class BF16Op(Lever):
    #: norm of stream, queries and keys; softmax of the attention; rope; time; loss
    op: Operation = "norm"

    name = "bf16_op"
    touches = tuple(f"precision.{op}" for op in get_args(Operation))
    card = Card(
        says=(
            "one operation that is said to need fp32 computes in bf16: it takes and gives numbers"
            " with 8 bits of precision, gradients too, and sums in fp32 inside, as torch's"
            " kernels do"
        ),
        warns=(
            "PRX Part 2 names such operations and measures none: no claim. Its released code has"
            " two of them in bf16 by accident (fault A18: FSDP casts the time and the rotary table"
            " at the door of each block), here op=time and op=rope. A time near 1 is then a"
            " multiple of 1/256. op=softmax stores the scores, which a fused kernel does not:"
            " slower, and more memory with many tokens"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, f"precision.{self.op}", "bf16")

    def witness(self, built: Built) -> bool:
        """What the built model makes of numbers that bf16 cannot hold, where it computes this
        operation."""
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

    from fulcrum.training.model.transformer import attend

    q = torch.ones(1, 1, 1, 1)
    k = torch.tensor([8.0, 8.01]).reshape(1, 2, 1, 1)
    v = torch.tensor([1.0, -1.0]).reshape(1, 2, 1, 1)
    parts = [block.attention for block in built.step.backbone.blocks]
    return all(not attend(q, k, v, None, part.cast, part.ops.softmax).any() for part in parts)


def _rope(built: Built) -> bool:
    from fulcrum.training.model.transformer import rotate

    x, table = _numbers(1, 3, 2, 4), _numbers(1, 3, 4).cos()
    blocks = built.step.backbone.blocks
    return all(_holds(rotate(x, table, block.attention.ops.rope)) for block in blocks)


def _time(built: Built) -> bool:
    import torch

    from fulcrum.training.model.transformer import SINUSOIDS, TIME_FACTOR, sinusoids

    both = torch.tensor([0.9970, 0.9975])  # 255 of 256
    near = sinusoids(both, SINUSOIDS, TIME_FACTOR, built.step.backbone.time_dtype)
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


# --------------------------------------------------------------------------------------------------
# BF16 optimizer state: moments and momentum are remembered in bf16, updates and weights stay fp32.


class BF16OptimizerState(Lever):
    name = "bf16_optimizer_state"
    touches = ("precision.optimizer",)
    card = Card(
        says=(
            "the optimizer remembers in half the bytes: with two moments 12 instead of 16 bytes a"
            " parameter; the update itself is computed in fp32"
        ),
        warns=(
            "bf16 keeps 8 bits of precision: a moment that should fade by less than 1/256 in a step"
            " (beta above 0.996) does not fade"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.optimizer", "bf16")

    def cost(self, run: RunSpec) -> Cost:
        plain = put(run, "precision.optimizer", "fp32")
        return Cost(memory=memory_ratio(plain, self.edit(run)))

    def witness(self, built: Built) -> bool:
        kept = [
            value
            for name, value in built.optimizer.state().items()
            if not name.startswith("count/")
        ]
        return bool(kept) and all(value.element_size() == 2 for value in kept)


# --------------------------------------------------------------------------------------------------
# BF16 storage: weights are kept in bf16, so small updates round to nothing. No byte is saved:
# optim.storage says why.


class BF16Storage(Lever):
    name = "bf16_storage"
    touches = ("precision.storage",)
    card = Card(
        says="weights stored with 8 bits of precision; an update below 1/256 of a weight is lost",
        claims=(
            claim(
                "fid",
                +3.67,
                note=(
                    "the published arm's key was read by nobody in the released code: if that is"
                    " what ran, 3.67 is the size of seed noise"
                ),
            ),
            claim("cmmd", +0.20),
        ),
        warns=(
            "the dose follows the rate and the weights' size. Share of updates that round to"
            " nothing, by the watchdog (`stalled` in the record; bench/lost_updates.py, 200 steps"
            " at a constant rate, after the first quarter): spark, width 96, at its rate of 1e-2:"
            " 0.08; the same at the published 1e-4: 0.62; the updates that Adam asked for in these"
            " runs, at 1e-4 on matrices that begin as the published 1,792-wide ones do: 0.49 to"
            " 0.74. So a small recipe with a high rate gets about an eighth of the published dose."
            " It grows as weights grow, and as a rate decays"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.storage", "bf16")

    def witness(self, built: Built) -> bool:
        from fulcrum.training.dist.collectives import local

        held = [local(p) for p in built.step.backbone.parameters()]
        return all(bool((p == p.bfloat16().to(p.dtype)).all()) for p in held)


# --------------------------------------------------------------------------------------------------
# Stochastic rounding: an update too small for the stored precision is made whole now and then, in
# the mean exactly.
#
# Its cost, about ten integer operations a parameter and step, is nothing beside a step.


class StochasticRounding(Lever):
    name = "stochastic_rounding"
    touches = ("precision.rounding",)
    card = Card(
        says=(
            "stored weights round up or down at random, in proportion to the distance: the mean of"
            " an update is kept, at the price of noise; the cure of weights stored in bf16"
        ),
        warns=(
            "the record's `stalled` counts weights that did not move in a step: under this rounding"
            " they are not lost"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.rounding", "stochastic")

    def needs(self, run: RunSpec) -> str | None:
        if run.precision.storage == "fp32":
            return "nothing is rounded: weights are stored in fp32; --set precision.storage=bf16"
        return None

    def witness(self, built: Built) -> bool:
        """A value half-way between two neighbours goes both ways."""
        import torch

        low, high = 1.0, 1.0 + 2.0**-7
        probe = torch.full((256,), (low + high) / 2)
        built.optimizer.store.keep({"probe": probe}, at=0)
        return set(probe.tolist()) == {low, high}
