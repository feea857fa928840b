"""Estimate memory, disk, time and price of a run before anything is spent."""

import os
import shutil
from collections.abc import Collection
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fulcrum.data.fillers import caption_tokens
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import SIZE, TEXT_TOKENS, denoiser_training_flops, parameters, remembered
from fulcrum.spec.memory import (
    RankLayout,
    Recompute,
    fitting,
    frozen_flops,
    picture_numbers,
    rank_memory,
    read_teachers,
    step_memory,
    term_parameters,
)
from fulcrum.spec.run import RunSpec, System
from fulcrum.spec.speed import NODE, SHARE, Machine, hours_in_words, money, step_time
from fulcrum.spec.stage import phases
from fulcrum.training.build import Context, backbone_of
from fulcrum.training.cost_record import count_training
from fulcrum.training.dist.collectives import MeshShape, mesh_shape
from fulcrum.training.dist.machine import free_on
from fulcrum.training.feed import Feed
from fulcrum.training.model.counted_flops import counted

# --------------------------------------------------------------------------------------------------
# Bytes on disk: what the cache of a run will weigh, and its checkpoints. No torch in here.


HALF = 2  # bytes of a number in the cache of texts and teacher tokens
CHECKPOINTS = 2  # kept at a time; the newest is written before the oldest goes


def cache_bytes(run: RunSpec, text: float, pictures: int) -> dict[str, float]:
    """By entry, for so many pictures with one caption each; sizes that a stage changes have entries
    of their own."""
    entries: dict[str, float] = {}
    for phase in phases(run):
        one, size = phase.run, f"{phase.run.data.size} px"
        bytes_each = 1 if one.encode.codec.stride == 1 or one.encode.codec.trained else SIZE["fp32"]
        numbers = 3 * one.data.size**2 if one.encode.codec.trained else picture_numbers(one)
        entries[f"{'pixels' if bytes_each == 1 else 'latents'} at {size}"] = (
            pictures * numbers * bytes_each
        )
        entries["texts"] = pictures * text * one.encode.text.width * HALF
        for teacher in read_teachers(one, phase.start / run.budget.images):
            entries[f"tokens of {teacher.name} at {size}"] = (
                pictures * one.tokens * teacher.width * HALF
            )
    return entries


def checkpoint_bytes(run: RunSpec) -> float:
    """Of one checkpoint: weights, what the optimizer remembers, and the average."""
    average = 0 if run.average.kind == "last_weights" else SIZE["fp32"]
    return parameters(run) * (SIZE["fp32"] + remembered(run) + average)


# --------------------------------------------------------------------------------------------------
# A dry run: shapes, parameters, FLOPs, tokens, memory and disk of a run, with no weight, picture or
# network at hand.
#
# The denoiser is built of tensors without memory and taken through one forward and backward, so
# that parameters and FLOPs are counted as well as computed; memory is by formula
# (`fulcrum.spec.memory`).


# that memory is told for beside the number asked for, where the mesh does not name one
RANKS = (1, 8, 64)
SETTINGS = ("mesh", "microbatch", "recompute", "compile")  # of a system, that memory follows


class CountedDenoiser(NamedTuple):
    """What was counted on a denoiser without memory."""

    parameters: dict[str, int]  # by part
    flops: float  # of one image, forward and backward, in the run's last phase
    computed: float  # the same by formula


def text_tokens(run: RunSpec) -> float:
    """Tokens of a caption that a device computes: as many as these captions have, and no more than
    the encoder takes.

    Where nobody has counted the captions, or the encoder is only described, all that it may give,
    padding included."""
    limit, counted = (
        run.encode.text.most_tokens(),
        caption_tokens(run.data.source, run.data.caption),
    )
    if counted is None or (limit is not None and not getattr(run.encode.text, "path", "")):
        return float(limit or TEXT_TOKENS)
    return float(counted if limit is None else min(limit, counted))


def layout_of(system: System, ranks: int) -> RankLayout:
    """How a system spreads a run over so many processes."""
    shards = mesh_shape(system.mesh, ranks).shards
    return RankLayout(ranks, shards, system.microbatch, system.recompute, system.compile)


def asked_ranks(system: System, ranks: int) -> int:
    """The number of processes that a dry run is for: as many as there are, or, of one alone, as
    many as its mesh names."""
    return (
        ranks
        if ranks > 1 or "x" not in system.mesh
        else MeshShape(*map(int, system.mesh.split("x"))).processes
    )


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
        flops = counted(
            lambda: torch.autograd.backward(
                backbone(x_t, time, (emb, None), keep=keep, **geometry).pred.sum()
            )
        )
    return CountedDenoiser(sizes, flops, denoiser_training_flops(last, words))


