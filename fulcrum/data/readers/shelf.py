"""Local copies of remote files: whole or absent, compared when read, limited in size; the longest unused leave first.

A copy is called KEY-SHA256, where the key says what it is a copy of and the hash what it holds. It appears by one rename; a
download holds a lock on its own unfinished file, so a second process waits for the first, and one that was killed leaves
nothing but a file that the next one clears away. A copy is handed out open: that it leaves meanwhile does not harm.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.error import HTTPError

from fulcrum.data.readers.remote import Facts, facts, opened, said, shown
from fulcrum.spec.errors import BadInput, FulcrumError, RunFailed

Say = Callable[[str], None]
LIMIT = 16.0  # GB, unless told
MOST = 1e9  # GB: more than any disk, and a number of bytes that can be counted
TRIES, PAUSE = 3, 1.0  # of a download; seconds before the second, twice as many before the third
_WRITING = ".writing"
_COPY, _BEGUN = re.compile(r"[0-9a-f]{32}-[0-9a-f]{64}"), re.compile(r"[0-9a-f]{32}\.writing")
_BLOCK = 1 << 20
_PASSING = (408, 429)  # of a server that is slow or asked too often


class Changed(Exception):
    """What came is not what was announced."""


class Shelf:
    """A folder of copies; several processes may share it. While they fetch, each may be one file above the limit."""

    def __init__(self, folder: Path, limit: float = LIMIT, say: Say | None = None) -> None:
        if not 0 < limit <= MOST:
            raise BadInput(f"the limit of {folder} is {limit:g} GB", f"give it room for some shards, {MOST:g} at most")
        self.folder, self.limit, self.say = folder, int(limit * 1e9), say

    def open(self, url: str, sha256: str = "", size: int | None = None) -> IO[bytes]:
        """The file as a local one. Where its hash is known nothing else is accepted, and nobody is asked about a copy."""
        try:
            return self._opened(url, sha256, size)
        except OSError as error:  # of this disk, not of the file: no policy may leave data out
            raise RunFailed(
                f"the shelf {self.folder} cannot be used: {error}",
                "mend it, or choose another folder: --shelf or FULCRUM_SHELF",
            ) from None

    def _opened(self, url: str, sha256: str, size: int | None) -> IO[bytes]:
        told = Facts(size, sha256) if sha256 else self._ask(url)
        key = hashlib.sha256(repr(("", sha256) if sha256 else (url, told)).encode()).hexdigest()[:32]
        if not told.version:  # a copy could be an old one: nobody would know
            for path in self._copies(key):
                path.unlink(missing_ok=True)
        while True:
            held = self._held(key) or self._fetched(url, key, told, sha256)
            if held is not None:
                return held

    def _ask(self, url: str) -> Facts:
        for attempt in range(TRIES):
            try:
                return facts(url)
            except FulcrumError:
                raise
            except Exception as error:  # every protocol has errors of its own
                self._pause(url, attempt, error)
        raise AssertionError("the last pause raises")

    def _copies(self, key: str) -> Iterator[Path]:
        """The folder may be a person's own: what is not called as a copy is called is none."""
        return (path for path in self.folder.glob(f"{key}-*") if _COPY.fullmatch(path.name) and path.is_file())

    def _held(self, key: str) -> IO[bytes] | None:
        """An open copy that is as it was fetched, or None; a damaged one goes."""
        path = next(self._copies(key), None)
        if path is None:
            return None
        try:
            stream = path.open("rb")
        except FileNotFoundError:  # it left meanwhile
            return None
        if hashlib.file_digest(stream, "sha256").hexdigest() != path.name[len(key) + 1 :]:
            stream.close()
            path.unlink(missing_ok=True)
            self._tell(f"{path} is not as it was fetched: a bit has changed; it is fetched again")
            return None
        stream.seek(0)
        _touch(path)
        return stream

    def _fetched(self, url: str, key: str, told: Facts, sha256: str) -> IO[bytes] | None:
        """Download under a lock; None if somebody else was doing so: look again."""
        if told.size is not None and told.size > self.limit:
            raise BadInput(
                f"{shown(url)} has {told.size:,} bytes, more than the limit of {self.folder}: {self.limit:,}",
                "raise the limit",
            )
        path = self.folder / (key + _WRITING)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            stream = path.open("a+b")
        except OSError as error:
            raise RunFailed(f"cannot write to {self.folder}: {error.strerror}", "choose another folder") from None
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
            mine = _is_at(stream, path)
            if not mine or next(self._copies(key), None) is not None:
                if mine:  # begun after another process was done
                    path.unlink(missing_ok=True)
                stream.close()
                return None
            self._make_room(told.size or 0, path)
            found = self._download(url, stream, told, sha256)
            path.rename(self.folder / f"{key}-{found}")
        except BaseException:
            if not stream.closed and _is_at(stream, path):
                path.unlink(missing_ok=True)  # still locked: nobody else can be writing it
            stream.close()
            raise
        self._make_room(0, self.folder / f"{key}-{found}")  # a size that nobody announced
        fcntl.flock(stream, fcntl.LOCK_UN)
        stream.seek(0)
        return stream

    def _download(self, url: str, into: IO[bytes], told: Facts, sha256: str) -> str:
        for attempt in range(TRIES):
            try:
                into.truncate(0)
                return self._copy(url, into, told, sha256)
            except FulcrumError:
                raise
            except Exception as error:
                self._pause(url, attempt, error)
        raise AssertionError("the last pause raises")

    def _copy(self, url: str, into: IO[bytes], told: Facts, sha256: str) -> str:
        found, seen = hashlib.sha256(), 0
        with opened(url) as stream:
            while data := stream.read(_BLOCK):
                seen += len(data)
                if seen > (self.limit if told.size is None else told.size):
                    raise Changed(f"more than {self.limit if told.size is None else told.size:,} bytes came")
                found.update(data)
                _write(into, data)
        if told.size is not None and seen != told.size:
            raise Changed(f"{seen:,} of {told.size:,} bytes came")
        if sha256 and found.hexdigest() != sha256:
            raise Changed("it does not have its checksum")
        return found.hexdigest()

    def _pause(self, url: str, attempt: int, error: Exception) -> None:
        """Before the next try; after the last, and where trying again is of no use, the failure."""
        if isinstance(error, HTTPError):
            error.close()
        gone = isinstance(error, FileNotFoundError | PermissionError | NotImplementedError | ImportError) or (
            isinstance(error, HTTPError) and error.code < 500 and error.code not in _PASSING
        )
        if gone or attempt == TRIES - 1:
            why = str(error) if isinstance(error, Changed) else said(url, error)
            hint = (
                "is the address right, and may you read it? With the file in place the same command goes on"
                if gone
                else "nothing was left out: start the same command again, it goes on"
            )
            raise RunFailed(f"cannot fetch {shown(url)}: {why}", hint) from None
        self._tell(f"{shown(url)}: {said(url, error)}; trying again")
        time.sleep(PAUSE * 2**attempt)

    def _make_room(self, needed: int, spared: Path) -> None:
        """Remove what was unused longest, and what killed downloads left, until `needed` bytes fit. Only files that are
        called as this class calls its own count, and only they are removed."""
        copies, total = list[tuple[float, Path, int]](), 0
        for path in self.folder.iterdir():
            begun = _BEGUN.fullmatch(path.name) is not None
            if not (begun or _COPY.fullmatch(path.name)) or not path.is_file():
                continue
            if begun and path != spared and _abandoned(path):
                continue
            try:
                about = path.stat()
            except OSError:  # another process removed it
                continue
            total += about.st_size
            if path != spared and not begun:
                copies.append((about.st_mtime, path, about.st_size))
        for _, path, size in sorted(copies):
            if total + needed <= self.limit:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _tell(self, text: str) -> None:
        if self.say:
            self.say(text)


def usual(say: Say | None = None) -> Shelf:
    """Where copies lie unless told: FULCRUM_SHELF, or the user's cache; FULCRUM_SHELF_GB limits it."""
    place = os.environ.get("FULCRUM_SHELF") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "fulcrum/shelf")
    try:
        limit = float(os.environ.get("FULCRUM_SHELF_GB") or LIMIT)
    except ValueError:
        raise BadInput(f"FULCRUM_SHELF_GB is {os.environ['FULCRUM_SHELF_GB']!r}", "give a number of gigabytes") from None
    return Shelf(Path(place).expanduser(), limit, say)


def _write(into: IO[bytes], data: bytes) -> None:
    try:
        into.write(data)
        into.flush()
    except OSError as error:
        raise RunFailed(f"cannot write to {into.name}: {error.strerror}", "make room, or lower the limit") from None


def _is_at(stream: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except OSError:
        return False


def _abandoned(path: Path) -> bool:
    """Remove an unfinished download that nobody holds."""
    try:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(stream, path):
                path.unlink(missing_ok=True)
        return True
    except OSError:
        return False


def _touch(path: Path) -> None:
    """It was used now; mtime, for many systems do not keep the time of reading."""
    try:
        os.utime(path)
    except OSError:
        return
