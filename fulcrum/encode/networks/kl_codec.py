"""Codecs: pictures to latents and back.  KLCodec is a small AutoencoderKL of stride 4 (see autoencoder_kl).

B batch, H W pixels, h w latent cells (H/4, W/4), C latent channels

    pixels (B,3,H,W) --encoder--> --quant_conv--> mean, log variance (B,C,h,w)
    latents (B,C,h,w) --post_quant_conv--> --decoder--> pixels
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fulcrum.encode.networks.autoencoder_kl import LatentDecoder, LatentEncoder
from fulcrum.files.shipped import load

LOG_VARIANCE = (-30.0, 20.0)  # diffusers clamps there too
CACHED = 2**16  # pixels that a CPU encodes at a time (64 pictures of 32 px): what they become stays in its cache


def _check(pixels: Tensor, stride: int) -> None:
    if pixels.ndim != 4 or pixels.shape[1] != 3:
        raise ValueError(f"expected pixels of shape (B, 3, H, W), found {tuple(pixels.shape)}")
    height, width = pixels.shape[-2:]
    if height % stride or width % stride:
        raise ValueError(
            f"this codec needs sides that are multiples of {stride}, found {height} x {width}; "
            f"resize or crop the pictures first"
        )


class IdentityCodec(nn.Module):
    """Pixels are the latents: what a pixel-space model is trained on."""

    stride = 1
    channels = 3

    def encode(self, pixels: Tensor) -> Tensor:
        _check(pixels, self.stride)
        return pixels

    def decode(self, latents: Tensor) -> Tensor:
        return latents


class KLCodec(nn.Module):
    """Stride 4; `encode` gives the posterior's mean. The shipped ones are normalised: zero mean and unit variance per
    channel, folded into `quant_conv` and `post_quant_conv`."""

    stride = 4

    def __init__(self, channels: int = 8, widths: Sequence[int] = (16, 32, 64), layers: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.channels = channels
        self.config: dict[str, Any] = {"channels": channels, "widths": list(widths), "layers": layers, "groups": groups}
        self.encoder = LatentEncoder(channels, widths, layers, groups)
        self.decoder = LatentDecoder(channels, widths, layers, groups)
        self.quant_conv = nn.Conv2d(2 * channels, 2 * channels, 1)
        self.post_quant_conv = nn.Conv2d(channels, channels, 1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def posterior(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Raw mean and log variance, both (B, C, h, w): what training the codec needs."""
        _check(pixels, self.stride)
        moments = self.quant_conv(self.encoder(pixels.contiguous(memory_format=torch.channels_last)))
        mean, log_variance = moments.chunk(2, dim=1)
        return mean, log_variance.clamp(*LOG_VARIANCE)

    def raw_decode(self, raw: Tensor) -> Tensor:
        return self.decoder(self.post_quant_conv(raw.contiguous(memory_format=torch.channels_last)))  # type: ignore[no-any-return]

    def normalised(self, raw: Tensor) -> Tensor:
        """A raw latent as the denoiser sees it."""
        return raw.contiguous()

    def restored(self, latents: Tensor) -> Tensor:
        """The raw latent again: the inverse of `normalised`."""
        return latents

    def encode(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] -> (B, C, h, w), about unit variance per channel."""
        _check(pixels, self.stride)
        pixels = pixels.to(self.quant_conv.weight.device)
        together = max(1, CACHED // pixels[0, 0].numel()) if pixels.is_cpu and len(pixels) else len(pixels) or 1
        return torch.cat([self.normalised(self.posterior(part)[0]) for part in torch.split(pixels, together)])

    def decode(self, latents: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, 3, H, W), not clipped: a loss may want the excess, a picture clips at `to_bytes`."""
        if latents.ndim != 4 or latents.shape[1] != self.channels:
            raise ValueError(f"expected latents of shape (B, {self.channels}, h, w), found {tuple(latents.shape)}")
        return self.raw_decode(self.restored(latents)).contiguous()

    @torch.no_grad()
    def fold(self, shift: Tensor, scale: Tensor) -> None:
        """Build (mean - shift) * scale, both (C,), into the layers next to the latent: what comes back stays the same."""
        into, back, rows = self.quant_conv, self.post_quant_conv, slice(self.channels)
        if into.bias is None or back.bias is None:
            raise ValueError("a layer without bias cannot take up a shift")
        into.bias[rows].sub_(shift).mul_(scale)
        into.weight[rows].mul_(scale.view(-1, 1, 1, 1))
        into.bias[self.channels :].add_(2 * scale.log())  # the posterior's spread is scaled as well
        back.bias.add_(back.weight.flatten(1) @ shift)
        back.weight.div_(scale.view(1, -1, 1, 1))

    def folded(self) -> KLCodec:
        """A codec that needs no numbers beside its layers: this one, or a copy."""
        return self

    def diffusers_config(self) -> dict[str, Any]:
        """What `diffusers.AutoencoderKL(**config)` needs to be this network."""
        widths = self.config["widths"]
        return {
            "in_channels": 3,
            "out_channels": 3,
            "down_block_types": ["DownEncoderBlock2D"] * len(widths),
            "up_block_types": ["UpDecoderBlock2D"] * len(widths),
            "block_out_channels": widths,
            "layers_per_block": self.config["layers"],
            "norm_num_groups": self.config["groups"],
            "act_fn": "silu",
            "latent_channels": self.channels,
            "sample_size": 32,
            "scaling_factor": 1.0,
            "shift_factor": 0.0,
            "force_upcast": False,
            "use_quant_conv": True,
            "use_post_quant_conv": True,
            "mid_block_add_attention": False,
        }


