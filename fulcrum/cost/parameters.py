"""How many parameters a run's denoiser has, from its description alone. No torch in here."""

from fulcrum.cost.flops import SINUSOIDS
from fulcrum.spec.route import route_of
from fulcrum.spec.run import RunSpec


def parameters(run: RunSpec) -> int:
    """Weights and biases of the backbone, its route included."""
    model = run.model
    width, hidden, features = model.width, int(model.width * model.mlp_ratio), run.encode.codec.channels * model.patch**2
    attention = (3 + 2 + 1) * width**2 + 3 * (width // model.heads)  # image qkv, text kv, out; three gains
    block = attention + 3 * width * hidden + _linear(width, 6 * width)  # gated MLP, modulation
    narrow = model.bottleneck
    into = _linear(features, width) if narrow is None else _linear(features, narrow) + _linear(narrow, width)
    fuse = width + _linear(2 * width, width) if route_of(run).fuses else 0  # mask token, W and b
    return (
        into
        + _linear(run.encode.text.width, width)
        + _linear(SINUSOIDS, width)  # the time's vector
        + _linear(width, width)
        + model.condition.parameters(width)
        + model.depth * block
        + fuse
        + _linear(width, 2 * width)
        + _linear(width, features)
    )


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs
