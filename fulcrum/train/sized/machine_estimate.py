"""What a run would take on named GPUs: step, hours, price, memory and disk, computed and never run."""

from itertools import product
from typing import Any

from fulcrum.cost.disk_need import CHECKPOINTS, cache_bytes, checkpoint_bytes
from fulcrum.dist.mesh import mesh_shape
from fulcrum.spec.errors import BadInput
from fulcrum.spec.memory import RankLayout, Recompute, fitting, frozen_flops, rank_memory
from fulcrum.spec.run import RunSpec
from fulcrum.spec.speed import NODE, SHARE, Machine, step_time
from fulcrum.spec.stage import phases
from fulcrum.train.sized.dry_run import pictures_of, text_tokens

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
    """As data. Rows, recomputation and mesh that nobody chose are chosen so that it fits, with little done twice."""
    if price is not None and not 0 <= price < 1e6:
        raise BadInput(f"a price of {price:g} an hour", "give what an hour of one GPU costs, such as 2.5")
    if run.budget.batch % machine.number:
        raise BadInput(
            f"a batch of {run.budget.batch} cannot be shared by {machine.number} GPUs alike",
            "take a number that divides it, or another --set budget.batch=",
        )
    text = text or text_tokens(run)
    layout = chosen_layout(run, text, machine, microbatch, recompute, mesh)
    parts, seconds = rank_memory(run, text, layout), step_time(run, text, machine, layout)
    steps, each = run.budget.images // run.budget.batch, machine.gpu.price if price is None else price
    hours, pictures = steps * seconds.total / 3600, pictures_of(run)
    memory = USABLE * machine.gpu.memory
    frozen, fits = frozen_flops(run, text), sum(parts.values()) <= memory
    known = pictures is not None and None not in frozen.values()
    encoding = pictures * encoding_flops(run, text) / (SHARE * machine.gpu.fp32) / 3600 if known and pictures else None
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
    """Of one picture that is encoded once for each size that a stage has: codec and teachers at that size, text once."""
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
    """As asked for; what was not is chosen: weights shared in a machine if that fits, no recomputation if a pass of any
    size fits, else of every other block, else of all."""
    shared = (machine.shards, machine.number) if mesh is None else (mesh_shape(mesh, machine.number).shards,)
    layout = RankLayout(machine.number, shared[0], microbatch, recompute or "none")
    rows = layout.rows(run)
    sizes = [microbatch] if microbatch else [count for count in range(rows, 0, -1) if rows % count == 0]
    ways: tuple[Recompute, ...] = (recompute,) if recompute else ("none", "selective", "full")
    for shards, way, count in product(dict.fromkeys(shared), ways, sizes):
        one = layout._replace(shards=shards, recompute=way, microbatch=count)
        if sum(rank_memory(run, text, one).values()) <= USABLE * machine.gpu.memory:
            return one
    return layout


def headline(run: RunSpec, machine: Machine) -> str:
    """Time, memory and price in a line, encoding included: what a recipe opens with."""
    costs = estimate(run, machine)
    encoding, here = costs["encoding_gpu_hours"] or 0.0, machine._replace(number=min(machine.number, NODE))
    return (
        f"Computed, never run: {costs['pictures']:,} pictures are encoded in {hours_in_words(encoding / here.number)} on "
        f"{here} and trained on in {hours_in_words(costs['hours'])} on {machine}; "
        f"{costs['memory_total'] / 1e9:.0f} of {machine.gpu.memory / 1e9:.0f} GB a GPU{pass_words(costs)}; "
        f"{money(costs['price_in_all'])} at {costs['price_per_gpu_hour']:.2f} $ an hour and GPU, of which "
        f"{money(costs['encoding_price'] or 0.0)} for encoding."
    )


def pass_words(costs: dict[str, Any]) -> str:
    """How rows and blocks are taken where not all at once and kept."""
    rows = "" if costs["microbatch"] == costs["rows"] else f", {costs['microbatch']} of {costs['rows']} rows at a time"
    again = {"none": "", "selective": ", every other block recomputed", "full": ", all blocks recomputed"}
    return rows + again[costs["recompute"]]


def hours_in_words(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:.1f} h" if hours < 100 else f"{hours / 24:.1f} days"


def money(dollars: float) -> str:
    return f"{dollars:,.2f} $" if dollars < 10 else f"{dollars:,.0f} $"
