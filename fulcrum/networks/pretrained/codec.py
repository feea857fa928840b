"""A pretrained autoencoder as a codec: normalised latents of the posterior's mean, and back.

B batch, H W pixels, C h w latent channels and cells, c = 4 C channels of FLUX.2's latents taken two
by two

    AutoencoderKL        z = (mean - shift) scale, per channel where the config gives latents_mean
                         and latents_std
    AutoencoderKLFlux2   two by two cells become one of c channels, normalised by the batch norm's
                         statistics; they are given to the denoiser so (stride 16), or put back in
                         their places (stride 8): the same numbers
    AutoencoderDC, Tiny  z = (latent - shift) scale
"""

from math import log10
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.source import WorldSource
from fulcrum.networks.network_hash import to_unit
from fulcrum.networks.pretrained.config_facts import CODEC_PARTS, fitting_codec
from fulcrum.networks.pretrained.folder import config_of, content_hash, licence_of, locate, read
from fulcrum.spec.errors import BadInput

PIXELS = 1 << 20  # of a pass: 16 pictures of 256 x 256
SEEN = 4  # embedded pictures of the self-check
POOR = 18.0  # dB: no trained autoencoder is that bad on flat shapes
SCALES = (0.3, 3.0)  # latents of another deviation upset the flow's noise


