"""FLOPs of published frozen networks, from what a run says of them: they need not be on this machine. No torch in here.

S side in pixels, C latent channels, w widths of the levels. A multiply-add counts as two, as in `cost.flops`.
"""

from itertools import pairwise
from typing import Any

from fulcrum.spec.run import RunSpec

KL_WIDTHS = (128, 256, 512, 512)  # of FLUX.1, FLUX.2 and REPA-E: one encoder, other channels at its end
KL_RESNETS = 2  # of a level
DEPTHS = {384: 12, 768: 12, 1024: 24, 1280: 32, 1536: 40}  # blocks of a vision transformer, by its width
PREFIX = 5  # tokens before the patches: class and registers
TEXTS = {2304: 2.0e9, 2048: 1.4e9}  # weights that a token meets: T5Gemma 2B's encoder, Qwen3-VL 2B's language half


def kl_encoder_flops(side: int, channels: int) -> float:
    """Encoding one picture: convolutions, shortcuts, and the attention in the middle."""
    areas = [(side >> level) ** 2 for level in range(len(KL_WIDTHS))]
    total = 9.0 * 3 * KL_WIDTHS[0] * areas[0]
    for area, (before, width) in zip(areas, pairwise([KL_WIDTHS[0], *KL_WIDTHS]), strict=True):
        shortcut = before * width if before != width else 0
        total += area * (9 * (before * width + (2 * KL_RESNETS - 1) * width**2) + shortcut)
    total += sum(9 * width**2 * below for width, below in zip(KL_WIDTHS, areas[1:], strict=False))
    last, cells = KL_WIDTHS[-1], areas[-1]
    middle = cells * (36 * last**2 + 4 * last**2 + 2 * cells * last)
    return 2.0 * (total + middle + cells * 9 * last * 2 * channels)


def vit_flops(width: int, tokens: int) -> float | None:
    """One picture through a vision transformer of the usual shape, or None if no such width is usual."""
    if width not in DEPTHS:
        return None
    seen = tokens + PREFIX
    return DEPTHS[width] * (24.0 * width**2 * seen + 4.0 * width * seen**2)


def frozen_flops(run: RunSpec, text: float, progress: float = 0.0) -> dict[str, float | None]:
    """What every frozen network that is read when this share of the budget is done costs for one picture; None: not known
    without its folder."""
    codec, size = run.encode.codec, run.data.size
    parts: dict[str, float | None] = {}
    if codec.kind == "pretrained_codec":
        known = getattr(codec, "network", "") in ("AutoencoderKL", "AutoencoderKLFlux2")
        parts["codec"] = kl_encoder_flops(size, codec.channels) if known else None
    if run.encode.text.kind == "pretrained_text":
        weights = TEXTS.get(run.encode.text.width)
        parts["text"] = None if weights is None else 2 * weights * text
    for teacher in read_teachers(run, progress):
        if teacher.kind == "pretrained_teacher":
            parts[f"teacher {teacher.name}"] = vit_flops(teacher.width, (size // teacher.patch) ** 2)
    return parts


def read_teachers(run: RunSpec, progress: float = 0.0) -> list[Any]:
    """Teachers whose tokens some term reads when this share of the budget is done; a term that is off reads none."""
    names = {name for term in run.terms if term.weight_at(progress) for name in term.teachers()}
    return [teacher for name in sorted(names) if (teacher := run.encode.teacher(name)) is not None]
