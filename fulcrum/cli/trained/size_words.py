"""A dry run and an estimate in words: what `fulcrum train --dry-run` and `fulcrum estimate` print."""

from collections.abc import Mapping, Sequence
from typing import Any

from fulcrum.spec.flops import amount
from fulcrum.spec.speed import GPUS
from fulcrum.training.estimate import hours_in_words, money

NEVER_RUN = "computed from the run's description; nothing of it was run"

LAST = ("total", "activations, ")  # rows that stand below the parts


def size(value: float) -> str:
    return f"{amount(value)}B"


def table(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Columns as wide as what stands in them: words to the left, the rest to the right."""
    wide = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        (indent + "  ".join([row[0].ljust(wide[0]), *(row[i].rjust(wide[i]) for i in range(1, len(row)))])).rstrip()
        for row in rows
    ]


def dry_run_words(told: Mapping[str, Any], phrase: str) -> str:
    memory: dict[int, dict[str, float]] = told["memory"]
    flops, tokens, disk = told["flops"], told["tokens"], told["disk"]
    names = sorted({name for parts in memory.values() for name in parts}, key=lambda name: (name.startswith(LAST), name))
    heads = [("memory of a process", *("1 process" if one == 1 else f"of {one}" for one in memory))]
    cache, unshared = disk["cache"] or {}, told["ranks_that_cannot_share"]
    lines = [
        f"{phrase}: a dry run, {NEVER_RUN}",
        "",
        _start_words(told),
        f"shapes of one pass on one of {told['ranks']} processes, {told['microbatch']} rows",
        *table(list(told["shapes"].items())),
        "",
        "parameters",
        *table([(name, f"{count:,}") for name, count in told["parameters"].items()]),
        *table([("in all", f"{told['parameters_total']:,}")]),
        "",
        "FLOPs, forward and backward",
        *table(
            [
                (name, f"{amount(flops[key])}FLOP")
                for name, key in (("an image", "image"), ("a step", "step"), ("the run", "run"))
            ]
        ),
        f"  the denoiser's last phase, counted on tensors without memory: {amount(flops['denoiser_counted'])}FLOP an image "
        f"({flops['denoiser_counted'] / flops['denoiser_computed']:.2%} of the formula)",
        f"tokens: {tokens['image']:,} an image, {tokens['text']:.0f} of text, {tokens['batch']:,} a batch, "
        f"{amount(tokens['run'])}tokens of pictures in the run of {told['steps']:,} steps",
        "",
        *table(
            heads
            + [
                (f"  {name}", *(size(parts[name]) if name in parts else "-" for parts in memory.values())) for name in names
            ],
            indent="",
        ),
        *(f"  of {ranks}: not told, a batch of {told['batch']:,} cannot be shared by so many" for ranks in unshared),
        "",
        "disk",
        *table(
            [(f"cache: {name}", size(value)) for name, value in cache.items()]
            + [("a checkpoint", size(disk["checkpoint"])), ("checkpoints kept", size(disk["checkpoints"]))]
        ),
    ]
    if disk["cache"] is None:
        lines.append("  the cache: nobody knows how many pictures there are before the source is built")
    else:
        lines.append(f"  for {disk['pictures']:,} pictures, one caption each")
    return "\n".join(lines)


def _start_words(told: Mapping[str, Any]) -> str:
    """What memory was told for: what was asked for, and what was assumed."""
    system, ranks = told["system"], told["ranks"]
    words = {
        "mesh": f"--mesh {system['mesh']}",
        "microbatch": f"--microbatch {system['microbatch']}" if system["microbatch"] else "all rows in one pass",
        "recompute": f"--recompute {system['recompute']}",
        "compile": f"--{'' if system['compile'] else 'no-'}compile",
    }
    asked = ", ".join(word for name, word in words.items() if name not in told["assumed"])
    assumed = ", ".join(words[name] for name in told["assumed"])
    return (
        f"for {ranks} process{'es' * (ranks > 1)}"
        + (f", asked for: {asked}" if asked else "")
        + (f"; assumed: {assumed}" if assumed else "")
    )


def _pass_words(told: Mapping[str, Any]) -> str:
    """How the run is spread, in the words that train takes, and which of them nobody asked for."""
    words = {
        "mesh": f"--mesh {told['mesh']}",
        "microbatch": f"--microbatch {told['microbatch']} (of {told['rows']} rows)",
        "recompute": f"--recompute {told['recompute']}",
    }
    asked = ", ".join(word for name, word in words.items() if name not in told["chosen"])
    chosen = ", ".join(words[name] for name in told["chosen"])
    return "; ".join(part for part in (asked and f"with {asked}", chosen and f"chosen here: {chosen}") if part)


def estimate_words(told: Mapping[str, Any], phrase: str) -> str:
    step, disk = told["step"], told["disk"]
    price = f"{told['price_per_gpu_hour']:.2f} $ an hour and GPU" + (
        ", an assumption: --price says yours" if told["price_is_assumed"] else ""
    )
    memory = f"{told['memory_total'] / 1e9:.1f} of {told['memory_of_a_gpu'] / 1e9:.0f} GB"
    rows = [
        ("step", f"{1000 * step['total']:.0f} ms: {1000 * step['counted']:.0f} counted, {1000 * step['other']:.0f} other"),
        ("images a second", f"{told['images_per_second']:,.0f}"),
        ("time", f"{hours_in_words(told['hours'])} for {told['steps']:,} steps, {told['gpu_hours']:,.0f} GPU hours"),
        ("at the least", f"{hours_in_words(told['hours_counted'])}, if nothing but what is counted took time"),
        ("price", f"{money(told['price'])} of training at {price}"),
        ("memory of a GPU", memory + ("" if told["fits"] else ": it does not fit")),
        ("", _pass_words(told)),
        ("cache", "not known" if disk["cache"] is None else size(sum(disk["cache"].values()))),
        ("checkpoints", size(disk["checkpoints"])),
    ]
    if told["encoding_gpu_hours"]:
        rows += [
            ("filling the cache", f"{told['encoding_gpu_hours']:,.1f} GPU hours, once, for {told['pictures']:,} pictures: "
             f"{money(told['encoding_price'])}; reading and decoding them is not in it"),
            ("price in all", money(told["price_in_all"])),
        ]  # fmt: skip
    parts = [(f"  {name}", f"{1000 * step[name]:.1f} ms") for name in ("products", "memory", "optimizer", "links", "other")]
    held = [(f"  {name}", size(value)) for name, value in told["memory"].items()]
    return "\n".join(
        [
            f"{phrase} on {told['machine']}: {NEVER_RUN}",
            *(f"  {name:<18} {value}" for name, value in rows),
            *([] if told["fits"] else ["  what would fit     " + ("; or ".join(told["would_fit"]) or "nothing known")]),
            "where a step's time goes",
            *table(parts, indent=""),
            "where a GPU's memory goes",
            *table(held, indent=""),
            f"products at {told['share_of_peak']:.0%} of the GPU's peak, {told['text_tokens']:.0f} text tokens; 'other' is "
            "what one published step took beyond what is counted: docs/estimate.md",
        ]
    )


def gpu_words() -> str:
    """The GPUs that are known."""
    heads = ("GPU", "bf16", "memory", "bandwidth", "links", "price")
    rows = [
        (name, f"{one.bf16 / 1e12:.0f} TFLOP/s", f"{one.memory / 1e9:.0f} GB", f"{one.bandwidth / 1e12:.2f} TB/s",
         f"{one.link / 1e9:.0f} GB/s", f"{one.price:.2f} $/h")
        for name, one in GPUS.items()
    ]  # fmt: skip
    return "\n".join(
        [
            "GPUs that an estimate knows; peaks are their makers', prices are an assumption that --price replaces",
            *table([heads, *rows]),
            'next: fulcrum estimate "prx_256 + tread" --gpus 8xH100',
            "beside the published table: fulcrum estimate --published",
        ]
    )