class PretrainedCodec(nn.Module):
    """`encode` and `decode` of one of diffusers' autoencoders, frozen, in fp32."""

    def __init__(
        self, network: nn.Module, name: str, stride: int, channels: int, facts: dict[str, Any]
    ) -> None:
        super().__init__()
        self.network, self.name, self.stride, self.channels = network, name, stride, channels
        self.config = {"network": name, "stride": stride, "channels": channels, **facts}
        shift, scale = _normalisation(network, name)
        # cells normalised together, along each side
        self.fold = 2 if name == "AutoencoderKLFlux2" else 1
        # the denoiser sees them folded
        self.paired = self.fold == 2 and stride != _own_stride(network)
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", shift.reshape(1, -1, 1, 1))
        self.register_buffer("scale", scale.reshape(1, -1, 1, 1))
        self.card: dict[str, Any] = {}
        self.notes: list[str] = []

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] -> (B, channels, H / stride, W / stride)."""
        unit = max(self.stride, _own_stride(self.network) * self.fold)
        if (
            pixels.ndim != 4
            or pixels.shape[1] != 3
            or any(side % unit for side in pixels.shape[-2:])
        ):
            raise BadInput(
                f"{self.name} reads pixels (B, 3, H, W) with sides that are multiples of {unit}, "
                f"found {tuple(pixels.shape)}",
                "change data.size",
            )
        rows = max(1, PIXELS // (pixels.shape[-1] * pixels.shape[-2]))
        return (
            torch.cat([self._encode(part) for part in torch.split(pixels, rows)])
            if len(pixels)
            else self._none(pixels)
        )

    def _encode(self, pixels: Tensor) -> Tensor:
        out = self.network.encode(pixels.to(self.shift.device))  # type: ignore[operator]
        raw = (
            out.latent_dist.mean
            if hasattr(out, "latent_dist")
            else out.latent
            if hasattr(out, "latent")
            else out.latents
        )
        z = (F.pixel_unshuffle(raw, self.fold) - self.shift) * self.scale
        return (z if self.paired else F.pixel_shuffle(z, self.fold)).to(pixels.device).contiguous()

    def _none(self, pixels: Tensor) -> Tensor:
        return pixels.new_zeros(
            0, self.channels, pixels.shape[-2] // self.stride, pixels.shape[-1] // self.stride
        )

    def decode(self, latents: Tensor) -> Tensor:
        """(B, channels, h, w) -> (B, 3, H, W), not clipped."""
        if latents.ndim != 4 or latents.shape[1] != self.channels:
            raise ValueError(
                f"expected latents of shape (B, {self.channels}, h, w), found"
                f" {tuple(latents.shape)}"
            )
        rows = max(1, PIXELS // (latents.shape[-1] * latents.shape[-2] * self.stride**2))
        return torch.cat([self._decode(part) for part in torch.split(latents, rows)])

    def _decode(self, latents: Tensor) -> Tensor:
        z = latents.to(self.shift.device)
        raw = (z if self.paired else F.pixel_unshuffle(z, self.fold)) / self.scale + self.shift
        out = self.network.decode(F.pixel_shuffle(raw, self.fold)).sample  # type: ignore[operator]
        return out.to(latents.device).contiguous()  # type: ignore[no-any-return]


def _own_stride(network: nn.Module) -> int:
    config: Any = network.config
    levels = config.get("encoder_block_out_channels") or config["block_out_channels"]
    return int(2 ** (len(levels) - 1))


def _normalisation(network: Any, name: str) -> tuple[Tensor, Tensor]:
    """Shift and scale of the raw latents, one per channel or one for all."""
    config = network.config
    if name == "AutoencoderKLFlux2":
        norm = network.bn
        return norm.running_mean.clone(), (norm.running_var + config["batch_norm_eps"]).rsqrt()
    scale = torch.tensor([float(config.get("scaling_factor") or 1.0)])
    mean, deviation = config.get("latents_mean"), config.get("latents_std")
    if mean is not None and deviation is not None:
        return torch.tensor(mean, dtype=torch.float32), scale / torch.tensor(
            deviation, dtype=torch.float32
        )
    return torch.tensor([float(config.get("shift_factor") or 0.0)]), scale


def load_codec(path: str, stride: int, channels: int, network: str = "") -> PretrainedCodec:
    """The codec in a folder, checked against what the run says of it and against a few pictures."""
    folder = locate(path, CODEC_PARTS)
    name = fitting_codec(folder, stride, channels, network)["network"]
    codec = (
        PretrainedCodec(
            read("diffusers", name, folder),
            name,
            stride,
            channels,
            {"files": content_hash(folder)},
        )
        .eval()
        .requires_grad_(False)
    )
    codec.card = _card(codec, folder)
    codec.notes = _notes(codec.card)
    return codec


def _card(codec: PretrainedCodec, folder: Path) -> dict[str, Any]:
    """The facts that travel with it, and the self-check: shape, deviation of the latents,
    reconstruction."""
    unit = max(codec.stride, _own_stride(codec.network) * codec.fold)
    side = max(64, 2 * unit)
    pixels = to_unit(
        torch.from_numpy(
            WorldSource("validation", "real", side, SEEN, 2).read(np.arange(SEEN)).images
        )
    )
    try:
        latents = codec.encode(pixels)
        again = codec.decode(latents)
    except RuntimeError as error:
        raise BadInput(
            f"{folder} cannot read a picture of {side} pixels: {error}",
            "config and weights disagree",
        ) from None
    wanted = (SEEN, codec.channels, side // codec.stride, side // codec.stride)
    if latents.shape != wanted or again.shape != pixels.shape or not bool(latents.isfinite().all()):
        raise BadInput(
            f"{folder}: pictures of {side} pixels gave latents {tuple(latents.shape)} and pictures "
            f"{tuple(again.shape)}; expected finite {wanted} and {tuple(pixels.shape)}",
            "the folder is not what its config says",
        )
    loss = float((again.clamp(-1, 1) - pixels).square().mean()) / 4  # pixels in [0, 1]
    config = config_of(folder)
    return {
        "network": codec.name,
        "stride": codec.stride,
        "channels": codec.channels,
        "folded": codec.paired,
        "shift": codec.shift.flatten().tolist()[:8],
        "scale": codec.scale.flatten().tolist()[:8],
        "normalisation": (
            "batch norm's statistics"
            if codec.fold == 2
            else "per channel"
            if config.get("latents_mean") is not None
            else "one shift and scale"
        ),
        "preprocessing": "pixels in [-1, 1]",
        "licence": licence_of(folder),
        "latents": "mean of the posterior" if "KL" in codec.name else "as encoded",
        "deviation": round(float(latents.std()), 4),
        "psnr": round(-10 * log10(max(loss, 1e-10)), 2),
    }


def _notes(card: dict[str, Any]) -> list[str]:
    notes = [
        f"codec {card['network']}: stride {card['stride']}, {card['channels']} channels, latents'"
        f" deviation {card['deviation']:.2f}, reconstruction {card['psnr']:.1f} dB on {SEEN}"
        " embedded pictures"
    ]
    if card["psnr"] < POOR:
        notes.append(
            f"warning: under {POOR:.0f} dB: random or damaged weights, or pictures it was not"
            " made for"
        )
    if not SCALES[0] < card["deviation"] < SCALES[1]:
        notes.append(
            "warning: latents should have a deviation near one: scale and shift in its config are"
            " doubtful"
        )
    return notes
