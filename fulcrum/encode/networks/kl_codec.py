"""Codecs: pictures to latents and back.  KLCodec is a small fully convolutional autoencoder of stride 4.

B batch, H W pixels, h w latent cells (H/4, W/4), C latent channels

    pixels (B,3,H,W) --unshuffle 2--> res@H/2 --unshuffle 2--> res@H/4 --> mean, log variance (B,C,h,w)
    latents (B,C,h,w) --> res@H/4 --shuffle 2--> res@H/2 --shuffle 2--> pixels

No normalisation layer inside: a cell's value depends only on its neighbourhood, never on the size of the picture.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.files.shipped import load


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


class Residual(nn.Module):
    """h + conv(silu(conv(silu(h)))); the last convolution starts at zero, so the block starts as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, width, 3, padding=1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)  # type: ignore[arg-type]

    def forward(self, h: Tensor) -> Tensor:
        return h + self.last(F.silu(self.first(F.silu(h))))  # type: ignore[no-any-return]


class KLCodec(nn.Module):
    """Stride 4; `encode` gives the posterior's mean, normalised per channel to zero mean and unit variance."""

    stride = 4

    def __init__(
        self,
        channels: int = 8,
        fine: int = 32,
        coarse: int = 96,
        down: tuple[int, int] = (1, 1),
        up: tuple[int, int] = (2, 1),
    ) -> None:
        super().__init__()
        self.channels = channels
        self.config = {"channels": channels, "fine": fine, "coarse": coarse, "down": list(down), "up": list(up)}
        self.encoder = nn.Sequential(
            nn.PixelUnshuffle(2),
            nn.Conv2d(12, fine, 3, padding=1),  # (B, fine, H/2, W/2)
            *(Residual(fine) for _ in range(down[0])),
            nn.PixelUnshuffle(2),
            nn.Conv2d(4 * fine, coarse, 1),  # (B, coarse, h, w)
            *(Residual(coarse) for _ in range(down[1])),
            nn.SiLU(),
            nn.Conv2d(coarse, 2 * channels, 3, padding=1),
        )  # (B, 2C, h, w)
        self.decoder = nn.Sequential(
            nn.Conv2d(channels, coarse, 3, padding=1),
            *(Residual(coarse) for _ in range(up[0])),
            nn.Conv2d(coarse, 4 * fine, 1),
            nn.PixelShuffle(2),  # (B, fine, H/2, W/2)
            *(Residual(fine) for _ in range(up[1])),
            nn.SiLU(),
            nn.Conv2d(fine, 12, 3, padding=1),
            nn.PixelShuffle(2),
        )  # (B, 3, H, W)
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", torch.zeros(1, channels, 1, 1))  # of the raw mean, measured once
        self.register_buffer("scale", torch.ones(1, channels, 1, 1))  # 1 / std of the raw mean
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def posterior(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Raw mean and log variance, both (B, C, h, w): what training the codec needs."""
        _check(pixels, self.stride)
        mean, log_variance = self.encoder(pixels.contiguous(memory_format=torch.channels_last)).chunk(2, dim=1)
        return mean, log_variance.clamp(-12.0, 4.0)

    def raw_decode(self, raw: Tensor) -> Tensor:
        return self.decoder(raw.contiguous(memory_format=torch.channels_last))  # type: ignore[no-any-return]

    def normalised(self, raw: Tensor) -> Tensor:
        """A raw latent as the denoiser sees it."""
        return ((raw - self.shift) * self.scale).contiguous()

    def encode(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] -> (B, C, h, w), about unit variance per channel."""
        return self.normalised(self.posterior(pixels.to(self.shift.device))[0])

    def decode(self, latents: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, 3, H, W), not clipped: a loss may want the excess, a picture clips at `to_bytes`."""
        if latents.ndim != 4 or latents.shape[1] != self.channels:
            raise ValueError(f"expected latents of shape (B, {self.channels}, h, w), found {tuple(latents.shape)}")
        return self.raw_decode(latents / self.scale + self.shift).contiguous()


class TunedCodec(KLCodec):
    """A codec that is trained with the denoiser. Shift and scale follow its latents and are constant within a step:
    normalising by a batch's own statistics would make a picture's latent depend on its batch mates."""

    keep: float = 0.99  # of the running statistics, each step
    rate: float = 1.0  # of its learning rate to the run's

    @classmethod
    def begin(cls, asset: str, keep: float, rate: float) -> TunedCodec:
        """With the weights and statistics of a shipped codec."""
        frozen = load_codec(asset)
        codec = cls(**frozen.config)  # type: ignore[arg-type]
        codec.load_state_dict(frozen.state_dict())
        codec.keep, codec.rate = keep, rate
        # Optimizers walk over memory in order: kernels lie as everything else does.
        return codec.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload,no-any-return]

    @property
    def parameter_roles(self) -> dict[str, str]:
        """Kernels are no matrices of a block: what reads pixels is an embedding, what writes them a head."""
        kinds = {"encoder": "embed", "decoder": "head"}
        return {name: "vector" if value.ndim == 1 else kinds[name.split(".")[0]] for name, value in self.named_parameters()}

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
