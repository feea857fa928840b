"""KLCodec: a small AutoencoderKL of stride 4 with diffusers' graph and parameter names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.files.shipped import load

# --------------------------------------------------------------------------------------------------
# Encoder and decoder with the graph and parameter names of diffusers' AutoencoderKL, so that either
# loads the other's weights; without attention in the middle, and in PyTorch alone.
#
# B batch, H W pixels, C latent channels, w0 w1 w2 widths of the levels: each level but the last
# halves the sides
#
#     encoder   3 -> w0 at H -> w1 at H/2 -> w2 at H/4 -> two blocks -> 2C
#     decoder   C -> w2 at H/4 -> two blocks -> w2 -> w1 at H/2 -> w0 at H -> 3


EPS = 1e-6  # of every group norm


class ResnetBlock(nn.Module):
    """x + conv(silu(norm(conv(silu(norm(x)))))), with a 1 x 1 convolution on x where the width
    changes."""

    def __init__(self, before: int, width: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, before, eps=EPS)
        self.conv1 = nn.Conv2d(before, width, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, width, eps=EPS)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(before, width, 1) if before != width else None

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.conv_shortcut is None else self.conv_shortcut(x))  # type: ignore[no-any-return]


class Downsample(nn.Module):
    """A convolution of stride 2; the border is padded on the right and at the bottom alone, as
    diffusers does it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))  # type: ignore[no-any-return]


