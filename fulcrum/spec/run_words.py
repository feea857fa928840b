"""A run in a few words: what was set besides its phrase, what it trains on, what reads its captions."""

from pathlib import PurePath
from typing import Any

from fulcrum.spec.edit import Change, diff, get, inside
from fulcrum.spec.record import Filler, typed
from fulcrum.spec.run import RunSpec

LONGEST = 60  # letters of a value; a hash or a long path says no more in full


def in_brief(filler: Filler) -> str:
    """'world(max_objects=1)': a filler's kind and those of its settings that are not the usual ones; of a folder its name,
    since the words go to pages that others read."""
    fields = type(filler).model_fields
    unusual = {name: getattr(filler, name) for name in fields if getattr(filler, name) != fields[name].default}
    settings = [f"{name}={typed(_last_name(value))}" for name, value in unusual.items()]
    return f"{filler.kind}({', '.join(settings)})" if settings else filler.kind


def set_besides(run: RunSpec, named: RunSpec) -> list[str]:
    """path=value of everything in which a run is not the one that its phrase names; what a pipeline brought is named once,
    as `start=` and the pipeline's name."""
    brought = {f"encode.{slot}" for slot in ("codec", "text") if of_start(run, getattr(run.encode, slot))}
    words = {change.path: _cut(_brief(run, change)) for change in diff(named, run) if change.path not in brought}
    if any(inside(path, ("start",)) for path in words):
        words = {path: text for path, text in words.items() if not inside(path, ("start",))} | {"start": start_name(run)}
    return [f"{path}={text}" for path, text in words.items()]


def of_start(run: RunSpec, part: Filler) -> bool:
    """Does a part lie in the pipeline that the run began from?"""
    return bool(getattr(part, "path", "")) and getattr(part, "path", "") == getattr(run.start, "path", "")


def start_name(run: RunSpec) -> str:
    """What a run began from: a run's key, a folder's name, or an id of the hub."""
    key, path = getattr(run.start, "run", ""), getattr(run.start, "path", "")
    name = path if path.startswith("hub:") else PurePath(path).name
    return key[:8] or name or in_brief(run.start)


def _last_name(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_last_name(one) for one in value)
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value


def _brief(run: RunSpec, change: Change) -> Any:
    """What stands there now; a filler without the settings that are usual."""
    if change.after is None:
        return None
    value = get(run, change.path)
    return in_brief(value) if isinstance(value, Filler) else change.after


def _cut(value: Any) -> str:
    text = "nothing" if value is None else typed(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
