"""What a run's denoiser costs, from its description alone: FLOPs of a training step per image. No torch in here.

N image tokens, L text tokens, D width
"""

from fulcrum.spec.run import Model, RunSpec

TEXT_TOKENS = 32                                             # a long caption of the world, on average


def block_flops(model: Model, tokens: float, text: float) -> float:
    """Forward FLOPs of one block on one image: linears on tokens, text keys and values, attention, modulation."""
    width = model.width
    linears = 2 * width * width * (tokens * (4 + 3 * model.mlp_ratio) + text * 2 + 6)
    attention = 4 * tokens * (tokens + text) * width         # q k^T and the weighted sum of v
    return linears + attention


def training_flops(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """FLOPs of forward and backward (three forwards) for one image, route included."""
    model, tokens = run.model, run.tokens
    patch = run.encode.codec.channels * model.patch**2
    start, end = model.route.bounds(model.depth)             # type: ignore[attr-defined]
    routed = max(0, end - start + 1)
    blocks = (model.depth - routed) * block_flops(model, tokens, text)
    blocks += routed * block_flops(model, model.route.kept(tokens), text)  # type: ignore[attr-defined]
    ends = 2 * tokens * patch * model.width * 2 + 2 * text * run.encode.text.width * model.width
    return 3 * (blocks + ends)


def newton_schulz_share(run: RunSpec, steps: int = 5) -> float:
    """FLOPs of Muon's Newton–Schulz steps over those of the rest of the training step."""
    model, width = run.model, run.model.width
    flops = 0.0
    for ratio in (3, 2, 1, model.mlp_ratio, model.mlp_ratio, model.mlp_ratio, 6):
        flops += steps * 2 * width**3 * (2 * ratio + 1)      # G G^T and its use on the long side, one small square
    return model.depth * flops / (training_flops(run) * run.budget.batch)
