"""A run in a few words: what was set besides its phrase, what it trains on, what reads its captions."""

from typing import Any

from fulcrum.spec.edit import diff
from fulcrum.spec.record import Filler
from fulcrum.spec.run import RunSpec

LONGEST = 60  # letters of a value; a hash or a long path says no more in full


def in_brief(filler: Filler) -> str:
    """'world(max_objects=1)': a filler's kind and those of its settings that are not the usual ones."""
    fields = type(filler).model_fields
    settings = [f"{name}={getattr(filler, name)}" for name in fields if getattr(filler, name) != fields[name].default]
    return f"{filler.kind}({', '.join(settings)})" if settings else filler.kind


def set_besides(run: RunSpec, named: RunSpec) -> list[str]:
    """path=value of everything in which a run is not the one that its phrase names."""
    return [f"{change.path}={_cut(change.after)}" for change in diff(named, run)]


def _cut(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
