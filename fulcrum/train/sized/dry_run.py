"""A dry run: shapes, parameters, FLOPs, tokens, memory and disk of a run, with no weight, picture or network at hand.

The denoiser is built of tensors without memory and taken through one forward and backward, so that parameters and FLOPs are
counted as well as computed; memory is by formula (`fulcrum.spec.memory`).
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fulcrum.cost.disk_need import CHECKPOINTS, cache_bytes, checkpoint_bytes
from fulcrum.data.fillers import caption_tokens
from fulcrum.dist.mesh import MeshShape, mesh_shape
from fulcrum.model.counted_flops import counted
from fulcrum.spec.flops import TEXT_TOKENS, denoiser_training_flops, parameters
from fulcrum.spec.memory import RankLayout, rank_memory, read_teachers, term_parameters
from fulcrum.spec.run import RunSpec, System
from fulcrum.spec.stage import phases
from fulcrum.train.build import Context, backbone_of
from fulcrum.train.watched.training_cost import count_training

RANKS = (1, 8, 64)  # that memory is told for beside the number asked for, where the mesh does not name one
SETTINGS = ("mesh", "microbatch", "recompute", "compile")  # of a system, that memory follows


class CountedDenoiser(NamedTuple):
    """What was counted on a denoiser without memory."""

    parameters: dict[str, int]  # by part
    flops: float  # of one image, forward and backward, in the run's last phase
    computed: float  # the same by formula


def text_tokens(run: RunSpec) -> float:
    """Tokens of a caption that a device computes: as many as these captions have, and no more than the encoder takes.

    Where nobody has counted the captions, or the encoder is only described, all that it may give, padding included."""
    limit, counted = run.encode.text.most_tokens(), caption_tokens(run.data.source, run.data.caption)
    if counted is None or (limit is not None and not getattr(run.encode.text, "path", "")):
        return float(limit or TEXT_TOKENS)
    return float(counted if limit is None else min(limit, counted))


def pictures_of(run: RunSpec) -> int | None:
    """Pictures of its source, as far as its description or an imported folder says."""
    count, counted = getattr(run.data.source, "count", None), getattr(run.data.source, "pictures", None)
    if counted is not None:
        return int(counted())
    return int(count) if count else None


def layout_of(system: System, ranks: int) -> RankLayout:
    """How a system spreads a run over so many processes."""
    shards = mesh_shape(system.mesh, ranks).shards
    return RankLayout(ranks, shards, system.microbatch, system.recompute, system.compile)


def asked_ranks(system: System, ranks: int) -> int:
    """The number of processes that a dry run is for: as many as there are, or, of one alone, as many as its mesh names."""
    return ranks if ranks > 1 or "x" not in system.mesh else MeshShape(*map(int, system.mesh.split("x"))).processes


def count_denoiser(run: RunSpec, text: float) -> CountedDenoiser:
    """The denoiser as the run ends with it, on tensors that have a shape and nothing else."""
    last = phases(run)[-1].run
    codec, words = last.encode.codec, max(1, round(text))
    side, kept = last.data.size // codec.stride, last.model.route.kept(last.tokens)
    with FakeTensorMode():
        backbone = backbone_of(Context(last, 0, System(bf16="native")))
        sizes: dict[str, int] = {}
        for name, weight in backbone.named_parameters():
            sizes[name.split(".")[0]] = sizes.get(name.split(".")[0], 0) + weight.numel()
        keep = torch.arange(kept).expand(1, kept) if kept < last.tokens else None
        x_t, time = torch.zeros(1, codec.channels, side, side), torch.zeros(1)
        emb = torch.zeros(1, words, last.encode.text.width)
        geometry = {"size": torch.zeros(1, 4)} if last.model.condition.geometry else {}
        flops = counted(lambda: torch.autograd.backward(backbone(x_t, time, (emb, None), keep=keep, **geometry).pred.sum()))
    return CountedDenoiser(sizes, flops, denoiser_training_flops(last, words))


def dry_run(run: RunSpec, system: System, ranks: int = 1, said: Collection[str] = ()) -> dict[str, Any]:
    """Everything that is told, as data; bytes are bytes. `said`: the settings of the system that somebody asked for."""
    text, ranks = text_tokens(run), asked_ranks(system, ranks)
    layout = layout_of(system, ranks)
    denoiser = count_denoiser(run, text)
    flops = count_training(run, text)
    pictures = pictures_of(run)
    told_for = dict.fromkeys((ranks,) if "x" in system.mesh else (ranks, *RANKS))
    terms = term_parameters(run)
    return {
        "shapes": shapes(run, text, layout),
        "parameters": {**denoiser.parameters, **{f"term {name}": size for name, size in terms.items() if size}},
        "parameters_total": sum(denoiser.parameters.values()) + sum(terms.values()),
        "parameters_computed": parameters(run),
        "flops": {
            "image": flops.training(),
            "step": flops.training() * run.budget.batch,
            "run": flops.training() * run.budget.images,
            "denoiser_counted": denoiser.flops,
            "denoiser_computed": denoiser.computed,
            "terms": flops.terms,
        },
        "tokens": {
            "image": run.tokens,
            "text": text,
            "batch": run.tokens * run.budget.batch,
            "run": sum((phase.end - phase.start) * phase.run.tokens for phase in phases(run)),
        },
        "steps": run.budget.images // run.budget.batch,
        "batch": run.budget.batch,
        "ranks": ranks,
        "microbatch": layout.pass_rows(run),
        "system": {name: getattr(system, name) for name in SETTINGS},
        "assumed": [name for name in SETTINGS if name not in said],
        "memory": {
            count: memory_rows(run, text, layout_of(system, count)) for count in told_for if run.budget.batch % count == 0
        },
        "ranks_that_cannot_share": [count for count in told_for if run.budget.batch % count],
        "disk": {
            "cache": None if pictures is None else cache_bytes(run, text, pictures),
            "pictures": pictures,
            "checkpoint": checkpoint_bytes(run),
            "checkpoints": CHECKPOINTS * checkpoint_bytes(run),
        },
    }


def memory_rows(run: RunSpec, text: float, layout: RankLayout) -> dict[str, float]:
    """Bytes of one rank by part; activations as the layout has them, and what they would be the other way."""
    parts = rank_memory(run, text, layout)
    ways = {way: rank_memory(run, text, layout._replace(recompute=way))["activations"] for way in ("none", "full")}
    return {
        **parts,
        "total": sum(parts.values()),
        "activations, nothing recomputed": ways["none"],
        "activations, all blocks recomputed": ways["full"],
    }


def shapes(run: RunSpec, text: float, layout: RankLayout) -> dict[str, str]:
    """What flows through one pass of a rank in each phase, by name."""
    rows, told = layout.pass_rows(run), {}
    for phase in phases(run):
        one, codec, width = phase.run, phase.run.encode.codec, phase.run.model.width
        side, kept = one.data.size // codec.stride, one.model.route.kept(one.tokens)
        at = f" at {one.data.size} px" if len(phases(run)) > 1 else ""
        told[f"pictures{at}"] = _shape(rows, 3, one.data.size, one.data.size)
        told[f"what the denoiser sees{at}"] = _shape(rows, codec.channels, side, side)
        told[f"tokens{at}"] = _shape(rows, one.tokens, width)
        if kept < one.tokens:
            first, last = one.model.route.bounds(one.model.depth)
            told[f"tokens in blocks {first} to {last}{at}"] = _shape(rows, kept, width)
        told["texts"] = _shape(rows, round(text), one.encode.text.width)
        for teacher in read_teachers(one, phase.start / run.budget.images):
            told[f"tokens of {teacher.name}{at}"] = _shape(rows, one.tokens, teacher.width)
    return told


def _shape(*sides: int) -> str:
    return "(" + ", ".join(map(str, sides)) + ")"
