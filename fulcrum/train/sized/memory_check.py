"""A run that cannot fit is refused before anything is built, with what would fit, instead of dying in an allocator."""

import os

from fulcrum.dist.machine.free_memory import free_on
from fulcrum.spec.errors import BadInput
from fulcrum.spec.memory import fitting, rank_memory
from fulcrum.spec.run import RunSpec, System
from fulcrum.train.sized.dry_run import layout_of, text_tokens

APART = "a machine like this each"  # processes of one machine share its memory: more of them give none


def require_memory(run: RunSpec, system: System, ranks: int = 1, free: float | None = None) -> None:
    """Refuse what needs more than there is. The figure leaves out what allocators add: it never refuses what would fit."""
    text, layout = text_tokens(run), layout_of(system, ranks)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if system.device == "cpu" else 1  # that share the host's memory
    free = (free_on(system.device) if free is None else free) / here
    parts = rank_memory(run, text, layout)
    needed = sum(parts.values())
    if needed <= free:
        return
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    ways = [words for words, _ in fitting(run, text, layout, free, "a GPU each" if system.device == "cuda" else APART)]
    raise BadInput(
        f"a step of this run needs about {_gigabytes(needed)} {'in all' if ranks == 1 else f'on each of {ranks} processes'}, and "
        f"{_gigabytes(free)} of {'the GPU' if system.device == 'cuda' else 'memory'} {'is' if here == 1 else 'each is'} free: "
        + ", ".join(f"{name} {_gigabytes(size)}" for name, size in largest),
        ("what would fit: " + "; or ".join(ways) if ways else "no number of rows or processes fits: take a smaller model")
        + "\n  every part: the same command with --dry-run",
    )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
