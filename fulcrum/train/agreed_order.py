"""What the processes of a run must have in common before they train: the order, the code, the folder, the caches."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fulcrum.dist.processes.agreement import code_hash, require_agreement, require_shared, versions
from fulcrum.dist.processes.start import Ranks
from fulcrum.spec.edit import key, read_by
from fulcrum.train.feed import Feed

if TYPE_CHECKING:
    from fulcrum.train.session import Order

OWN = {"threads"}  # of the system: what machines may have their own of


def require_same_order(order: "Order", ranks: Ranks) -> None:
    """One run, one seed, one code, one folder: else the ranks that differ are named, on all ranks, and nothing is made."""
    if ranks.size == 1:
        return
    facts = {
        "key": key(order.run, order.seed, order.user_files),
        "seed": order.seed,
        "processes": ranks.size,
        "--most-skipped": order.most_skipped,
        "code of the package": code_hash(),
        **{f"version of {name}": number for name, number in versions().items()},
        **dict(_leaves(order.run.plain())),
        **{f"{name} (read)": digest for name, digest in read_by(order.run).items()},
        **{f"{Path(name).name} (--with)": digest for name, digest in order.user_files.items()},
        **{f"system.{name}": value for name, value in order.system.model_dump().items() if name not in OWN},
    }
    require_agreement(ranks, "what to train", facts)
    require_shared(ranks, order.out)


def require_same_caches(feed: Feed, ranks: Ranks) -> None:
    """Encodings that every rank has already must be the same ones: a cache may lie on a machine's own disk."""
    if ranks.size == 1:
        return
    jobs = {f"{job.what}, {job.kind} {job.facts}": job for job in feed.jobs()}
    seals = {name: feed.cache.store.seal(job.kind, job.facts) for name, job in jobs.items()}
    here = {name: seal for name, seal in seals.items() if seal is not None}
    everywhere = [set(json.loads(names)) for names in ranks.told("the cached encodings", json.dumps(list(here)))]
    common = set.intersection(*everywhere)
    require_agreement(ranks, "cached encodings", {name: seal for name, seal in here.items() if name in common})


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a description with its path."""
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and value:
        for number, part in enumerate(value):
            yield from _leaves(part, f"{path}.{number}")
    else:
        yield path, value
