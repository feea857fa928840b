"""What the cache of a run will weigh, told before anything is encoded: a disk that fills up after hours helps nobody."""

import shutil
from pathlib import Path

from fulcrum.cost.disk_need import cache_bytes
from fulcrum.train.feed import Feed
from fulcrum.train.sized.dry_run import pictures_of, text_tokens

WORTH_TELLING = 1e9  # bytes; less is there before one has read about it


def tell_cache(feed: Feed) -> None:
    """By formula, from the run's description and the number of its pictures; nothing where all of it is there already.
    With a pretrained text encoder it is the most that may come: captions count with all the tokens that they may have."""
    run = feed.run
    pictures = pictures_of(run) or feed.sight(1)[0]
    entries = cache_bytes(run, text_tokens(run), pictures)
    whole = sum(entries.values())
    if whole < WORTH_TELLING or all(feed.cache.store.seal(job.kind, job.facts) for job in feed.jobs()):
        return
    parts = ", ".join(f"{name} {_gb(value)}" for name, value in entries.items())
    free = _free(feed.root)
    feed.tell(
        f"what is encoded of {pictures:,} pictures will weigh about {_gb(whole)} ({parts}); {feed.root} has {_gb(free)} "
        "free"
    )
    if free < whole:
        feed.tell("warning: it may not fit; what is finished by then is kept. A folder on another disk: --out")


def _free(folder: Path) -> float:
    """Of the disk that a folder lies on, or will."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return float(shutil.disk_usage(there).free)


def _gb(value: float) -> str:
    return f"{value / 1e9:,.1f} GB"