def dry_run(
    run: RunSpec, system: System, ranks: int = 1, said: Collection[str] = ()
) -> dict[str, Any]:
    """Everything that is told, as data; bytes are bytes. `said`: the settings of the system that
    somebody asked for."""
    text, ranks = text_tokens(run), asked_ranks(system, ranks)
    layout = layout_of(system, ranks)
    denoiser = count_denoiser(run, text)
    flops = count_training(run, text)
    pictures = run.data.source.pictures()
    told_for = dict.fromkeys((ranks,) if "x" in system.mesh else (ranks, *RANKS))
    terms = term_parameters(run)
    return {
        "shapes": shapes(run, text, layout),
        "parameters": {
            **denoiser.parameters,
            **{f"term {name}": size for name, size in terms.items() if size},
        },
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
            count: memory_rows(run, text, layout_of(system, count))
            for count in told_for
            if run.budget.batch % count == 0
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
    """Bytes of one rank by part; activations as the layout has them, and what they would be the
    other way."""
    parts = rank_memory(run, text, layout)
    ways = {
        way: rank_memory(run, text, layout._replace(recompute=way))["activations"]
        for way in ("none", "full")
    }
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


# --------------------------------------------------------------------------------------------------
# What the cache of a run will weigh, told before anything is encoded: a disk that fills up after
# hours helps nobody.


WORTH_TELLING = 1e9  # bytes; less is there before one has read about it


def tell_cache(feed: Feed) -> None:
    """By formula, from the run's description and the number of its pictures; nothing where all of
    it is there already. With a pretrained text encoder it is the most that may come: captions count
    with all the tokens that they may have."""
    run = feed.run
    pictures = run.data.source.pictures() or feed.sight(1)[0]
    entries = cache_bytes(run, text_tokens(run), pictures)
    whole = sum(entries.values())
    if whole < WORTH_TELLING or all(
        feed.cache.store.seal(job.kind, job.facts) for job in feed.jobs()
    ):
        return
    parts = ", ".join(f"{name} {_gb(value)}" for name, value in entries.items())
    free = _free(feed.root)
    feed.tell(
        f"what is encoded of {pictures:,} pictures will weigh about {_gb(whole)} ({parts});"
        f" {feed.root} has {_gb(free)} free"
    )
    if free < whole:
        feed.tell(
            "warning: it may not fit; what is finished by then is kept. A folder on another disk:"
            " --out"
        )


def _free(folder: Path) -> float:
    """Of the disk that a folder lies on, or will."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return float(shutil.disk_usage(there).free)


def _gb(value: float) -> str:
    return f"{value / 1e9:,.1f} GB"


# --------------------------------------------------------------------------------------------------
# What a run would take on named GPUs: step, hours, price, memory and disk, computed and never run.


USABLE = 0.92  # of a GPU's memory; the rest is its driver's, the links' and the allocator's


def estimate(
    run: RunSpec,
    machine: Machine,
    price: float | None = None,
    microbatch: int | None = None,
    recompute: Recompute | None = None,
    text: float | None = None,
    mesh: str | None = None,
) -> dict[str, Any]:
    """As data. Rows, recomputation and mesh that nobody chose are chosen so that it fits, with
    little done twice."""
    if price is not None and not 0 <= price < 1e6:
        raise BadInput(
            f"a price of {price:g} an hour", "give what an hour of one GPU costs, such as 2.5"
        )
    if run.budget.batch % machine.number:
        raise BadInput(
            f"a batch of {run.budget.batch} cannot be shared by {machine.number} GPUs alike",
            "take a number that divides it, or another --set budget.batch=",
        )
    text = text or text_tokens(run)
    layout = chosen_layout(run, text, machine, microbatch, recompute, mesh)
    parts, seconds = rank_memory(run, text, layout), step_time(run, text, machine, layout)
    steps, each = (
        run.budget.images // run.budget.batch,
        machine.gpu.price if price is None else price,
    )
    hours, pictures = steps * seconds.total / 3600, run.data.source.pictures()
    memory = USABLE * machine.gpu.memory
    frozen, fits = frozen_flops(run, text), sum(parts.values()) <= memory
    known = pictures is not None and None not in frozen.values()
    encoding = (
        pictures * encoding_flops(run, text) / (SHARE * machine.gpu.fp32) / 3600
        if known and pictures
        else None
    )
    asked = {"mesh": mesh, "microbatch": microbatch, "recompute": recompute}
    return {
        "machine": str(machine),
        "rows": layout.rows(run),
        "microbatch": layout.pass_rows(run),
        "recompute": layout.recompute,
        "mesh": f"{layout.ranks // layout.sharing}x{layout.sharing}",
        "chosen": [name for name, word in asked.items() if word is None],
        "text_tokens": text,
        "share_of_peak": SHARE,
        "step": {**seconds._asdict(), "counted": seconds.counted, "total": seconds.total},
        "steps": steps,
        "images_per_second": run.budget.batch / seconds.total,
        "hours": hours,
        "hours_counted": steps * seconds.counted / 3600,
        "gpu_hours": hours * machine.number,
        "price_per_gpu_hour": each,
        "price_is_assumed": price is None,
        "price": hours * machine.number * each,
        "memory": parts,
        "memory_total": sum(parts.values()),
        "memory_of_a_gpu": machine.gpu.memory,
        "fits": fits,
        "would_fit": [] if fits else [words for words, _ in fitting(run, text, layout, memory)],
        "disk": {
            "cache": None if pictures is None else cache_bytes(run, text, pictures),
            "checkpoints": CHECKPOINTS * checkpoint_bytes(run),
        },
        "pictures": pictures,
        "encoding_gpu_hours": encoding,
        "encoding_price": None if encoding is None else encoding * each,
        "price_in_all": hours * machine.number * each + (encoding or 0.0) * each,
    }


def encoding_flops(run: RunSpec, text: float) -> float:
    """Of one picture that is encoded once for each size that a stage has: codec and teachers at
    that size, text once."""
    sizes: dict[str, float] = {}
    for phase in phases(run):
        for name, flops in frozen_flops(phase.run, text, phase.start / run.budget.images).items():
            sizes[name if name == "text" else f"{name} at {phase.run.data.size}"] = flops or 0.0
    return sum(sizes.values())


def chosen_layout(
    run: RunSpec,
    text: float,
    machine: Machine,
    microbatch: int | None = None,
    recompute: Recompute | None = None,
    mesh: str | None = None,
) -> RankLayout:
    """As asked for; what was not is chosen: weights shared in a machine if that fits, no
    recomputation if a pass of any size fits, else of every other block, else of all."""
    shared = (
        (machine.shards, machine.number)
        if mesh is None
        else (mesh_shape(mesh, machine.number).shards,)
    )
    layout = RankLayout(machine.number, shared[0], microbatch, recompute or "none")
    sizes = [microbatch] if microbatch else layout.pass_sizes(run)
    ways: tuple[Recompute, ...] = (recompute,) if recompute else ("none", "selective", "full")
    for shards, way, count in product(dict.fromkeys(shared), ways, sizes):
        one = layout._replace(shards=shards, recompute=way, microbatch=count)
        if step_memory(run, text, one) <= USABLE * machine.gpu.memory:
            return one
    return layout


def headline(run: RunSpec, machine: Machine) -> str:
    """Time, memory and price in a line, encoding included: what a recipe opens with."""
    costs = estimate(run, machine)
    encoding, here = (
        costs["encoding_gpu_hours"] or 0.0,
        machine._replace(number=min(machine.number, NODE)),
    )
    return (
        f"Computed, never run: {costs['pictures']:,} pictures are encoded in"
        f" {hours_in_words(encoding / here.number)} on {here} and trained on in"
        f" {hours_in_words(costs['hours'])} on {machine}; {costs['memory_total'] / 1e9:.0f} of"
        f" {machine.gpu.memory / 1e9:.0f} GB a GPU{pass_words(costs)};"
        f" {money(costs['price_in_all'])} at {costs['price_per_gpu_hour']:.2f} $ an hour and GPU,"
        f" of which {money(costs['encoding_price'] or 0.0)} for encoding."
    )


def pass_words(costs: dict[str, Any]) -> str:
    """How rows and blocks are taken where not all at once and kept."""
    rows = (
        ""
        if costs["microbatch"] == costs["rows"]
        else f", {costs['microbatch']} of {costs['rows']} rows at a time"
    )
    again = {
        "none": "",
        "selective": ", every other block recomputed",
        "full": ", all blocks recomputed",
    }
    return rows + again[costs["recompute"]]


# --------------------------------------------------------------------------------------------------
# A run that cannot fit is refused before anything is built, with what would fit, instead of dying
# in an allocator.


# processes of one machine share its memory: more of them give none
APART = "a machine like this each"


def require_memory(run: RunSpec, system: System, ranks: int = 1, free: float | None = None) -> None:
    """Refuse what needs more than there is. The figure leaves out what allocators add: it never
    refuses what would fit."""
    text, layout = text_tokens(run), layout_of(system, ranks)
    # that share the host's memory
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if system.device == "cpu" else 1
    free = (free_on(system.device) if free is None else free) / here
    parts = rank_memory(run, text, layout)
    needed = sum(parts.values())
    if needed <= free:
        return
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    ways = [
        words
        for words, _ in fitting(
            run, text, layout, free, "a GPU each" if system.device == "cuda" else APART
        )
    ]
    raise BadInput(
        f"a step of this run needs about {_gb(needed)}"
        f" {'in all' if ranks == 1 else f'on each of {ranks} processes'}, and {_gb(free)} of"
        f" {'the GPU' if system.device == 'cuda' else 'memory'} {'is' if here == 1 else 'each is'}"
        " free: " + ", ".join(f"{name} {_gb(size)}" for name, size in largest),
        (
            "what would fit: " + "; or ".join(ways)
            if ways
            else "no number of rows or processes fits: take a smaller model"
        )
        + "\n  every part: the same command with --dry-run",
    )
