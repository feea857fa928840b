"""What a run's denoiser costs, from its description alone: the formula of `flops` on a RunSpec. No torch in here."""

from typing import NamedTuple

from fulcrum.model import flops
from fulcrum.spec.run import RunSpec

TEXT_TOKENS = 24                                             # a long caption of the world, on average


class _Sizes(NamedTuple):
    channels: int
    patch: int
    width: int
    depth: int
    text_width: int
    mlp_ratio: float
    bottleneck: int | None
    resolution: bool
    span: tuple[int, int] | None


def training_flops(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """FLOPs of forward and backward for one image, route included."""
    model = run.model
    start, end = model.route.bounds(model.depth)             # type: ignore[attr-defined]
    kept = model.route.kept(run.tokens)                      # type: ignore[attr-defined]
    sizes = _Sizes(run.encode.codec.channels, model.patch, model.width, model.depth, run.encode.text.width, model.mlp_ratio,
                   model.bottleneck, model.condition.kind == "resolution", (start, end) if start <= end else None)
    return flops.training_flops(sizes, run.tokens, text, kept)


def newton_schulz_share(run: RunSpec) -> float:
    """FLOPs of Muon's five Newton–Schulz steps over those of the rest of the training step.

    In units of width^3 for a matrix of `ratio` widths: 20 ratio + 10 step by step, 8 ratio + 28 by the Gram matrix with one
    restart, which `optim.orthogonal` takes where it is cheaper.
    """
    model, width = run.model, run.model.width
    ratios = (3, 2, 1, model.mlp_ratio, model.mlp_ratio, model.mlp_ratio, 6)      # a block's matrices, in widths
    one_block = width**3 * sum(min(20 * ratio + 10, 8 * ratio + 28) for ratio in ratios)
    return model.depth * one_block / (training_flops(run) * run.budget.batch)
