"""Guidance: how the prompt steers a sampler. A guide asks the denoiser for velocities and combines them.

B batch, L text tokens, E text width.
"""

from collections.abc import Callable

from torch import Tensor

Denoise = Callable[[Tensor, Tensor, bool], Tensor]           # (x_t, t (B,), with the prompt?) -> v


class ClassifierFree:
    """v = v_empty + w (v_prompt - v_empty); w = 1 asks once."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, denoise: Denoise, x_t: Tensor, t: Tensor) -> Tensor:
        v_prompt = denoise(x_t, t, True)
        if self.scale == 1:
            return v_prompt
        v_empty = denoise(x_t, t, False)
        return v_empty + self.scale * (v_prompt - v_empty)
