"""The codec equals diffusers' AutoencoderKL, number for number and name for name; folding keeps
what it computes."""

import pytest
import torch

from fulcrum.networks.codec import KLCodec, TunedCodec, load_codec
from fulcrum.training.interop.export import export_codec

CASES = {
    "as shipped": {},
    "two layers": {"channels": 4, "widths": (8, 16, 16), "layers": 2, "groups": 4},
    "one width": {"channels": 3, "widths": (8, 8, 8), "layers": 1, "groups": 2},
}


def randomise(module: torch.nn.Module) -> None:
    """Every parameter random, norms as well: a weight of one would hide a swapped norm."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def pixels(side: int, count: int = 3) -> torch.Tensor:
    return torch.rand(count, 3, side, side + 8, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.mark.parametrize("direction", ["ours loads theirs", "they load ours"])
@pytest.mark.parametrize("case", CASES)
def test_equals_diffusers(case: str, direction: str) -> None:
    AutoencoderKL = pytest.importorskip(
        "diffusers", reason="the twin is compared where diffusers is installed"
    ).AutoencoderKL
    ours = KLCodec(**CASES[case])
    peer = AutoencoderKL(**ours.diffusers_config()).eval()
    source, target = (peer, ours) if direction == "ours loads theirs" else (ours, peer)
    randomise(source)
    target.load_state_dict(source.state_dict(), strict=True)
    with torch.no_grad():
        theirs = peer.encode(pixels(24)).latent_dist
        mean, log_variance = ours.posterior(pixels(24))
        torch.testing.assert_close(mean, theirs.mean, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(log_variance, theirs.logvar, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            ours.decode(mean), peer.decode(theirs.mean).sample, atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize("name", ["codec", "codec_wide", "codec_aligned"])
def test_a_shipped_codec_is_a_folder_of_diffusers(name: str, tmp_path) -> None:
    """What is saved there reads and writes the same latents, with no scale and no shift beside
    it."""
    AutoencoderKL = pytest.importorskip(
        "diffusers", reason="the twin is compared where diffusers is installed"
    ).AutoencoderKL
    ours = load_codec(name)
    again = AutoencoderKL.from_pretrained(export_codec(ours, tmp_path)).eval()
    assert (again.config.scaling_factor, again.config.shift_factor) == (1.0, 0.0)
    with torch.no_grad():
        latents = again.encode(pixels(32)).latent_dist.mean
        torch.testing.assert_close(ours.encode(pixels(32)), latents, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(
            ours.decode(latents), again.decode(latents).sample, atol=2e-5, rtol=1e-4
        )


def test_folding_changes_the_latent_and_nothing_else() -> None:
    codec = KLCodec(channels=2, widths=(4, 8, 8), groups=2)
    randomise(codec)
    shift, scale = torch.tensor([0.5, -1.0]), torch.tensor([3.0, 0.25])
    with torch.no_grad():
        mean, log_variance = codec.posterior(pixels(16))
        picture = codec.raw_decode(mean)
        codec.fold(shift, scale)
        folded, spread = codec.posterior(pixels(16))
        torch.testing.assert_close(folded, (mean - shift.view(-1, 1, 1)) * scale.view(-1, 1, 1))
        torch.testing.assert_close(spread.exp(), log_variance.exp() * scale.view(-1, 1, 1) ** 2)
        torch.testing.assert_close(codec.raw_decode(folded), picture, atol=1e-5, rtol=1e-4)


def test_a_tuned_codec_begins_as_the_shipped_one() -> None:
    tuned, frozen = TunedCodec.begin("codec", keep=0.9, rate=0.1), load_codec()
    assert set(tuned.state_dict()) - set(frozen.state_dict()) == {"shift", "scale"}
    assert torch.equal(tuned.shift, torch.zeros_like(tuned.shift)) and torch.equal(
        tuned.scale, torch.ones_like(tuned.scale)
    )
    with torch.no_grad():
        torch.testing.assert_close(
            tuned.encode(pixels(16)), frozen.encode(pixels(16)), atol=1e-5, rtol=1e-4
        )
        tuned.shift += 0.5
        tuned.scale *= 2.0
        latents = tuned.encode(pixels(16))
        torch.testing.assert_close(
            latents, (frozen.encode(pixels(16)) - 0.5) * 2, atol=1e-5, rtol=1e-4
        )
        torch.testing.assert_close(
            tuned.decode(latents), frozen.decode(frozen.encode(pixels(16))), atol=1e-4, rtol=1e-4
        )
