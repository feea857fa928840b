"""How the blocks of a backbone are run: as they are, compiled, or computed again in the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from fulcrum.model.backbone import Backbone


class BlockRunner(NamedTuple):
    compiled: bool = False
    recompute: bool = False

    def __call__(
        self,
        block: nn.Module,
        h: Tensor,
        active: Tensor,
        table: Tensor,
        text: Tensor,
        place: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        if self.compiled and place is not None:  # a text has another length at every batch: one graph for all
            for varying in (text, place):
                torch._dynamo.maybe_mark_dynamic(varying, 0)
        inputs = (h, active, table, text, place, bias)
        if self.recompute and torch.is_grad_enabled():
            h = checkpoint(block, *inputs, use_reentrant=False)
        else:
            h = block(*inputs)
        return h


def compile_blocks(backbone: Backbone, lanes: int = 1, **options: Any) -> None:
    """Compile every block in place; they share one graph, since they differ in their parameters only.

    With several lanes the code between the kernels is C++ too: in Python lanes wait for each other (4-10 % of a step).
    """
    if lanes > 1 and not options:
        options = {"options": {"cpp_wrapper": True}}
    for block in backbone.blocks:
        block.compile(fullgraph=True, **options)
    backbone.run_block = backbone.run_block._replace(compiled=True)


def recompute_blocks(backbone: Backbone) -> None:
    """Activation checkpointing: keep only the inputs of each block, and compute the rest again in the backward."""
    backbone.run_block = backbone.run_block._replace(recompute=True)
