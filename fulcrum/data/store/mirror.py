"""An imported store behind a URL: all but its shards is copied once, a shard is fetched when a picture of it is read.

A run reads pictures while they are encoded, shard after shard, and not again: the shelf's limit holds, however large the
store. Every table and shard has its hash in store.json, and no other bytes are accepted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from fulcrum.data.readers.remote import is_remote, require_backend, shown
from fulcrum.data.readers.shelf import Shelf, usual
from fulcrum.spec.errors import BadInput, FulcrumError, RunFailed

ORIGIN = "remote.json"  # of a copy: where its shards are


def place(path: str | Path) -> Path:
    """The folder of a store: its own, or the copy of one behind a URL."""
    return _copied(str(path).rstrip("/")) if is_remote(str(path)) else Path(path).expanduser()


def is_copy(folder: Path) -> bool:
    """Is it one that we made? A folder from elsewhere cannot make us ask a server, whatever lies in it."""
    return folder.parent == _stores(usual()) and (folder / ORIGIN).is_file()


def _stores(shelf: Shelf) -> Path:
    return shelf.folder.with_name(shelf.folder.name + "-stores")


def fetched(folder: Path, shard: dict[str, Any]) -> IO[bytes]:
    """A shard of a copied store."""
    url = json.loads((folder / ORIGIN).read_text())["url"]
    return usual().open(f"{url}/shards/{shard['name']}", shard["sha256"], shard["bytes"])


@lru_cache(maxsize=16)  # asked once by a process: a store does not change under a run
def _copied(url: str) -> Path:
    from fulcrum.data.store.picture_store import ABOUT, TABLES

    require_backend(url)
    shelf = usual()
    try:
        with shelf.open(f"{url}/{ABOUT}") as stream:
            written = stream.read()
        about = json.loads(written)
        tables = {name: {what: about["tables"][name][what] for what in ("sha256", "bytes")} for name in TABLES}
    except RunFailed as error:
        raise BadInput(
            f"there is no imported data set at {shown(url)}: {error.message}",
            "copy one there: what fulcrum data import writes, as it is",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{shown(url)}/{ABOUT} is not what an import writes", "copy the data set there again") from None
    mark = hashlib.sha256(repr((url, hashlib.sha256(written).hexdigest())).encode()).hexdigest()[:32]
    to = _stores(shelf) / mark
    if not _whole(to, tables):
        _copy(url, shelf, written, tables, to)
    return to


def _copy(url: str, shelf: Shelf, written: bytes, tables: dict[str, Any], to: Path) -> None:
    """Into a folder aside, which then appears at once."""
    from fulcrum.data.store.picture_store import ABOUT, CARD, LEDGER, LINES

    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=to.parent))
        try:
            for name, told in tables.items():
                with shelf.open(f"{url}/{name}", told["sha256"], told["bytes"]) as stream:
                    (aside / name).write_bytes(stream.read())
            for name in (LEDGER, LINES, CARD):
                with shelf.open(f"{url}/{name}") as stream:
                    (aside / name).write_bytes(stream.read())
            (aside / ABOUT).write_bytes(written)
            (aside / ORIGIN).write_text(json.dumps({"url": url}))
            shutil.rmtree(to, ignore_errors=True)
            aside.rename(to)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except FulcrumError:
        raise
    except OSError as error:
        if not _whole(to, tables):  # another process may have been first
            raise RunFailed(f"cannot copy {shown(url)} to {to}: {error.strerror}", "make room there") from None


def _whole(folder: Path, tables: dict[str, Any]) -> bool:
    try:
        return (folder / ORIGIN).is_file() and all(
            hashlib.sha256((folder / name).read_bytes()).hexdigest() == told["sha256"] for name, told in tables.items()
        )
    except OSError:
        return False
