"""A backbone whose weights stand still: what time and places do to it is computed once, for every picture and prompt.

B batch, C channels, h w image size, N tokens, L text tokens, D width
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.model.backbone import Backbone
from fulcrum.model.embed import patchify, unpatchify
from fulcrum.model.packed_text import ReadText
from fulcrum.model.rope import rotary_table
from fulcrum.model.running.frozen_block import Changes, changes_of, exact, padded, run_frozen, turn_of

KEPT = 1024  # times: more than any sampler has steps


class FrozenBackbone:
    """Full passes of a batch at one time, as a sampler makes them; the same sums as `Backbone.forward`."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.times: dict[float, tuple[Tensor, list[Changes]]] = {}
        self.turns: dict[tuple[int, int], Tensor] = {}

    @staticmethod
    def fits(backbone: Backbone) -> bool:
        """On a CPU, all in fp32, told nothing but the time, with a head and without a span that is fused."""
        conditioned = backbone.resolution_embedder is not None or backbone.own_condition is not None
        plain = all(exact(block) for block in backbone.blocks) and backbone.time_dtype == torch.float32
        on_cpu = backbone.txt_in.weight.device.type == "cpu"
        return on_cpu and plain and not conditioned and backbone.final_layer is not None and not backbone.route.fuses

    def __call__(self, x_t: Tensor, t: float, text: ReadText) -> Tensor:
        """x_t (B, C, h, w), text as `read_text` gave it -> the prediction, (B, C, h, w)."""
        backbone, (height, width) = self.backbone, x_t.shape[-2:]
        assert backbone.final_layer is not None
        active, changes = self.at(t)
        turn = self.turn(height // backbone.patch, width // backbone.patch)
        h = backbone.img_in(patchify(x_t, backbone.patch))  # (B, N, D)
        bias = padded(text.bias, h.shape[1])
        for block, change, kv in zip(backbone.blocks, changes, text.rows, strict=True):
            h = run_frozen(block, h, change, turn, kv, bias)
        return unpatchify(backbone.final_layer(h, active), backbone.patch, height, width)

    def at(self, t: float) -> tuple[Tensor, list[Changes]]:
        """The condition at a time, as modulations begin with it (1, D), and what it does to each block."""
        if t not in self.times:
            if len(self.times) >= KEPT:
                self.times.clear()
            active = F.silu(self.backbone.time_in(self.backbone.time_sinusoids(torch.tensor([t]))))
            self.times[t] = active, [changes_of(block, active) for block in self.backbone.blocks]
        return self.times[t]

    def turn(self, rows: int, columns: int) -> Tensor:
        """Rotary positions of a grid."""
        if (rows, columns) not in self.turns:
            backbone = self.backbone
            table = rotary_table(rows, columns, backbone.axes, backbone.theta, backbone.txt_in.weight.device)
            self.turns[rows, columns] = turn_of(table)
        return self.turns[rows, columns]
