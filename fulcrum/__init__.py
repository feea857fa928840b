"""Fulcrum: a laboratory for training text-to-image models."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulcrum.spec.run import RunSpec
    from fulcrum.train.feed import Feed
    from fulcrum.train.step import Step


def phrase(text: str, *settings: str) -> "RunSpec":
    """The run that a phrase such as "pocket + muon + tread(drop=0.5)" describes; settings are "path=value"."""
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.spec.phrase import parse

    return parse(text, CATALOG, settings).run


def build(run: "RunSpec", seed: int = 0, **system: Any) -> "Step":
    """The Step of a run, a torch module: losses = step(batch, draw)."""
    from fulcrum.spec.system import System
    from fulcrum.train.build import build as make

    return make(run, seed, System(**system))


def feed(run: "RunSpec", seed: int = 0, cache: Path | str = "runs/cache", device: str = "cpu") -> "Feed":
    """Batches and draws of a run by position, on the device of its step: batch, draw = feed.at(images)."""
    from fulcrum.train.feed import Feed

    return Feed(run, seed, Path(cache), device=device)
