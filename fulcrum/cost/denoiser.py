"""What a run's denoiser costs, from its description alone: the formula of `flops` on a RunSpec. No torch in here."""

from fulcrum.cost import flops
from fulcrum.cost.optimizer_memory import bytes_per_parameter
from fulcrum.cost.parameters import parameters
from fulcrum.spec.route import has_span, route_of
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases

TEXT_TOKENS = 24  # a long caption of the world, on average


def sizes_of(run: RunSpec) -> flops.Sizes:
    """The denoiser's sizes, with the route of any phase."""
    model, route = run.model, route_of(run)
    return flops.Sizes(
        run.encode.codec.channels,
        model.patch,
        model.width,
        model.depth,
        run.encode.text.width,
        model.mlp_ratio,
        model.bottleneck,
        model.condition.multiply_adds(model.width),
        route.bounds(model.depth) if has_span(route, model.depth) else None,
        route.fuses,
    )


def training_flops(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """FLOPs of forward and backward for one image, route included: the average over the phases of the budget."""
    sizes, total = sizes_of(run), 0.0
    for phase in phases(run):
        tokens = phase.run.tokens
        one = flops.training_flops(sizes, tokens, text, phase.run.model.route.kept(tokens))
        total += (phase.end - phase.start) * one
    return total / phases(run)[-1].end


def step_memory(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """Bytes that a training step needs at its peak: weights with all that is kept for each, and what the backward reads.

    The peak is that of the widest phase: a last stage that keeps every token needs a dense model's memory.
    """
    sizes = sizes_of(run)
    runs = [phase.run for phase in phases(run)]
    wide = max(flops.activations(sizes, one.tokens, text, one.model.route.kept(one.tokens)) for one in runs)
    return parameters(run) * bytes_per_parameter(run) + run.budget.batch * wide * 4


def newton_schulz_share(run: RunSpec) -> float:
    """FLOPs of Muon's five Newton–Schulz steps over those of the rest of the training step.

    In units of width^3 for a matrix of `ratio` widths: 20 ratio + 10 step by step, 8 ratio + 28 by the Gram matrix with one
    restart, which `optim.orthogonal` takes where it is cheaper, and never in bf16.
    """
    model, width = run.model, run.model.width
    ratios = (3, 2, 1, model.mlp_ratio, model.mlp_ratio, model.mlp_ratio, 6)  # a block's matrices, in widths
    gram = run.precision.compute == "fp32"

    def steps(ratio: float) -> float:
        return min(20 * ratio + 10, 8 * ratio + 28) if gram else 20 * ratio + 10

    fuse = steps(2) if route_of(run).fuses else 0  # W of a route that joins two paths
    total = width**3 * (model.depth * sum(map(steps, ratios)) + fuse)
    return total / (training_flops(run) * run.budget.batch)
