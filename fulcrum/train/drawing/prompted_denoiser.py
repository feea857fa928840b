"""A denoiser that has read its prompts: velocities of a batch at every step of a sampler, texts read once.

B pictures, C channels, h, w latent rows and columns, L text tokens, E text width
"""

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.flow.guide import Path
from fulcrum.flow.predict import Predict
from fulcrum.model.backbone import Backbone
from fulcrum.model.packed_text import ReadText
from fulcrum.model.running.frozen_backbone import FrozenBackbone

# With the prompt and without in one batch while it has fewer image tokens than this, on a CPU: 1.8 times faster for one
# picture of 16 tokens, 1.3 for eight, 0.75 for 64, where it also pads the empty prompt (docs/decisions/0039-drawing.md).
JOINED_TOKENS = 1024
Encoded = tuple[Tensor, Tensor]  # emb (B, L, E), mask (B, L)


class PromptedDenoiser:
    """What a guide asks, for B prompts and the empty one."""

    def __init__(
        self,
        backbone: Backbone,
        frozen: FrozenBackbone | None,
        predict: Predict,
        prompts: Encoded,
        empty: Encoded,
        keep: Tensor | None,
    ) -> None:
        """`frozen`: the same backbone, where it may be run so; `keep` (B, K): what a routed pass keeps in the span."""
        self.backbone, self.frozen, self.predict, self.keep = backbone, frozen, predict, keep
        self.prompts = prompts
        self.empty = tuple(part.expand(len(prompts[0]), *part.shape[1:]) for part in empty)

    def __call__(self, x_t: Tensor, t: Tensor, prompt: bool, path: Path = "full") -> Tensor:
        return self.velocity(x_t, t, self.with_prompt if prompt else self.without_prompt, path)

    def with_and_without(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x_t[0, 0].numel() // self.backbone.patch**2
        if x_t.device.type == "cpu" and 2 * len(x_t) * tokens >= JOINED_TOKENS:
            return self(x_t, t, True), self(x_t, t, False)
        times = t[:1].expand(2 * len(t)) if one_time(t) else torch.cat((t, t))
        strong, weak = self.velocity(torch.cat((x_t, x_t)), times, self.both).chunk(2)
        return strong, weak

    def velocity(self, x_t: Tensor, t: Tensor, text: ReadText, path: Path = "full") -> Tensor:
        inputs = self.predict.inputs(x_t, t)
        if self.frozen is not None and path == "full" and one_time(t):
            pred = self.frozen(inputs, float(t[0]), text)
        else:
            keep = self.keep if path == "routed" else None
            pred = self.backbone(inputs, t, text, keep=keep, short=path == "short").pred
        return self.predict.to_v(pred, x_t, t)

    @cached_property
    def with_prompt(self) -> ReadText:
        return self.backbone.read_text(self.prompts)

    @cached_property
    def without_prompt(self) -> ReadText:
        return self.backbone.read_text((self.empty[0], self.empty[1]))

    @cached_property
    def both(self) -> ReadText:
        """The prompts, and below them the empty one as often."""
        (emb, mask), (none, seen) = self.prompts, self.empty
        length = max(emb.shape[1], none.shape[1])
        embs = [F.pad(part, (0, 0, 0, length - part.shape[1])) for part in (emb, none)]
        masks = [F.pad(part, (0, length - part.shape[1])) for part in (mask, seen)]
        return self.backbone.read_text((torch.cat(embs), torch.cat(masks)))


def one_time(t: Tensor) -> bool:
    """Is t (B,) one number, expanded? A sampler's is."""
    return len(t) == 1 or t.stride(0) == 0
