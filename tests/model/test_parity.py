"""The model equals diffusers' PRX, number for number and name for name."""

import pytest
import torch
from diffusers import PRXTransformer2DModel

from fulcrum.training.model.transformer import Backbone

LATENT = dict(channels=4, patch=2, width=32, depth=3, heads=4, text_width=24)
CASES = {
    "latents": (LATENT, (8, 8)),
    "wide latents": (LATENT, (4, 12)),
    "pixels with bottleneck": (dict(LATENT, channels=3, patch=8, bottleneck=12), (32, 16)),
    "resolution": (dict(LATENT, resolution=True), (12, 8)),
    "uneven axes": (dict(LATENT, axes=(2, 6), theta=100.0, mlp_ratio=2.0), (8, 8)),
}


def peer_of(spec: dict) -> PRXTransformer2DModel:
    head = spec["width"] // spec["heads"]
    return PRXTransformer2DModel(
        in_channels=spec["channels"],
        patch_size=spec["patch"],
        context_in_dim=spec["text_width"],
        hidden_size=spec["width"],
        mlp_ratio=spec.get("mlp_ratio", 3.5),
        num_heads=spec["heads"],
        depth=spec["depth"],
        axes_dim=list(spec.get("axes", (head // 2, head // 2))),
        theta=spec.get("theta", 10_000),
        bottleneck_size=spec.get("bottleneck"),
        resolution_embeds=spec.get("resolution", False),
    )


def randomise(module: torch.nn.Module) -> None:
    """Every parameter random, those that begin at zero or one as well: a zero gate would hide a
    wrong block."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.25 * torch.randn(parameter.shape, generator=generator))


def inputs(spec: dict, size: tuple[int, int], batch: int = 3, length: int = 7) -> tuple:
    generator = torch.Generator().manual_seed(1)
    x_t = torch.randn(batch, spec["channels"], *size, generator=generator)
    t = torch.rand(batch, generator=generator)
    emb = torch.randn(batch, length, spec["text_width"], generator=generator)
    mask = torch.arange(length) < torch.tensor([length, 3, 0])[:, None]
    return x_t, t, emb, mask


@pytest.mark.parametrize("direction", ["ours loads theirs", "they load ours"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_equals_diffusers(case: str, masked: bool, direction: str) -> None:
    spec, size = CASES[case]
    ours, peer = Backbone(**spec), peer_of(spec)
    source, target = (peer, ours) if direction == "ours loads theirs" else (ours, peer)
    randomise(source)
    target.load_state_dict(source.state_dict(), strict=True)
    x_t, t, emb, mask = inputs(spec, size)
    mask = mask if masked else None
    with torch.no_grad():
        expected = peer(x_t, t, emb, attention_mask=mask).sample
        found = ours(x_t, t, (emb, mask)).pred
    assert expected.abs().max() > 0.1  # the comparison means something
    # 2e-6 was seen, with each set of instructions
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_gradients_equal_diffusers() -> None:
    spec, size = CASES["latents"]
    ours, peer = Backbone(**spec), peer_of(spec)
    randomise(peer)
    ours.load_state_dict(peer.state_dict())
    x_t, t, emb, mask = inputs(spec, size)
    peer(x_t, t, emb, attention_mask=mask).sample.square().mean().backward()
    ours(x_t, t, (emb, mask)).pred.square().mean().backward()
    theirs = {name: parameter.grad for name, parameter in peer.named_parameters()}
    for name, parameter in ours.named_parameters():
        scale = theirs[name].abs().max()
        assert scale > 0 and (parameter.grad - theirs[name]).abs().max() <= 1e-4 * scale, name


@pytest.mark.parametrize(
    "spec, count",
    [
        (dict(channels=16, patch=2), 1_170_691_648),
        (dict(channels=3, patch=32, bottleneck=256), 1_177_215_744),
    ],
)
def test_published_parameter_counts(spec: dict, count: int) -> None:
    with torch.device("meta"):
        model = Backbone(width=1792, depth=16, heads=28, text_width=2304, **spec)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
