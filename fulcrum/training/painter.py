"""Draw pictures: prompts and keyed noise through the denoiser, the sampler and the codec."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.networks.protocols import Codec, TextEncoder
from fulcrum.networks.text import readable
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import AllWeights, RunSpec, System
from fulcrum.spec.slots import PredictFiller
from fulcrum.spec.stage import route_of
from fulcrum.training.average import drawn_weights, fill
from fulcrum.training.build import Built, Context, build
from fulcrum.training.dist.machine import moved, settled
from fulcrum.training.flow import noise as keyed_noise
from fulcrum.training.flow.noise import make
from fulcrum.training.flow.sampling import SOLVERS, Denoise, Path
from fulcrum.training.model.fast_drawing import FrozenBackbone, freeze_blocks
from fulcrum.training.model.transformer import Backbone, ReadText

# --------------------------------------------------------------------------------------------------
# A few prompts, read once: their text encoder need not stay in memory to draw them again and again.
#
# B prompts, L tokens, E width


class KnownPrompts:
    """Answers as the text encoder does, for these prompts and the empty one. Each was read
    alone."""

    def __init__(self, text: TextEncoder, prompts: Sequence[str]) -> None:
        self.tokens: dict[str, Tensor] = {}  # prompt -> (L, E), on the host
        for prompt in dict.fromkeys(("", *prompts)):
            emb, mask = text.encode([prompt])
            self.tokens[prompt] = emb[0, mask[0]].cpu()

    def encode(self, prompts: Sequence[str], length: int | None = None) -> tuple[Tensor, Tensor]:
        """emb (B, L, E), zero where padded, and mask (B, L), true = keep."""
        rows = [self.tokens[prompt] for prompt in prompts]
        length = length or max([1, *map(len, rows)])
        emb = torch.zeros(len(rows), length, self.tokens[""].shape[-1])
        mask = torch.zeros(len(rows), length, dtype=torch.bool)
        for number, row in enumerate(rows):
            emb[number, : len(row)], mask[number, : len(row)] = row, True
        return emb, mask

    def state_dict(self) -> dict[str, Any]:
        return dict(self.tokens)


# --------------------------------------------------------------------------------------------------
# A denoiser that has read its prompts: velocities of a batch at every step of a sampler, texts read
# once.
#
# B pictures, C channels, h, w latent rows and columns, L text tokens, E text width


# With the prompt and without in one batch while it has fewer image tokens than this, on a CPU: 1.8
# times faster for one picture of 16 tokens, 1.3 for eight, 0.75 for 64, where it also pads the
# empty prompt (docs/decisions/0039-drawing.md).
JOINED_TOKENS = 1024
Encoded = tuple[Tensor, Tensor]  # emb (B, L, E), mask (B, L)


class PromptedDenoiser:
    """What a guide asks, for B prompts and the empty one."""

    def __init__(
        self,
        backbone: Backbone,
        frozen: FrozenBackbone | None,
        predict: PredictFiller,
        prompts: Encoded,
        empty: Encoded,
        keep: Tensor | None,
    ) -> None:
        """`frozen`: the same backbone, where it may be run so; `keep` (B, K): what a routed pass
        keeps in the span."""
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


# --------------------------------------------------------------------------------------------------
# Pictures from weights: prompts and keyed noises through the denoiser, the sampler and the codec.
#
# B pictures, C channels, h, w latent rows and columns, H, W pixels.


BATCH = 32  # pictures at a time, at most
# image tokens at a time, at most, on a CPU: what its cache holds; one picture at least
BATCH_TOKENS = 1024
LENGTH = 64  # text tokens of a steady batch, or a multiple of it


class Painter:
    """Draws with given weights, through the codec among them if it was trained. Each picture has
    its own noise, keyed by (seed, its index).

    How sums are split, and so their last bits, follows the shapes. A request is drawn as it comes:
    a picture alone and in company differs by 1/255 at most. Steady batches all have one shape on a
    CPU, padded: not by a bit. Studies ask for it.
    """

    def __init__(
        self,
        run: RunSpec,
        weights: Mapping[str, Tensor],
        codec: Codec,
        text: TextEncoder,
        system: System | None = None,
        size: tuple[int, int] | None = None,
        negative: str = "",
        solver: str = "euler",
    ) -> None:
        """`size` is (H, W) of the pictures, else squares of the run's own; `negative` stands for
        the empty prompt."""
        self.negative, self.solver = negative, SOLVERS[solver]
        self.system = (system or System()).model_copy(
            update={"recompute": "none", "compile": False}
        )
        self.device = self.system.device
        self.run, self.text = run, settled(text, self.device)
        self.cells = cells(run, size or (run.data.size, run.data.size))
        # what learned beside a layer is merged into it
        plain = put(run, "model.learned", AllWeights())
        step = build(plain, 0, self.system)
        fill(step, weights)
        self.codec = (
            settled(codec, self.device)
            if step.codec is None
            else step.codec.eval().requires_grad_(False)
        )
        self.backbone, self.predict = step.backbone.eval().requires_grad_(False), step.predict
        if self.device == "cpu":
            freeze_blocks(self.backbone)
        self.frozen = FrozenBackbone(self.backbone) if FrozenBackbone.fits(self.backbone) else None
        tokens = self.cells[0] * self.cells[1] // run.model.patch**2
        self.rows = min(BATCH, max(1, BATCH_TOKENS // tokens)) if self.device == "cpu" else BATCH
        self.guide = run.sample.guide.build(Context(run, 0, self.system))

    @classmethod
    def of(cls, built: Built) -> "Painter":
        """A painter with the weights that a built run draws with now."""
        return cls(
            built.run,
            drawn_weights(built.step, built.average),
            built.feed.codec(),
            built.feed.text(),
            built.system,
        )

    @torch.no_grad()
    def latents(
        self, prompts: Sequence[str], seed: int, index: np.ndarray, steady: bool = False
    ) -> Tensor:
        """(B, C, h, w) for B prompts; `index` (B,) chooses the noises."""
        noise = keyed_noise.normal(
            seed, "sample", index, (self.run.encode.codec.channels, *self.cells)
        )
        noise = moved(noise * self.run.flow.noise_scale, self.device)
        prompts, _ = readable(self.text, prompts)  # who asked is told of what was cut
        texts = (
            self.encoded_alone(prompts) if steady else moved(self.text.encode(prompts), self.device)
        )
        denoise = PromptedDenoiser(
            self.backbone, self.frozen, self.predict, texts, self.empty, self.keep(seed, index)
        )
        return self.solver(
            lambda x, t: self.guide(denoise, x, t),
            noise,
            self.run.sample.steps,
            self.run.sample.shift,
        )

    def sampling(self, guidance: float | None = None, steps: int | None = None) -> "Painter":
        """The same weights, drawn with another guidance or another number of steps."""
        other = copy(self)
        if guidance is not None:
            other.run = put(other.run, "sample.guide.scale", guidance)
        if steps is not None:
            other.run = put(other.run, "sample.steps", steps)
        guide = other.run.sample.guide
        if self.negative and guide.kind == "routed":
            raise BadInput(
                "A negative prompt has no effect: this run is guided by its own routed pass, not"
                " away from a prompt.",
                "Leave --negative out.",
            )
        if self.negative and getattr(guide, "scale", 1.0) == 1:
            raise BadInput(
                "A negative prompt has no effect at guidance 1.",
                "Use e.g. --guidance 3, or leave --negative out.",
            )
        other.guide = guide.build(Context(other.run, 0, self.system))
        return other

    def watched(self, look: Callable[[], None]) -> "Painter":
        """The same, with `look` called before every step: who waits no more raises there."""
        other, guide = copy(self), self.guide

        def looking(denoise: Denoise, x_t: Tensor, t: Tensor) -> Tensor:
            look()
            return guide(denoise, x_t, t)

        other.guide = looking
        return other

    @cached_property
    def empty(self) -> Encoded:
        """The empty prompt, or the negative one: emb (1, L, E) and mask (1, L)."""
        emb, mask = moved(self.text.encode(readable(self.text, [self.negative])[0]), self.device)
        return emb, mask

    def encoded_alone(self, prompts: Sequence[str]) -> Encoded:
        """emb (B, L, E) and mask (B, L), each prompt read alone and padded: its length is not its
        longest neighbour's."""
        alone = [moved(self.text.encode([prompt]), self.device) for prompt in prompts]
        length = -(-max(mask.shape[1] for _, mask in alone) // LENGTH) * LENGTH
        return (
            torch.cat([F.pad(emb, (0, 0, 0, length - emb.shape[1])) for emb, _ in alone]),
            torch.cat([F.pad(mask, (0, length - mask.shape[1])) for _, mask in alone]),
        )

    def keep(self, seed: int, index: np.ndarray) -> Tensor | None:
        """(B, K) tokens of each picture that a routed pass keeps in the span, the same at every
        step: a picture's own, whatever else is in its batch. None where the run's route keeps
        all."""
        rows, columns = (side // self.run.model.patch for side in self.cells)
        need = route_of(self.run).draws((rows, columns)).get("keep")
        return None if need is None else moved(make(need, seed, "sample keep", index), self.device)

    def pictures(
        self,
        prompts: Sequence[str],
        seed: int,
        index: np.ndarray | None = None,
        steady: bool = False,
    ) -> Iterator[Tensor]:
        """uint8 pictures (B, 3, H, W) on the CPU, a batch at a time."""
        index = np.arange(len(prompts)) if index is None else index
        for first in range(0, len(prompts), self.rows):
            wanted, chosen = (
                list(prompts[first : first + self.rows]),
                index[first : first + self.rows],
            )
            count = len(wanted)
            more = self.rows - count if steady and self.device == "cpu" else 0
            chosen = np.concatenate([chosen, chosen[-1:].repeat(more)])
            with torch.no_grad():
                pixels = self.codec.decode(
                    self.latents(wanted + wanted[-1:] * more, seed, chosen, steady)
                )[:count]
            yield ((pixels.clamp(-1, 1) + 1) * 127.5).round().to("cpu", torch.uint8)


def cells(run: RunSpec, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the latents of pictures of (H, W) pixels."""
    stride = run.encode.codec.stride
    token = stride * run.model.patch
    if any(side % token or side < token for side in size):
        raise BadInput(
            f"a picture of {size[1]}x{size[0]} cannot be cut into tokens of {token} pixels",
            f"choose multiples of {token} for width and height",
        )
    return size[0] // stride, size[1] // stride
