"""The folder of a run: named by its key, claimed by one process at a time, never overwritten by another run."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.spec.edit import key as key_of
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.record import agree, tree
from fulcrum.spec.run import RunSpec

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
        return read_json(self.path / "about.json", "this is not the folder of a run")

    def result(self) -> dict[str, Any] | None:
        """What the finished run said, or None while it is not finished."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        found = read_json(path, "remove the run with 'fulcrum runs rm' and train it again")
        if not {"key", "weights_sha256", "images", "seconds"} <= set(found):
            raise BadInput(f"{path} is not the result of a run", "remove the run with 'fulcrum runs rm' and train it again")
        return found


def open_folder(out: Path, run: RunSpec, seed: int, phrase: str, user_files: Mapping[str, str]) -> RunFolder:
    """The folder for this run under `out`; made if new, refused if it holds something else."""
    key = key_of(run, seed, user_files)
    folder = RunFolder(out / key)
    about = {"key": key, "seed": seed, "phrase": phrase, "run": run.plain(), "user_files": dict(user_files)}
    if (folder.path / "about.json").exists():
        found = folder.about()
        same = agree(found.get("run"), about["run"], tree(run, identity=True))
        if found.get("key") != key or not same or found.get("seed") != seed:
            raise BadInput(
                f"{folder.path} holds another run (key {found.get('key')}, seed {found.get('seed')})",
                "it was renamed or edited by hand: move it away, or choose another --out",
            )
        if found["run"] != about["run"]:  # the same bytes at another place: draw with those from now on
            write_json(folder.path / "about.json", {**found, "run": about["run"]})
        return folder
    if folder.path.exists() and (
        not folder.path.is_dir() or any(not path.name.startswith(".about.json.") for path in folder.path.iterdir())
    ):
        raise BadInput(f"{folder.path} exists and is not the folder of a run", "move it away, or choose another --out")
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {out}: {error.strerror}", "choose another place with --out") from error
    write_json(folder.path / "about.json", about)
    return folder


@contextmanager
def claim(folder: RunFolder, patience: float | None = None) -> Iterator[None]:
    """Hold the folder: two processes never train one run. The system lets go when the holder dies, even by kill -9."""
    with (folder.path / "lock").open("w") as handle:
        deadline = time.monotonic() + (PATIENCE if patience is None else patience)
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise RunFailed(
                        f"another process is training {folder.path}",
                        "wait for it, or stop it first: nothing is lost when it gets Ctrl-C",
                    ) from None
                time.sleep(0.1)
        yield


def in_use(folder: RunFolder) -> bool:
    """Is a process of this machine training the run now?"""
    try:
        with (folder.path / "lock").open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # never claimed
        return False
    return False


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w") as stream:
            json.dump(value, stream, indent=1, sort_keys=True)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except BaseException:  # a full disk must not be filled with what is half written
        aside.unlink(missing_ok=True)
        raise


def read_json(path: Path, hint: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: {error}", hint) from None
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds no JSON object", hint)
    return found
