"""The known GPU types, and the time of a training step on them. No torch."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.flops import (
    SIZE,
    denoiser_training_flops,
    newton_schulz_share,
    parameters,
    remembered,
)
from fulcrum.spec.memory import RankLayout, frozen_flops, row_bytes
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images, terms_of

# --------------------------------------------------------------------------------------------------
# The GPUs that an estimate knows: what each can do at most, what it holds, and what an hour of it
# is taken to cost.
#
# Peaks are the makers' own for dense products that sum in fp32. Prices are nobody's offer: an
# assumption in dollars that
# --price replaces. No torch in here.


NODE = 8  # GPUs of one machine, joined by fast links
NETWORK = 50e9  # bytes a second that a GPU sends to another machine: one 400 Gb/s port each
MOST = 65_536  # GPUs of an estimate


class GpuType(NamedTuple):
    """One GPU of a kind."""

    bf16: float  # FLOP/s
    fp32: float  # FLOP/s outside of the matrix units
    memory: float  # bytes
    bandwidth: float  # bytes a second of its own memory
    link: float  # bytes a second to a GPU of the same machine, one way
    price: float  # dollars an hour, an assumption


GPUS: Mapping[str, GpuType] = {
    "B200": GpuType(2250e12, 75e12, 180e9, 8.0e12, 900e9, 4.5),
    # the price that the published speed run names
    "H200": GpuType(989e12, 67e12, 141e9, 4.8e12, 450e9, 2.0),
    "H100": GpuType(989e12, 67e12, 80e9, 3.35e12, 450e9, 2.0),
    "A100": GpuType(312e12, 19.5e12, 80e9, 2.04e12, 300e9, 1.3),
    "A100-40GB": GpuType(312e12, 19.5e12, 40e9, 1.56e12, 300e9, 1.1),
    "L40S": GpuType(362e12, 91.6e12, 48e9, 0.864e12, 32e9, 0.9),
    "A10": GpuType(125e12, 31.2e12, 24e9, 0.6e12, 32e9, 0.6),
    "RTX4090": GpuType(165e12, 82.6e12, 24e9, 1.008e12, 32e9, 0.4),
}
ALSO = {"A100-80GB": "A100", "H100-80GB": "H100", "H200-141GB": "H200"}  # as they are called too


class Machine(NamedTuple):
    """So many GPUs of one kind."""

    number: int
    name: str

    @property
    def gpu(self) -> GpuType:
        return GPUS[self.name]

    @property
    def shards(self) -> int:
        """GPUs that share the weights where nobody says: those of one machine, or an equal part of
        them; the rest are copies. No replica lies on two machines."""
        return self.number if self.number <= NODE else math.gcd(self.number, NODE)

    @property
    def mesh(self) -> str:
        """That as --mesh says it."""
        return f"{self.number // self.shards}x{self.shards}"

    def __str__(self) -> str:
        return f"{self.number}x{self.name}"


def read_machine(text: str) -> Machine:
    """8xH100, 8 x h100, H100 or, the other way round, H100x8."""
    known = {_letters(name): name for name in (*GPUS, *ALSO)}
    count = r"(?P<count>\d{1,12})"
    name = r"(?P<name>[A-Za-z][\w -]*?)"
    times = r"\s*[xX*×]\s*"
    match = re.fullmatch(f"(?:{count}{times})?{name}", text.strip())
    if _letters(text) not in known:  # an RTX4090 is one GPU, not 4,090 of RT
        match = re.fullmatch(f"{name}{times}{count}", text.strip()) or match
    if match is None:
        raise BadInput(
            f"'{text[:40]}' does not say how many GPUs of which kind",
            "write a number, an x and a name: --gpus 8xH100; known: " + ", ".join(GPUS),
        )
    if _letters(match["name"]) not in known:
        raise BadInput(
            f"no GPU is known as '{match['name'][:40]}'",
            f"{nearest(match['name'].upper(), GPUS)}\n  their peaks and prices: fulcrum estimate",
        )
    kind = known[_letters(match["name"])]
    number = int(match["count"] or "1")
    if not 1 <= number <= MOST:
        raise BadInput(
            f"--gpus {text[:40]} asks for {number:,} GPUs",
            f"an estimate is for 1 to {MOST:,}: --gpus 8x{kind}",
        )
    return Machine(number, ALSO.get(kind, kind))


def _letters(name: str) -> str:
    """A name as people write it: H100, h100, RTX-4090."""
    return re.sub(r"[\W_]", "", name).upper()


# --------------------------------------------------------------------------------------------------
# How long a training step takes on named GPUs, from counted FLOPs and bytes and one measured point.
# No torch in here.
#
# products / (SHARE of the peak) + bytes / bandwidth + optimizer + links that nothing hides + OTHER
# a row
#
# SHARE is stated, chosen with the table in sight. OTHER is what the one published step took beyond
# what is counted: reading pictures, starting kernels, waiting. A test finds it again from that
# step; docs/estimate.md tells how far the table is met.


SHARE = 0.55  # of the peak that large products reach on such GPUs, kernels of attention included
MEMORY_SHARE = 0.8  # of the bandwidth that kernels reach which only read and write
LINK_SHARE = 0.7  # of what a link can send
# times that a kept number crosses the memory: written, read again, and its gradient both ways
PASSES = 4
OTHER = 0.00424  # seconds a row of a GPU; see the measured point
AGAIN = 4 / 3  # a step whose blocks are all computed twice, over one whose are not


class MeasuredPoint(NamedTuple):
    """The one published step that the estimate is calibrated with."""

    batches: float = 3.95  # a second
    #: eight by its settings (256 rows, 32 a device); of which kind nobody says
    machine: Machine = Machine(8, "H100")
    text: int = 256  # tokens, padding included


MEASURED = MeasuredPoint()


class StepTime(NamedTuple):
    """Seconds of a step on every GPU, by what they are spent on; on average over the budget."""

    products: float
    memory: float
    frozen: float  # networks that run in every step, as nothing is cached
    optimizer: float
    links: float  # beyond what products and memory hide
    other: float

    @property
    def counted(self) -> float:
        return sum(self) - self.other

    @property
    def total(self) -> float:
        return sum(self)


def step_time(
    run: RunSpec,
    text: float,
    machine: Machine,
    layout: RankLayout,
    online: bool = False,
    other: float = OTHER,
) -> StepTime:
    """`online`: frozen networks run in every step, in the run's compute dtype; else their results
    are read from a cache."""
    gpu, rows = machine.gpu, run.budget.batch / machine.number
    speed = SHARE * (gpu.bf16 if run.precision.compute == "bf16" else gpu.fp32)
    again = 1 + (AGAIN - 1) * layout.recomputed_share(run.model.depth)
    terms = sum(term.flops(run) or 0.0 for term in terms_of(run).values())
    products = rows * (denoiser_training_flops(run, text) * again + terms) / speed
    crossing = (
        rows
        * mean_over_images(run, lambda phase: row_bytes(phase, text, RankLayout()))
        * PASSES
        * again
    )
    memory = crossing / (MEMORY_SHARE * gpu.bandwidth)
    once = mean_over_images(run, lambda phase: _seeing(frozen_flops(phase, text)))
    weights = parameters(run)
    # weight and state both ways, gradient one
    state = weights / layout.sharing * (3 * SIZE["fp32"] + 2 * remembered(run))
    steps = (
        newton_schulz_share(run) * denoiser_training_flops(run) * run.budget.batch
        if run.optim.rule.kind == "muon"
        else 0.0
    )
    optimizer = state / (MEMORY_SHARE * gpu.bandwidth) + steps / layout.sharing / speed
    return StepTime(
        products,
        memory,
        rows * once / speed if online else 0.0,
        optimizer,
        max(0.0, link_seconds(run, weights, machine, layout) - products - memory),
        other * rows,
    )


def link_seconds(run: RunSpec, weights: float, machine: Machine, layout: RankLayout) -> float:
    """Weights gathered before forward and backward of every pass, gradients summed once among those
    that share the weights, then over the replicas. Of what crosses machines each GPU of one sends
    its part."""
    shards = layout.sharing
    # GPUs of a machine that share the weights, and such machines
    inside, apart = min(shards, NODE), -(-shards // NODE)
    shared = weights * (
        2 * layout.passes(run) * SIZE[run.precision.compute] + SIZE[run.precision.reduce]
    )
    replicas = machine.number / shards
    summed = 2 * weights / shards * SIZE[run.precision.reduce] * (replicas - 1) / replicas
    link, network = LINK_SHARE * machine.gpu.link, LINK_SHARE * NETWORK
    within = shared * (inside - 1) / inside / link + shared / NODE * (apart - 1) / apart / network
    return within + summed / (link if machine.number <= NODE else network)


def _seeing(parts: dict[str, float | None]) -> float:
    """Of the networks that look at pictures; texts were read beforehand in every published arm but
    one."""
    return sum(one or 0.0 for name, one in parts.items() if name != "text")


def hours_in_words(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:.1f} h" if hours < 100 else f"{hours / 24:.1f} days"


def money(dollars: float) -> str:
    return f"{dollars:,.2f} $" if dollars < 10 else f"{dollars:,.0f} $"
