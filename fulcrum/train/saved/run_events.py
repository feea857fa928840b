"""events.jsonl of a run: what happened to it beside its steps. Its sessions with their machines, alarms, roll-backs.

A session that resumes takes back the alarms of steps that it will take again. Sessions and roll-backs stay.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from fulcrum.files.paths import reason
from fulcrum.files.sealed import append_records, keep_records, read_records

SESSION: Final = "session"
ALARM: Final = "alarm"
ROLLED_BACK: Final = "rolled back"
EventKind = Literal["session", "alarm", "rolled back"]
MOST = 1000  # lines of one session: a run of weeks must not fill a disk with what is the same


class RunEvents:
    """Written by the first process of a run. A file that cannot be written is told of: the run goes on without it."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.path, self.say = folder / "events.jsonl", say
        self.written = self.alarms = 0  # by this session

    def read(self) -> list[dict[str, Any]]:
        """The good lines; whatever else stands there is nobody's event."""
        try:
            return [line for line in read_records(self.path).values if _is_event(line)]
        except OSError:
            return []

    def resume(self, images: int) -> None:
        """Forget what steps after `images` gave: they are taken again."""
        if not self.path.exists() and not self.path.is_symlink():
            return
        try:
            keep_records(self.path, lambda line: _is_event(line) and (line["event"] != ALARM or line["images"] <= images))
        except OSError as error:
            self._tell(error)

    def write(self, event: EventKind, images: int, facts: Mapping[str, Any]) -> None:
        self.written += 1
        self.alarms += event == ALARM
        if self.written > MOST:
            return
        try:
            append_records(self.path, {"event": event, "images": images, **facts})
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        self.say(f"{self.path} cannot be written: {reason(error)}; what happens to this run is not kept there")


def counted_sessions(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those whose steps are part of the run: what an earlier session did beyond where a later one began was lost."""
    counted: list[dict[str, Any]] = []
    for event in events:
        if event["event"] == SESSION:
            counted = [one for one in counted if one["images"] < event["images"]] + [event]
    return counted


def _is_event(line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("images"), int) and line.get("event") in (SESSION, ALARM, ROLLED_BACK)
