"""Local copies of remote files: whole or absent, compared when read, limited in size; the longest unused leave first.

A copy is called KEY-SHA256, where the key says what it is a copy of and the hash what it holds. A second process waits for
the one that fetches; what a killed one leaves is cleared away. A copy is handed out open: that it leaves meanwhile does no
harm.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar
from urllib.error import HTTPError

from fulcrum.files.atomic import FRESH, atomic_path, is_aside, sweep
from fulcrum.files.hashes import sha256_text
from fulcrum.files.lock import locked
from fulcrum.files.paths import at_home
from fulcrum.files.refusals import explained, reason
from fulcrum.files.remote.urls import Announced, announced, open_remote, reason_of, without_secrets
from fulcrum.spec.errors import BadInput, FulcrumError, RunFailed

Say = Callable[[str], None]
T = TypeVar("T")
LIMIT = 16.0  # GB, unless told
MOST = 1e9  # GB: more than any disk, and a number of bytes that can be counted
TRIES, PAUSE = 3, 1.0  # of a download; seconds before the second, twice as many before the third
_FETCHED = ".writing"  # whole, for the moment in which it gets the name that holds its hash
_COPY = re.compile(r"[0-9a-f]{32}-[0-9a-f]{64}")
_OWN = re.compile(rf"[0-9a-f]{{32}}(-[0-9a-f]{{64}}|\{_FETCHED})")
_BLOCK = 1 << 20
_PASSING = (408, 429)  # of a server that is slow or asked too often


class NotAsAnnounced(Exception):
    """What came is not what was promised."""


class RemoteCache:
    """A folder of copies; several processes may share it. While they fetch, each may be one file above the limit."""

    def __init__(self, folder: Path, limit: float = LIMIT, say: Say | None = None) -> None:
        if not 0 < limit <= MOST:
            raise BadInput(f"the limit of {folder} is {limit:g} GB", f"give it room for some shards, {MOST:g} at most")
        self.folder, self.limit, self.say = folder, int(limit * 1e9), say or (lambda text: None)

    def open(self, url: str, sha256: str = "", size: int | None = None) -> IO[bytes]:
        """The file as a local one. Where its hash is known nothing else is accepted, and nobody is asked about a copy."""
        promised = Announced(size, sha256) if sha256 else self._persist(url, lambda: announced(url))
        key = sha256_text(repr(("", sha256) if sha256 else (url, promised)), 32)
        unusable, hint = f"the folder of copies {self.folder} cannot be used", "mend it, or choose another: FULCRUM_SHELF"
        try:
            if held := self._held(key, promised):  # many may compare a copy at a time
                return held
            locks = self.folder / ".locks"
            locks.mkdir(parents=True, exist_ok=True)
            with locked(locks / key[:2], unfit=unusable, unfit_hint=hint):  # few locks, for they stay
                return self._held(key, promised) or self._fetched(url, key, promised, sha256)
        except OSError as error:  # of this disk, not of the file: no policy may leave data out
            raise RunFailed(f"{unusable}: {reason(error)}", hint) from None

    def _persist(self, url: str, attempt: Callable[[], T]) -> T:
        """Try again where that may help, after a pause."""
        for number in range(TRIES):
            try:
                return attempt()
            except FulcrumError:
                raise
            except Exception as error:  # every protocol has errors of its own
                self._pause(url, number, error)
        raise AssertionError("the last pause raises")

    def _pause(self, url: str, number: int, error: Exception) -> None:
        """Before the next try; after the last, and where trying again is of no use, the failure."""
        if isinstance(error, HTTPError):
            error.close()
        gone = isinstance(error, FileNotFoundError | PermissionError | NotImplementedError | ImportError) or (
            isinstance(error, HTTPError) and error.code < 500 and error.code not in _PASSING
        )
        why = str(error) if isinstance(error, NotAsAnnounced) else reason_of(url, error)
        if gone or number == TRIES - 1:
            hint = (
                "is the address right, and may you read it? With the file in place the same command goes on"
                if gone
                else "nothing was left out: start the same command again, it goes on"
            )
            raise RunFailed(f"cannot fetch {without_secrets(url)}: {why}", hint) from None
        self.say(f"{without_secrets(url)}: {why}; trying again")
        time.sleep(PAUSE * 2**number)

    def _copies(self, key: str) -> Iterator[Path]:
        """The folder may be a person's own: what is not called as a copy is called is none."""
        return (path for path in self.folder.glob(f"{key}-*") if _COPY.fullmatch(path.name) and path.is_file())

    def _held(self, key: str, promised: Announced) -> IO[bytes] | None:
        """An open copy that is as it was fetched; a damaged one goes, and one that nobody can tell from an old one."""
        for path in self._copies(key):
            try:
                stream = path.open("rb")
            except FileNotFoundError:  # it left meanwhile
                continue
            intact = hashlib.file_digest(stream, "sha256").hexdigest() == path.name[len(key) + 1 :]
            if intact and promised.version:
                stream.seek(0)
                with suppress(OSError):
                    os.utime(path)  # used now; many systems do not keep the time of reading
                return stream
            stream.close()
            path.unlink(missing_ok=True)
            if not intact:
                self.say(f"{path} is not as it was fetched: a bit has changed; it is fetched again")
        return None

    def _fetched(self, url: str, key: str, promised: Announced, sha256: str) -> IO[bytes]:
        if promised.size is not None and promised.size > self.limit:
            raise BadInput(
                f"{without_secrets(url)} has {promised.size:,} bytes, more than the limit of {self.folder}: {self.limit:,}",
                "raise the limit",
            )
        self._make_room(promised.size or 0)
        whole = self.folder / (key + _FETCHED)
        with atomic_path(whole, flush=False) as aside:
            content = self._persist(url, lambda: self._download(url, aside, promised, sha256))
            stream = aside.open("rb")  # the same file, whatever becomes of its name
        try:
            copy = whole.rename(self.folder / f"{key}-{content}")
            self._make_room(0, copy)  # a size that nobody announced
        except BaseException:
            stream.close()
            raise
        return stream

    def _download(self, url: str, to: Path, promised: Announced, sha256: str) -> str:
        """The hash of what came."""
        content, came, most = hashlib.sha256(), 0, self.limit if promised.size is None else promised.size
        with to.open("wb") as copy, open_remote(url) as stream:
            while data := stream.read(_BLOCK):
                came += len(data)
                if came > most:
                    raise NotAsAnnounced(f"more than {most:,} bytes came")
                content.update(data)
                with explained("write to", to, hint="make room, or lower the limit"):
                    copy.write(data)
                    copy.flush()
        if promised.size is not None and came != promised.size:
            raise NotAsAnnounced(f"{came:,} of {promised.size:,} bytes came")
        if sha256 and content.hexdigest() != sha256:
            raise NotAsAnnounced("it does not have its checksum")
        return content.hexdigest()

    def _make_room(self, needed: int, spared: Path | None = None) -> None:
        """Remove what was unused longest, and what killed downloads left, until `needed` bytes fit. Only files that are
        called as this class calls its own count, and only they are removed."""
        sweep(self.folder)
        copies, total = list[tuple[float, Path, int]](), 0
        for path in self.folder.iterdir():
            own = _OWN.fullmatch(path.name) is not None
            try:
                if not (own or is_aside(path)) or not path.is_file():
                    continue
                about = path.stat()
            except OSError:  # another process removed it
                continue
            total += about.st_size
            being_named = path.suffix == _FETCHED and time.time() - about.st_mtime < FRESH
            if own and path != spared and not being_named:
                copies.append((about.st_mtime, path, about.st_size))
        for _, path, size in sorted(copies):
            if total + needed <= self.limit:
                return
            path.unlink(missing_ok=True)
            total -= size


def user_cache(say: Say | None = None) -> RemoteCache:
    """Where copies lie unless told: FULCRUM_SHELF, or the user's cache; FULCRUM_SHELF_GB limits it."""
    place = os.environ.get("FULCRUM_SHELF") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "fulcrum/shelf")
    try:
        limit = float(os.environ.get("FULCRUM_SHELF_GB") or LIMIT)
    except ValueError:
        raise BadInput(f"FULCRUM_SHELF_GB is {os.environ['FULCRUM_SHELF_GB']!r}", "give a number of gigabytes") from None
    return RemoteCache(at_home(place), limit, say)
