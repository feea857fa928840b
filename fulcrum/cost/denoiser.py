"""What a run's denoiser costs, from its description alone: parameters, FLOPs and bytes of a step. No torch in here."""

from fulcrum.cost import flops
from fulcrum.cost.partial_learning import (
    beside,
    first_block_reached,
    learned_matrices,
    learned_weights,
    partial_training_flops,
)
from fulcrum.spec.edit import put
from fulcrum.spec.run import AllWeights, RunSpec
from fulcrum.spec.run_route import has_span, route_of
from fulcrum.spec.stage import mean_over_images, phases

TEXT_TOKENS = 24  # a long caption of the world, on average, the start counted
SIZE = {"fp32": 4, "bf16": 2}  # bytes of a number
REMEMBERED = 2  # numbers per parameter, of a rule that does not say: two moments, as Adam's


def parameters(run: RunSpec) -> int:
    """Weights and biases of the backbone, its route and condition included, and what learns beside them."""
    return own_parameters(run) + beside(sizes_of(run), run.model.learned)


def own_parameters(run: RunSpec) -> int:
    """Of the denoiser as it leaves, with nothing beside its layers."""
    model = run.model
    width, hidden, features = model.width, int(model.width * model.mlp_ratio), run.encode.codec.channels * model.patch**2
    attention = (3 + 2 + 1) * width**2 + 3 * (width // model.heads)  # image qkv, text kv, out; three gains
    block = attention + 3 * width * hidden + _linear(width, 6 * width)  # gated MLP, modulation
    narrow = model.bottleneck
    into = _linear(features, width) if narrow is None else _linear(features, narrow) + _linear(narrow, width)
    return (
        into
        + _linear(run.encode.text.width, width)
        + _linear(flops.SINUSOIDS, width)  # the time's vector
        + _linear(width, width)
        + model.condition.parameters(width)
        + model.depth * block
        + route_of(run).parameters(width)
        + _linear(width, 2 * width)
        + _linear(width, features)
    )


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def denoiser_training_flops(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """FLOPs of forward and backward for one image, route included: the average over the phases of the budget."""
    sizes, learned = sizes_of(run), run.model.learned

    def of_phase(phase: RunSpec) -> float:
        seen = phase.tokens, text, phase.model.route.kept(phase.tokens)
        return partial_training_flops(sizes, *seen, learned) if learned.partial else flops.training_flops(sizes, *seen)

    return mean_over_images(run, of_phase)


def drawing_flops(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """FLOPs of one pass for one image when pictures are drawn: a forward, whatever learned."""
    return denoiser_training_flops(put(run, "model.learned", AllWeights()), text) / flops.TRAINING


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


def bytes_per_parameter(run: RunSpec) -> int:
    """Weight, gradient, optimizer state and averaged copy. Activations, buffers of a step and frozen networks are not
    counted: relative to a whole training step a saving is smaller, the more so the larger the batch.

    Weights and gradients are fp32 whatever `precision.storage` says: see optim.storage.
    """
    return SIZE["fp32"] + SIZE["fp32"] + remembered(run) + (0 if run.average.kind == "last_weights" else SIZE["fp32"])


def remembered(run: RunSpec) -> int:
    """Bytes that the optimizer keeps for a parameter."""
    return int(getattr(run.optim.rule, "remembers", REMEMBERED)) * SIZE[run.precision.optimizer]


def step_memory(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """Bytes that a training step needs at its peak: weights with all that is kept for each, and what the backward reads.

    The peak is that of the widest phase: a last stage that keeps every token needs a dense model's memory.
    """
    sizes = sizes_of(run)
    runs = [phase.run for phase in phases(run)]
    wide = max(flops.activations(sizes, one.tokens, text, one.model.route.kept(one.tokens)) for one in runs)
    learned = run.model.learned
    if not learned.partial:
        return parameters(run) * bytes_per_parameter(run) + run.budget.batch * wide * SIZE["fp32"]
    gains = 3 * (run.model.width // run.model.heads)
    moving = beside(sizes, learned) + learned_weights(sizes, learned, gains)
    still = bytes_per_parameter(run) - SIZE["fp32"] - remembered(run)  # no gradient, and no rule remembers it
    wide *= (sizes.depth - first_block_reached(sizes, learned)) / sizes.depth
    kept = moving * bytes_per_parameter(run) + (parameters(run) - moving) * still
    return kept + run.budget.batch * wide * SIZE["fp32"]


def newton_schulz_share(run: RunSpec) -> float:
    """FLOPs of Muon's five Newton–Schulz steps over those of the rest of the training step.

    In units of side^3 for a matrix of `ratio` sides: 20 ratio + 10 step by step, 8 ratio + 28 by the Gram matrix with one
    restart, which `optim.orthogonal` takes where it is cheaper, and never in bf16.
    """
    gram = run.precision.compute == "fp32"

    def steps(ratio: float) -> float:
        return min(20 * ratio + 10, 8 * ratio + 28) if gram else 20 * ratio + 10

    sides = [sorted(matrix) for matrix in learned_matrices(sizes_of(run), run.model.learned)]
    total = sum(short**3 * steps(long / short) for short, long in sides)
    return total / (denoiser_training_flops(run) * run.budget.batch)
