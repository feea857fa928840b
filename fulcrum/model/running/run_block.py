"""How a backbone is run: as it is, compiled (in one graph, or block by block), or with activations computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fulcrum.model.packed_text import Packed, ReadText, Text, any_length, pack

if TYPE_CHECKING:
    from fulcrum.model.backbone import Backbone, Out

ONE_GRAPH = 6  # blocks: a graph of more takes minutes to compile
# A graph for every shape: a routed span or a stage of larger pictures would else get slower code, for shapes of any size.
# Up to 64 of a function in one process: cells of a study differ in routes, taps and shapes.
STATIC: dict[str, Any] = {"fullgraph": True, "dynamic": False, "recompile_limit": 64}


class BlockRunner(NamedTuple):
    graphs: Literal["none", "blocks", "one"] = "none"

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
        inputs = (h, active, table, text, place, bias)
        if getattr(block, "recomputed", False) and torch.is_grad_enabled():
            h = checkpoint(block, *inputs, use_reentrant=False)
        else:
            h = block(*inputs)
        return h


def run_backbone(backbone: Backbone, x_t: Tensor, t: Tensor, text: Text | Packed | ReadText, **more: Any) -> Out:
    """The backbone's forward. One graph is given packed text: how many tokens are real no compiler knows."""
    if backbone.run_block.graphs == "one" and not isinstance(text, Packed | ReadText):
        text = pack(*text)
        any_length(text.rows, text.place)
    return backbone(x_t, t, text, **more)


def compile_backbone(backbone: Backbone, lanes: int = 1, **options: Any) -> None:
    """Compile in place: a shallow stack in one graph, forward and backward, which is entered once; a deep one by blocks.

    One graph made a step of three blocks 7-9 % faster, and takes half as long again to compile (docs/decisions/0037).
    """
    if backbone.depth > ONE_GRAPH:
        compile_blocks(backbone, lanes, **options)
        return
    backbone.compile(**STATIC, **(options or _options(lanes)))
    backbone.run_block = backbone.run_block._replace(graphs="one")


def compile_blocks(backbone: Backbone, lanes: int = 1, **options: Any) -> None:
    """Compile every block in place; they share one graph, since they differ in their parameters only. For sharded models
    too, whose weights are gathered by what is called around `Block.forward`: it hands on tensors of its own, so how a text
    may vary is said inside of that (said before, it was lost, and every length of a text was compiled anew)."""
    from fulcrum.model.block import Block

    compiled = torch.compile(Block.run, **STATIC, **(options or _options(lanes)))
    for block in backbone.blocks:
        block.compiled = compiled
    backbone.run_block = backbone.run_block._replace(graphs="blocks")


def _options(lanes: int) -> dict[str, Any]:
    """Several lanes: the code between the kernels is C++ too; in Python they wait for each other (4-10 % of a step)."""
    return {"options": {"cpp_wrapper": True}} if lanes > 1 else {}


def recompute_blocks(backbone: Backbone, every: int = 1) -> None:
    """Activation checkpointing: of each block, or `every` second one and so on, keep only the inputs, and compute the
    rest again in the backward."""
    for block in list(backbone.blocks)[::every]:
        block.recomputed = True