class Upsample(nn.Module):
    """Every pixel four times, then a convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))  # type: ignore[no-any-return]


class Level(nn.Module):
    """Blocks of one width, then a change of the sides; the last level of either half has none."""

    def __init__(self, before: int, width: int, layers: int, groups: int) -> None:
        super().__init__()
        widths = [before] + [width] * layers
        self.resnets = nn.ModuleList(
            ResnetBlock(one, other, groups) for one, other in pairwise(widths)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.resnets:
            x = block(x)
        return x


class DownLevel(Level):
    """One level of the encoder."""

    def __init__(self, before: int, width: int, layers: int, groups: int, halves: bool) -> None:
        super().__init__(before, width, layers, groups)
        self.downsamplers = nn.ModuleList([Downsample(width)] if halves else [])

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        for sampler in self.downsamplers:
            x = sampler(x)
        return x


class UpLevel(Level):
    """One level of the decoder."""

    def __init__(self, before: int, width: int, layers: int, groups: int, doubles: bool) -> None:
        super().__init__(before, width, layers, groups)
        self.upsamplers = nn.ModuleList([Upsample(width)] if doubles else [])

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        for sampler in self.upsamplers:
            x = sampler(x)
        return x


class LatentEncoder(nn.Module):
    """Pixels (B, 3, H, W) to (B, 2C, H/4, W/4): mean and log variance before `quant_conv`."""

    def __init__(self, channels: int, widths: Sequence[int], layers: int, groups: int) -> None:
        super().__init__()
        last = len(widths) - 1
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down_blocks = nn.ModuleList(
            DownLevel(before, width, layers, groups, halves=index < last)
            for index, (before, width) in enumerate(pairwise([widths[0], *widths]))
        )
        self.mid_block = Level(widths[-1], widths[-1], 2, groups)
        self.conv_norm_out = nn.GroupNorm(groups, widths[-1], eps=EPS)
        self.conv_out = nn.Conv2d(widths[-1], 2 * channels, 3, padding=1)

    def forward(self, pixels: Tensor) -> Tensor:
        h = self.conv_in(pixels)
        for level in self.down_blocks:
            h = level(h)
        return self.conv_out(F.silu(self.conv_norm_out(self.mid_block(h))))  # type: ignore[no-any-return]


class LatentDecoder(nn.Module):
    """Latents (B, C, H/4, W/4) after `post_quant_conv` to pixels (B, 3, H, W)."""

    def __init__(self, channels: int, widths: Sequence[int], layers: int, groups: int) -> None:
        super().__init__()
        upwards = widths[::-1]
        last = len(widths) - 1
        self.conv_in = nn.Conv2d(channels, upwards[0], 3, padding=1)
        self.mid_block = Level(upwards[0], upwards[0], 2, groups)
        self.up_blocks = nn.ModuleList(
            UpLevel(before, width, layers + 1, groups, doubles=index < last)
            for index, (before, width) in enumerate(pairwise([upwards[0], *upwards]))
        )
        self.conv_norm_out = nn.GroupNorm(groups, upwards[-1], eps=EPS)
        self.conv_out = nn.Conv2d(upwards[-1], 3, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        h = self.mid_block(self.conv_in(latents))
        for level in self.up_blocks:
            h = level(h)
        return self.conv_out(F.silu(self.conv_norm_out(h)))  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------
# Codecs: pictures to latents and back.  KLCodec is a small AutoencoderKL of stride 4 (see
# autoencoder_kl).
#
# B batch, H W pixels, h w latent cells (H/4, W/4), C latent channels
#
#     pixels (B,3,H,W) --encoder--> --quant_conv--> mean, log variance (B,C,h,w)
#     latents (B,C,h,w) --post_quant_conv--> --decoder--> pixels


LOG_VARIANCE = (-30.0, 20.0)  # diffusers clamps there too
# pixels that a CPU encodes at a time (64 pictures of 32 px): what they become stays in its cache
CACHED = 2**16


def _check(pixels: Tensor, stride: int) -> None:
    if pixels.ndim != 4 or pixels.shape[1] != 3:
        raise ValueError(f"expected pixels of shape (B, 3, H, W), found {tuple(pixels.shape)}")
    height, width = pixels.shape[-2:]
    if height % stride or width % stride:
        raise ValueError(
            f"this codec needs sides that are multiples of {stride}, found {height} x {width}; "
            "resize or crop the pictures first"
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
    """Stride 4; `encode` gives the posterior's mean. The shipped ones are normalised: zero mean and
    unit variance per channel, folded into `quant_conv` and `post_quant_conv`."""

    stride = 4

    def __init__(
        self,
        channels: int = 8,
        widths: Sequence[int] = (16, 32, 64),
        layers: int = 1,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.config: dict[str, Any] = {
            "channels": channels,
            "widths": list(widths),
            "layers": layers,
            "groups": groups,
        }
        self.encoder = LatentEncoder(channels, widths, layers, groups)
        self.decoder = LatentDecoder(channels, widths, layers, groups)
        self.quant_conv = nn.Conv2d(2 * channels, 2 * channels, 1)
        self.post_quant_conv = nn.Conv2d(channels, channels, 1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def posterior(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Raw mean and log variance, both (B, C, h, w): what training the codec needs."""
        _check(pixels, self.stride)
        moments = self.quant_conv(
            self.encoder(pixels.contiguous(memory_format=torch.channels_last))
        )
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
        together = (
            max(1, CACHED // pixels[0, 0].numel())
            if pixels.is_cpu and len(pixels)
            else len(pixels) or 1
        )
        return torch.cat(
            [self.normalised(self.posterior(part)[0]) for part in torch.split(pixels, together)]
        )

    def decode(self, latents: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, 3, H, W), not clipped: a loss may want the excess, a picture clips at
        `to_bytes`."""
        if latents.ndim != 4 or latents.shape[1] != self.channels:
            raise ValueError(
                f"expected latents of shape (B, {self.channels}, h, w), found"
                f" {tuple(latents.shape)}"
            )
        return self.raw_decode(self.restored(latents)).contiguous()

    @torch.no_grad()
    def fold(self, shift: Tensor, scale: Tensor) -> None:
        """Build (mean - shift) * scale, both (C,), into the layers next to the latent: what comes
        back stays the same."""
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
    """A codec that is trained with the denoiser. Shift and scale follow its latents and are
    constant within a step: normalising by a batch's own statistics would make a picture's latent
    depend on its batch mates."""

    keep: float = 0.99  # of the running statistics, each step
    rate: float = 1.0  # of its learning rate to the run's
    sampled: bool = False  # is the denoiser shown a sample of the posterior, or its mean?

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.shift: Tensor
        self.scale: Tensor
        # running mean of the raw latent
        self.register_buffer("shift", torch.zeros(1, self.channels, 1, 1))
        # 1 / its running deviation
        self.register_buffer("scale", torch.ones(1, self.channels, 1, 1))

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
        """Kernels are no matrices of a block: what reads pixels is an embedding, what writes them a
        head."""
        kinds = {
            "encoder": "embed",
            "quant_conv": "embed",
            "post_quant_conv": "head",
            "decoder": "head",
        }
        return {
            name: "vector" if value.ndim == 1 else kinds[name.split(".")[0]]
            for name, value in self.named_parameters()
        }

    def normalised(self, raw: Tensor) -> Tensor:
        return ((raw - self.shift) * self.scale).contiguous()

    def restored(self, latents: Tensor) -> Tensor:
        return latents / self.scale + self.shift

    def folded(self) -> KLCodec:
        own = {
            name: value
            for name, value in self.state_dict().items()
            if name not in ("shift", "scale")
        }
        codec = KLCodec(**self.config)
        codec.load_state_dict(own)
        codec.fold(self.shift.flatten().cpu(), self.scale.flatten().cpu())
        return codec.eval().requires_grad_(False)

    @torch.no_grad()
    def settle(self, moments: Tensor) -> None:
        """Move shift and scale towards a batch whose raw means have these `moments`, (2, C): mean
        and mean square."""
        mean, square = moments.double().reshape(2, *self.shift.shape)
        old = self.shift.double()
        shift = torch.lerp(mean, old, self.keep)
        spread = torch.lerp(square, self.scale.double() ** -2 + old**2, self.keep) - shift**2
        self.shift.copy_(shift)
        self.scale.copy_(spread.clamp_min(1e-8) ** -0.5)


def load_codec(name: str = "codec", folder: Path | None = None) -> KLCodec:
    """The shipped codec, frozen, in fp32 and eval mode."""
    return load(name, KLCodec, folder)
