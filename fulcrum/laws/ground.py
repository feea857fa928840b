"""The ground on which a lever is tried: the smallest run that has every part, in the form that the lever needs."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.spec.edit import diff
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue, apply, parse
from fulcrum.spec.run import RunSpec

TINY = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "budget.images=48",
    "data.source.count=64",
    "data.source.max_objects=2",
    "sample.steps=2",
)

# Tried in this order: a lever is held to the laws on the first ground that it fits.
GROUNDS: dict[str, tuple[str, ...]] = {
    "latents": (),
    "synthetic pictures": ("data.source.domain=synthetic",),
    "bf16 storage": ("precision.storage=bf16",),
    "pixels": ("encode.codec=pixels", "model.patch=8", "flow.predict=x"),
    "a longer run": ("budget.images=96",),
    "carried tokens": ("model.route=carry(start=1, end=-2, drop=0.5)",),
    "aligned": ("terms=[flow_matching, alignment]", "encode.teachers=[world_teacher]"),
    "aligned layers": ("model.patch=4", "terms=[flow_matching, alignment]", "encode.teachers=[world_teacher]"),
    "contrasted samples": ("terms=[flow_matching, contrastive]",),
    "cropped pictures": ("data.source.crop=0.25",),
    "fused tokens": ("model.route=drop_and_fuse(start=1, end=-2, drop=0.75, path_drop=0.05)",),
    "weights to begin from": ("start=stand_in",),
}


def tried(lever: type[Any], folder: Path) -> Any:
    """A lever as the laws try it: with its defaults, and a tiny random network where it reads one from a folder."""
    if not hasattr(lever, "network"):
        return lever()
    from fulcrum.laws.random_networks import written

    return lever(path=str(written(lever.network, folder / "networks")))


class Ground(NamedTuple):
    """A tiny baseline."""

    name: str
    run: RunSpec


def grounds(catalogue: Catalogue) -> Iterator[Ground]:
    for name, settings in GROUNDS.items():
        yield Ground(name, parse("spark", catalogue, [*TINY, *settings]).run)


def usable(lever: Any, catalogue: Catalogue) -> list[Ground]:
    """Every ground that a lever fits."""
    return [ground for ground in grounds(catalogue) if fits(lever, ground.run) is None]


def fits(lever: Any, run: RunSpec) -> str | None:
    """Why a lever, or several together, cannot be tried on this run, or None."""
    try:
        edited = apply(run, lever if isinstance(lever, tuple) else (lever,))
        return edited.model.learned.problem(edited) if diff(run, edited) else "it changes nothing there"
    except BadInput as error:
        return error.message


def ground_of(lever: Any, catalogue: Catalogue) -> Ground:
    """The first ground that a lever fits, or the first of all for one that fits none: the law of edits will say so."""
    known = grounds(catalogue)  # most levers fit the first: the others are not made
    first = next(known)
    return next((ground for ground in chain([first], known) if fits(lever, ground.run) is None), first)
