"""The folder of a run and its events: named by the key, claimed by one process at a time."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from fulcrum.files.atomic import sweep, write_json
from fulcrum.files.lock import is_held, locked
from fulcrum.files.paths import explained, reason, remove
from fulcrum.files.sealed import append_records, keep_records, read_json, read_records
from fulcrum.files.shipped import asset_hash
from fulcrum.spec.edit import key as key_of
from fulcrum.spec.edit import read_by
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import agree, tree
from fulcrum.spec.run import SCIENCE, RunSpec

# --------------------------------------------------------------------------------------------------
# The folder of a run: named by its key, claimed by one process at a time, never overwritten by
# another run.


LOCK = "lock"
RESULT = {  # what is read of result.json
    **dict.fromkeys(("run", "key", "phrase", "weights_sha256"), str),
    **dict.fromkeys(("images", "seconds", "images_per_second"), int | float),
}
PATIENCE = 3.0  # seconds: the worker of a killed study needs one to notice


class RunFolder(NamedTuple):
    """out/<key>: about.json, record.jsonl, checkpoints/, previews/, result.json."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def record(self) -> Path:
        return self.path / "record.jsonl"

    def about(self) -> dict[str, Any]:
        path, hint = self.path / "about.json", "this is not the folder of a run"
        about = read_json(path, hint)
        if not isinstance(about.get("run"), dict):
            raise BadInput(f"{path} is not the description of a run", hint)
        return about

    def result(self) -> dict[str, Any] | None:
        """What the finished run said, or None while it is not finished."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        again = "remove the run with 'fulcrum runs rm' and train it again"
        result = read_json(path, again)
        if not all(isinstance(result.get(name), kind) for name, kind in RESULT.items()):
            raise BadInput(f"{path} is not the result of a run", again)
        return result


def description(
    run: RunSpec, seed: int, phrase: str, user_files: Mapping[str, str]
) -> dict[str, Any]:
    """What stands in about.json."""
    return {
        "key": key_of(run, seed, user_files),
        "seed": seed,
        "phrase": phrase,
        "run": run.plain(),
        "user_files": dict(user_files),
        "science": SCIENCE,
        "reads": read_by(run),
    }


def require_parts(about: Mapping[str, Any]) -> None:
    """The codec and the text encoder that a run was trained with must be those that would draw with
    it now."""
    parts = [about["run"].get("encode", {}).get(slot, {}) for slot in ("codec", "text")]
    assets = [str(part["asset"]) for part in parts if isinstance(part, dict) and "asset" in part]
    reads = about.get("reads", {})
    for asset in assets:
        if reads.get(f"asset:{asset}") != asset_hash(asset):
            raise BadInput(
                f"this run was trained with another '{asset}' than the one that this release ships:"
                " its pictures would be drawn through a network that it has never seen",
                "use the release that trained it, or train it anew: the same command makes a run of"
                " its own",
            )


def open_folder(
    out: Path, run: RunSpec, seed: int, phrase: str, user_files: Mapping[str, str]
) -> RunFolder:
    """The folder for this run under `out`; made if new, refused if it holds something else."""
    about = description(run, seed, phrase, user_files)
    key = about["key"]
    folder = RunFolder(out / key)
    if (folder.path / "about.json").exists():
        written = folder.about()
        same = agree(written.get("run"), about["run"], tree(run, identity=True))
        if written.get("key") != key or not same or written.get("seed") != seed:
            raise BadInput(
                f"{folder.path} holds another run (key {written.get('key')}, seed"
                f" {written.get('seed')})",
                "it was renamed or edited by hand: move it away, or choose another --out",
            )
        # the same bytes at another place: draw with those from now on
        if written["run"] != about["run"]:
            write_json(folder.path / "about.json", {**written, "run": about["run"]})
        return folder
    if folder.path.exists() and (
        not folder.path.is_dir()
        or any(not path.name.startswith(".about.json.") for path in folder.path.iterdir())
    ):
        raise BadInput(
            f"{folder.path} exists and is not the folder of a run",
            "move it away, or choose another --out",
        )
    with explained("write to", out, hint="choose another place with --out", kind=BadInput):
        folder.path.mkdir(parents=True, exist_ok=True)
    write_json(folder.path / "about.json", about)
    return folder


def claim(folder: RunFolder, patience: float | None = None) -> AbstractContextManager[None]:
    """Hold the folder: two processes never train one run. The system lets go when the holder dies,
    even by kill -9."""
    return locked(
        folder.path / LOCK,
        patience=PATIENCE if patience is None else patience,
        busy=f"another process is training {folder.path}",
        busy_hint="wait for it, or stop it first: nothing is lost when it gets Ctrl-C",
    )


def in_use(folder: RunFolder) -> bool:
    """Is a process of this machine training the run now?"""
    return is_held(folder.path / LOCK)


def tidy(folder: RunFolder) -> None:
    """Without what a process that was killed as it saved has left: nobody else saves here while we
    hold the folder."""
    with suppress(OSError):  # a disk that cannot be written is told of by what is written next
        if not folder.checkpoints.is_symlink():
            sweep(folder.checkpoints, fresh=0.0)
        sweep(folder.path)


def leave_nothing(folder: RunFolder) -> None:
    """What was refused before its first step has no folder, and is not listed as stopped."""
    try:
        begun = folder.checkpoints.exists() or bool(folder.record.stat().st_size)
    except FileNotFoundError:  # not even a record
        begun = False
    if not begun:
        with suppress(OSError):  # why it was refused is what a person must see
            remove(folder.path)


# --------------------------------------------------------------------------------------------------
# events.jsonl of a run: what happened to it beside its steps. Its sessions with their machines,
# alarms, roll-backs.
#
# A session that resumes takes back the alarms of steps that it will take again. Sessions and
# roll-backs stay.


SESSION: Final = "session"
ALARM: Final = "alarm"
ROLLED_BACK: Final = "rolled back"
EventKind = Literal["session", "alarm", "rolled back"]
MOST = 1000  # lines of one session: a run of weeks must not fill a disk with what is the same


class RunEvents:
    """Written by the first process of a run. A file that cannot be written is told of: the run goes
    on without it."""

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
            keep_records(
                self.path,
                lambda line: (
                    _is_event(line) and (line["event"] != ALARM or line["images"] <= images)
                ),
            )
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
        self.say(
            f"{self.path} cannot be written: {reason(error)}; what happens to this run is not kept"
            " there"
        )


def counted_sessions(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those whose steps are part of the run: what an earlier session did beyond where a later one
    began was lost."""
    counted: list[dict[str, Any]] = []
    for event in events:
        if event["event"] == SESSION:
            counted = [one for one in counted if one["images"] < event["images"]] + [event]
    return counted


def _is_event(line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("images"), int) and line.get("event") in (
        SESSION,
        ALARM,
        ROLLED_BACK,
    )