class TunedCodec(KLCodec):
    """A codec that is trained with the denoiser. Shift and scale follow its latents and are constant within a step:
    normalising by a batch's own statistics would make a picture's latent depend on its batch mates."""

    keep: float = 0.99  # of the running statistics, each step
    rate: float = 1.0  # of its learning rate to the run's
    sampled: bool = False  # is the denoiser shown a sample of the posterior, or its mean?

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", torch.zeros(1, self.channels, 1, 1))  # running mean of the raw latent
        self.register_buffer("scale", torch.ones(1, self.channels, 1, 1))  # 1 / its running deviation

    @classmethod
    def begin(cls, asset: str, keep: float, rate: float) -> TunedCodec:
        """With the weights of a shipped codec, whose latents are normalised: shift 0, scale 1."""
        frozen = load_codec(asset)
        codec = cls(**frozen.config)
        codec.load_state_dict({**codec.state_dict(), **frozen.state_dict()})
        codec.keep, codec.rate = keep, rate
        # Optimizers walk over memory in order: kernels lie as everything else does.
        return codec.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload,no-any-return]

    @property
    def parameter_roles(self) -> dict[str, str]:
        """Kernels are no matrices of a block: what reads pixels is an embedding, what writes them a head."""
        kinds = {"encoder": "embed", "quant_conv": "embed", "post_quant_conv": "head", "decoder": "head"}
        return {name: "vector" if value.ndim == 1 else kinds[name.split(".")[0]] for name, value in self.named_parameters()}

    def normalised(self, raw: Tensor) -> Tensor:
        return ((raw - self.shift) * self.scale).contiguous()

    def restored(self, latents: Tensor) -> Tensor:
        return latents / self.scale + self.shift

    def folded(self) -> KLCodec:
        own = {name: value for name, value in self.state_dict().items() if name not in ("shift", "scale")}
        codec = KLCodec(**self.config)
        codec.load_state_dict(own)
        codec.fold(self.shift.flatten().cpu(), self.scale.flatten().cpu())
        return codec.eval().requires_grad_(False)

    @torch.no_grad()
    def settle(self, moments: Tensor) -> None:
        """Move shift and scale towards a batch whose raw means have these `moments`, (2, C): mean and mean square."""
        mean, square = moments.double().reshape(2, *self.shift.shape)
        old = self.shift.double()
        shift = torch.lerp(mean, old, self.keep)
        spread = torch.lerp(square, self.scale.double() ** -2 + old**2, self.keep) - shift**2
        self.shift.copy_(shift)
        self.scale.copy_(spread.clamp_min(1e-8) ** -0.5)


def load_codec(name: str = "codec", folder: Path | None = None) -> KLCodec:
    """The shipped codec, frozen, in fp32 and eval mode."""
    return load(name, KLCodec, folder)
