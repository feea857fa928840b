"""How long a training step takes on named GPUs, from counted FLOPs and bytes and one measured point. No torch in here.

products / (SHARE of the peak) + bytes / bandwidth + optimizer + links that nothing hides + OTHER a row

SHARE is stated, chosen with the table in sight. OTHER is what the one published step took beyond what is counted: reading
pictures, starting kernels, waiting. A test finds it again from that step; docs/estimate.md tells how far the table is met.
"""

from typing import NamedTuple

from fulcrum.cost.denoiser import SIZE, denoiser_training_flops, newton_schulz_share, parameters, remembered
from fulcrum.cost.frozen_networks import frozen_flops
from fulcrum.cost.gpu_types import NETWORK, NODE, Machine
from fulcrum.cost.rank_memory import RankLayout, row_bytes
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images, phases

SHARE = 0.55  # of the peak that large products reach on such GPUs, kernels of attention included
MEMORY_SHARE = 0.8  # of the bandwidth that kernels reach which only read and write
LINK_SHARE = 0.7  # of what a link can send
PASSES = 4  # times that a kept number crosses the memory: written, read again, and its gradient both ways
OTHER = 0.00424  # seconds a row of a GPU; see the measured point
AGAIN = 4 / 3  # a step whose blocks are all computed twice, over one whose are not


class MeasuredPoint(NamedTuple):
    """The one published step that the estimate is calibrated with."""

    batches: float = 3.95  # a second
    machine: Machine = Machine(8, "H100")  # eight by its settings (256 rows, 32 a device); of which kind nobody says
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
    run: RunSpec, text: float, machine: Machine, layout: RankLayout, online: bool = False, other: float = OTHER
) -> StepTime:
    """`online`: frozen networks run in every step, in the run's compute dtype; else their results are read from a cache."""
    gpu, rows = machine.gpu, run.budget.batch / machine.number
    speed = SHARE * (gpu.bf16 if run.precision.compute == "bf16" else gpu.fp32)
    again = 1 + (AGAIN - 1) * layout.recomputed_share(run.model.depth)
    terms = sum(float(term.flops(run)) for term in _terms(run) if hasattr(term, "flops"))
    products = rows * (denoiser_training_flops(run, text) * again + terms) / speed
    crossing = rows * mean_over_images(run, lambda phase: row_bytes(phase, text, RankLayout())) * PASSES * again
    memory = crossing / (MEMORY_SHARE * gpu.bandwidth)
    once = mean_over_images(run, lambda phase: _seeing(frozen_flops(phase, text)))
    weights = parameters(run)
    state = weights / layout.sharing * (3 * SIZE["fp32"] + 2 * remembered(run))  # weight and state both ways, gradient one
    steps = (
        newton_schulz_share(run) * denoiser_training_flops(run) * run.budget.batch if run.optim.rule.kind == "muon" else 0.0
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
    """Weights gathered before forward and backward of every pass, gradients summed once among those that share the
    weights, then over the replicas. Of what crosses machines each GPU of one sends its part."""
    shards = layout.sharing
    inside, apart = min(shards, NODE), -(-shards // NODE)  # GPUs of a machine that share the weights, and such machines
    shared = weights * (2 * layout.passes(run) * SIZE[run.precision.compute] + SIZE[run.precision.reduce])
    replicas = machine.number / shards
    summed = 2 * weights / shards * SIZE[run.precision.reduce] * (replicas - 1) / replicas
    link, network = LINK_SHARE * machine.gpu.link, LINK_SHARE * NETWORK
    within = shared * (inside - 1) / inside / link + shared / NODE * (apart - 1) / apart / network
    return within + summed / (link if machine.number <= NODE else network)


def _seeing(parts: dict[str, float | None]) -> float:
    """Of the networks that look at pictures; texts were read beforehand in every published arm but one."""
    return sum(one or 0.0 for name, one in parts.items() if name != "text")


def _terms(run: RunSpec) -> list[object]:
    return list({term.name: term for phase in phases(run) for term in phase.run.terms}.values())
