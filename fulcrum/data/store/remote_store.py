"""An imported store behind a URL: all but its shards is copied once, a shard is fetched when a picture of it is read.

A run reads pictures while they are encoded, shard after shard, and not again: the limit of the copies holds, however large
the store. Every table and shard has its hash in store.json, and no other bytes are accepted.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from fulcrum.files.atomic import folder_atomic
from fulcrum.files.paths import at_home, refusal
from fulcrum.files.remote import RemoteCache, file_system, is_remote, user_cache, without_secrets
from fulcrum.files.sealed import read_json, sha256_bytes, sha256_file, sha256_text
from fulcrum.spec.errors import BadInput, RunFailed

MOST = 1 << 26  # bytes of a store.json that a server sends
ORIGIN = "remote.json"  # of a copy: where its shards are


def local_folder(path: str | Path) -> Path:
    """The folder of a store: its own, or the copy of one behind a URL."""
    return _copied(str(path).rstrip("/")) if is_remote(str(path)) else at_home(path)


def is_copy(folder: Path) -> bool:
    """Is it one that we made? A folder from elsewhere cannot make us ask a server, whatever lies in it."""
    return folder.parent == _stores(user_cache()) and (folder / ORIGIN).is_file()


def _stores(cache: RemoteCache) -> Path:
    return cache.folder.with_name(cache.folder.name + "-stores")


def open_shard(folder: Path, shard: dict[str, Any]) -> IO[bytes]:
    """A shard of a copied store."""
    url = read_json(folder / ORIGIN, f"remove {folder}")["url"]
    return user_cache().open(f"{url}/shards/{shard['name']}", shard["sha256"], shard["bytes"])


@lru_cache(maxsize=16)  # asked once by a process: a store does not change under a run
def _copied(url: str) -> Path:
    from fulcrum.data.store.picture_store import ABOUT, TABLES

    file_system(url)
    cache = user_cache()
    try:
        with cache.open(f"{url}/{ABOUT}") as stream:
            written = stream.read(MOST)  # what is longer is cut, and then no JSON
        about = json.loads(written)
        tables = {name: {what: about["tables"][name][what] for what in ("sha256", "bytes")} for name in TABLES}
    except RunFailed as error:
        raise BadInput(
            f"there is no imported data set at {without_secrets(url)}: {error.message}",
            "copy one there: what fulcrum data import writes, as it is",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(
            f"{without_secrets(url)}/{ABOUT} is not what an import writes", "copy the data set there again"
        ) from None
    to = _stores(cache) / sha256_text(repr((url, sha256_bytes(written))), 32)
    if not _whole(to, tables):
        _copy(url, cache, written, tables, to)
    return to


def _copy(url: str, cache: RemoteCache, written: bytes, tables: dict[str, Any], to: Path) -> None:
    from fulcrum.data.store.picture_store import ABOUT, CARD, LEDGER, LINES

    facts = dict.fromkeys((LEDGER, LINES, CARD), {"sha256": "", "bytes": None}) | tables
    try:
        with folder_atomic(to, flush=False, replace=True) as aside:
            for name, table in facts.items():
                with cache.open(f"{url}/{name}", table["sha256"], table["bytes"]) as stream:
                    (aside / name).write_bytes(stream.read())
            (aside / ABOUT).write_bytes(written)
            (aside / ORIGIN).write_text(json.dumps({"url": url}))
    except OSError as error:
        if not _whole(to, tables):  # another process may have been first
            raise refusal(error, f"cannot copy {without_secrets(url)} to {to}", hint="make room there") from None


def _whole(folder: Path, tables: dict[str, Any]) -> bool:
    try:
        return (folder / ORIGIN).is_file() and all(
            sha256_file(folder / name) == table["sha256"] for name, table in tables.items()
        )
    except OSError:
        return False
