"""What a run would take on named GPUs: step, hours, price, memory and disk, computed and never run."""

from typing import Any

from fulcrum.cost.disk_need import CHECKPOINTS, cache_bytes, checkpoint_bytes
from fulcrum.cost.frozen_networks import frozen_flops
from fulcrum.cost.gpu_types import Machine
from fulcrum.cost.rank_memory import RankLayout, Recompute, fitting, rank_memory
from fulcrum.cost.step_time import SHARE, step_time
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images
from fulcrum.train.sized.dry_run import pictures_of, text_tokens

USABLE = 0.92  # of a GPU's memory; the rest is its driver's, the links' and the allocator's


def estimate(
    run: RunSpec,
    machine: Machine,
    price: float | None = None,
    microbatch: int | None = None,
    recompute: Recompute | None = None,
    text: float | None = None,
) -> dict[str, Any]:
    """As data. Rows and recomputation that nobody chose are chosen so that it fits, with little done twice."""
    if price is not None and not 0 <= price < 1e6:
        raise BadInput(f"a price of {price:g} an hour", "give what an hour of one GPU costs, such as 2.5")
    if run.budget.batch % machine.number:
        raise BadInput(
            f"a batch of {run.budget.batch} cannot be shared by {machine.number} GPUs alike",
            "take a number that divides it, or another --set budget.batch=",
        )
    text = text or text_tokens(run)
    layout = chosen_layout(run, text, machine, microbatch, recompute)
    parts, seconds = rank_memory(run, text, layout), step_time(run, text, machine, layout)
    steps, each = run.budget.images // run.budget.batch, machine.gpu.price if price is None else price
    hours, pictures = steps * seconds.total / 3600, pictures_of(run)
    memory = USABLE * machine.gpu.memory
    frozen, fits = frozen_flops(run, text), sum(parts.values()) <= memory
    encoding = mean_over_images(run, lambda phase: sum(one or 0.0 for one in frozen_flops(phase, text).values()))
    return {
        "machine": str(machine),
        "rows": layout.rows(run),
        "microbatch": layout.pass_rows(run),
        "recompute": layout.recompute,
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
        "encoding_gpu_hours": None
        if pictures is None or None in frozen.values()
        else pictures * encoding / (SHARE * machine.gpu.fp32) / 3600,
    }


def chosen_layout(
    run: RunSpec, text: float, machine: Machine, microbatch: int | None = None, recompute: Recompute | None = None
) -> RankLayout:
    """As asked for; what was not is chosen: no recomputation if a pass of any size fits, else of all blocks."""
    layout = RankLayout(machine.number, machine.shards, microbatch, recompute or "none")
    memory = USABLE * machine.gpu.memory
    for way in (layout.recompute,) if recompute else ("none", "full"):
        asked = layout._replace(recompute=way)
        rows = asked.rows(run)
        sizes = [microbatch] if microbatch else [count for count in range(rows, 0, -1) if rows % count == 0]
        for count in sizes:
            if sum(rank_memory(run, text, asked._replace(microbatch=count)).values()) <= memory:
                return asked._replace(microbatch=count)
    return layout


def headline(run: RunSpec, machine: Machine) -> str:
    """Time, memory and price in a line: what a recipe opens with."""
    costs = estimate(run, machine)
    rows = "" if costs["microbatch"] == costs["rows"] else f", {costs['microbatch']} of {costs['rows']} rows at a time"
    return (
        f"Computed, never run: {hours_in_words(costs['hours'])} on {machine}, {costs['memory_total'] / 1e9:.0f} GB a GPU"
        f"{rows}, {money(costs['price'])} at {costs['price_per_gpu_hour']:.2f} $ an hour."
    )


def hours_in_words(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:.1f} h" if hours < 100 else f"{hours / 24:.1f} days"


def money(dollars: float) -> str:
    return f"{dollars:,.2f} $" if dollars < 10 else f"{dollars:,.0f} $"
