"""What the rest of the house asks of a frozen network, whoever made it: codec, text encoder,
teacher.

B batch, H W pixels, C h w latent, L tokens of a prompt, N tokens of a picture, E width
"""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor


class FrozenNetwork(Protocol):
    """Something whose outputs can be cached: `network_hash` looks at its weights."""

    def state_dict(self) -> dict[str, Any]: ...


class Codec(FrozenNetwork, Protocol):
    """Pixels (B, 3, H, W) in [-1, 1] to latents (B, C, h, w), and back."""

    stride: int
    channels: int

    def encode(self, pixels: Tensor) -> Tensor: ...
    def decode(self, latents: Tensor) -> Tensor: ...


class TextEncoder(FrozenNetwork, Protocol):
    """Prompts to token embeddings (B, L, E) and their mask (B, L), true = a real token."""

    def encode(
        self, prompts: Sequence[str], length: int | None = None
    ) -> tuple[Tensor, Tensor]: ...


class TeacherNetwork(FrozenNetwork, Protocol):
    """Pixels (B, 3, H, W) in [-1, 1] to tokens (B, N, E) on a grid."""

    def tokens(self, pixels: Tensor) -> Tensor: ...
