"""Files behind URLs: addresses without secrets, streams, and a local cache of whole files."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPResponse
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fsspec.spec import AbstractFileSystem

from fulcrum.files.atomic import FRESH, atomic_path, is_aside, sweep
from fulcrum.files.lock import locked
from fulcrum.files.paths import at_home, explained, reason
from fulcrum.files.sealed import sha256_text
from fulcrum.spec.errors import BadInput, FulcrumError, RunFailed, install, shown

# --------------------------------------------------------------------------------------------------
# Files behind URLs, through fsspec: what is there, and its bytes as a stream. What is told shows no
# URL's secrets.


HTTP = ("http", "https")
MOST_NAMED = 1_000_000  # files that one pattern may name
MOST_DIGITS = 18  # of a number in a pattern
MARKS = (
    "ETag",
    "etag",
    "md5",
    "blob_id",
    "generation",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
LONGEST = 200  # letters of an error that are told
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/*[^\s'\"<>]+")
_CUT = re.compile(
    r"(?<=:)//[^/?#@]*:(?!\d*[/?#])[^/?#@\]]*[/?#].*@", re.DOTALL
)  # a password that holds a / or a ? as it is
_TELLING = 6  # letters of a value in a query that could be a secret


class Announced(NamedTuple):
    size: int | None  # bytes, as the other side says
    version: str  # its tag or time: another one is another file; empty: nobody says


def is_remote(path: str) -> bool:
    return "://" in path


def split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if _CUT.search(url) and "::" not in url:
            raise ValueError("a part of a password stands where the host does")
        return parts
    except ValueError:  # its words may hold the password
        raise BadInput(
            f"an address that begins with {url.split('://')[0]}:// cannot be read: its host is"
            " written wrongly",
            "expected such as https://host/shard.tar; an IPv6 host stands in [ and ], and in a"
            " password / is %2F, ? is %3F",
        ) from None


def file_name(url: str) -> str:
    return split_url(url).path.rsplit("/", 1)[-1]


def without_secrets(url: str) -> str:
    """A URL without what may be a secret: user, password and query."""
    return re.sub(r"//[^/?#]*@", "//", re.split(r"[?#]", _CUT.sub("//", url), maxsplit=1)[0])


def reason_of(url: str, error: BaseException) -> str:
    """What an error says of a URL, without secrets of it or of another: they go first, then the
    text is shortened."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    parts = split_url(url)
    pieces = parts.query.split("&")
    values = [
        value for piece in pieces for value in [piece.partition("=")[2]] if len(value) >= _TELLING
    ]
    for secret in (parts.netloc.rpartition("@")[0], parts.password, parts.query, *pieces, *values):
        for spelling in (secret, unquote(secret or "")):
            text = text.replace(spelling, "...") if spelling else text
    text = shown(_URL.sub(lambda other: without_secrets(other.group()), text))
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def numbered_urls(url: str) -> list[str]:
    """The URLs that a pattern such as shards/{00000..00127}.tar names."""
    ranges = _RANGE.findall(url)
    countable = all(len(end) <= MOST_DIGITS for ends in ranges for end in ends)
    # of all together
    count = prod(max(int(last) - int(first) + 1, 0) for first, last in ranges) if countable else 0
    if not 1 <= count <= MOST_NAMED:
        names = f"{count:,}" if countable else "too many"
        raise BadInput(
            f"{without_secrets(url)[:LONGEST]} names {names} files", "write {00000..00127}"
        )
    urls = [url]
    for first, last in ranges:
        texts = [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        urls = [_RANGE.sub(text, one, count=1) for one in urls for text in texts]
    return urls


def file_system(url: str) -> tuple[Any, str]:
    """Who speaks the URL's protocol, and the path in his words; refused before anything is begun
    where nobody does."""
    from fsspec.core import url_to_fs

    parts = split_url(url)
    if parts.scheme in HTTP:
        if "@" in parts.netloc:
            raise BadInput(
                f"a user and a password in {without_secrets(url)} would be seen by others",
                "sign the URL instead, or use a protocol that keeps credentials elsewhere",
            )
        return HttpFiles(), url
    try:
        return cast(tuple[Any, str], url_to_fs(url))
    except ImportError as error:
        raise _missing(url, error) from None
    # unknown; or it wants more than an address, as github does
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"cannot look at {without_secrets(url)}: {reason_of(url, error)}",
            "known are file, http, https, s3, gs, az, hf and all that fsspec knows",
        ) from None


def list_files(url: str, ends: tuple[str, ...]) -> list[str]:
    """The files below a URL whose names end so, sorted; `*` stands for any part of a name."""
    system, path = file_system(url)
    if split_url(url).scheme in HTTP:
        raise BadInput(
            f"a web server cannot be asked what lies in {without_secrets(url)}",
            "name the files: https://.../{00000..00127}.tar",
        )
    try:
        entries = system.glob(path if "*" in path else path.rstrip("/") + "/*")
        return sorted(system.unstrip_protocol(one) for one in entries if one.lower().endswith(ends))
    except ImportError as error:
        raise _missing(url, error) from None
    except Exception as error:  # every protocol has errors of its own
        raise BadInput(
            f"cannot look at {without_secrets(url)}: {reason_of(url, error)}",
            "is it there, and may you read it?",
        ) from None


def announced(url: str) -> Announced:
    """Asked without fetching it. Raises what the protocol raises."""
    system, path = file_system(url)
    facts = system.info(path)
    return Announced(
        facts.get("size"),
        " ".join(str(facts[name]) for name in MARKS if facts.get(name) is not None),
    )


def open_remote(url: str) -> IO[bytes]:
    """Its bytes, once, from the beginning."""
    system, path = file_system(url)
    return cast(IO[bytes], system.open(path, "rb"))


def _missing(url: str, error: ImportError) -> BadInput:
    from fsspec.registry import known_implementations

    scheme = url.split("://")[0]
    about = known_implementations.get(scheme, {})
    package = str(about.get("class", "")).split(".")[0]
    hint = install(package) if package not in ("", "fsspec") else str(about.get("err") or error)
    return BadInput(f"{scheme}:// needs a package that is not installed ({error})", hint)


# --------------------------------------------------------------------------------------------------
# http(s) as an fsspec file system over the standard library: fsspec's own would need aiohttp.


WAIT = 60.0  # seconds without a byte
_COUNT = re.compile(r"[0-9]{1,18}")  # isdigit() accepts signs that int() does not
_WHOLE = (200, 203)  # statuses of an answer that holds all of a file
_ONLY_GET = (403, 405, 501)  # some servers and signed URLs know no HEAD


class HttpFiles(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Single files by their URL; a web server cannot be asked what else it has."""

    protocol = ("http", "https")
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Size, and tag or time, as the server states them."""
        try:
            with _ask(Request(path, method="HEAD")) as answer:
                return facts_of(path, answer)
        except HTTPError as error:
            error.close()
            if error.code not in _ONLY_GET:
                raise
            with _ask_whole(path) as answer:
                return facts_of(path, answer)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> IO[bytes]:
        return _ask_whole(path)


class _Redirects(HTTPRedirectHandler):
    """To http(s) only: the standard library follows to ftp too. A refusal shows no query of the
    other address."""

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        try:
            target = urljoin(req.full_url, headers.get("location") or headers.get("uri") or "")
        except ValueError:  # its host is written wrongly
            target = "elsewhere"
        if not target.startswith(("http://", "https://")):
            why = f"it leads to {without_secrets(target)}, and only http(s) is followed"
            raise HTTPError(req.full_url, code, why, headers, fp)
        # the standard library would read what comes with it, without end if there is none
        fp.close()
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _ask(request: Request) -> HTTPResponse:
    return cast(HTTPResponse, build_opener(_Redirects).open(request, timeout=WAIT))


def _ask_whole(url: str) -> HTTPResponse:
    """The answer that holds a file. Others succeed too: 206 brings a part that nobody asked for,
    204 nothing at all."""
    answer = _ask(Request(url))
    if answer.status in _WHOLE:
        return answer
    why = (
        f"{answer.reason or 'no reason'}, where a whole file was asked for, which is answered"
        " with 200"
    )
    raise HTTPError(url, answer.status, why, answer.headers, answer)


def facts_of(url: str, answer: Any) -> dict[str, Any]:
    """What an answer's headers state, by fsspec's names; a length that is no number is none."""
    length, tag = (
        answer.headers.get("Content-Length"),
        answer.headers.get("ETag") or answer.headers.get("Last-Modified"),
    )
    size = int(length) if length is not None and _COUNT.fullmatch(length) else None
    return {"name": url, "type": "file", "size": size, "ETag": tag}


# --------------------------------------------------------------------------------------------------
# Local copies of remote files: whole or absent, compared when read, limited in size; the longest
# unused leave first.
#
# A copy is called KEY-SHA256, where the key says what it is a copy of and the hash what it holds. A
# second process waits for the one that fetches; what a killed one leaves is cleared away. A copy is
# handed out open: that it leaves meanwhile does no harm.


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
    """A folder of copies; several processes may share it. While they fetch, each may be one file
    above the limit."""

    def __init__(self, folder: Path, limit: float = LIMIT, say: Say | None = None) -> None:
        if not 0 < limit <= MOST:
            raise BadInput(
                f"the limit of {folder} is {limit:g} GB",
                f"give it room for some shards, {MOST:g} at most",
            )
        self.folder, self.limit, self.say = folder, int(limit * 1e9), say or (lambda text: None)

    def open(self, url: str, sha256: str = "", size: int | None = None) -> IO[bytes]:
        """The file as a local one. Where its hash is known nothing else is accepted, and nobody is
        asked about a copy."""
        promised = Announced(size, sha256) if sha256 else self._persist(url, lambda: announced(url))
        key = sha256_text(repr(("", sha256) if sha256 else (url, promised)), 32)
        unusable, hint = (
            f"the folder of copies {self.folder} cannot be used",
            "mend it, or choose another: FULCRUM_SHELF",
        )
        try:
            if held := self._held(key, promised):  # many may compare a copy at a time
                return held
            locks = self.folder / ".locks"
            locks.mkdir(parents=True, exist_ok=True)
            # few locks, for they stay
            with locked(locks / key[:2], unfit=unusable, unfit_hint=hint):
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
        gone = isinstance(
            error, FileNotFoundError | PermissionError | NotImplementedError | ImportError
        ) or (isinstance(error, HTTPError) and error.code < 500 and error.code not in _PASSING)
        why = str(error) if isinstance(error, NotAsAnnounced) else reason_of(url, error)
        if gone or number == TRIES - 1:
            hint = (
                "is the address right, and may you read it? With the file in place the same command"
                " goes on"
                if gone
                else "nothing was left out: start the same command again, it goes on"
            )
            raise RunFailed(f"cannot fetch {without_secrets(url)}: {why}", hint) from None
        self.say(f"{without_secrets(url)}: {why}; trying again")
        time.sleep(PAUSE * 2**number)

    def _copies(self, key: str) -> Iterator[Path]:
        """The folder may be a person's own: what is not called as a copy is called is none."""
        return (
            path
            for path in self.folder.glob(f"{key}-*")
            if _COPY.fullmatch(path.name) and path.is_file()
        )

    def _held(self, key: str, promised: Announced) -> IO[bytes] | None:
        """An open copy that is as it was fetched; a damaged one goes, and one that nobody can tell
        from an old one."""
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
                f"{without_secrets(url)} has {promised.size:,} bytes, more than the limit of"
                f" {self.folder}: {self.limit:,}",
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
        content, came, most = (
            hashlib.sha256(),
            0,
            self.limit if promised.size is None else promised.size,
        )
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
        """Remove what was unused longest, and what killed downloads left, until `needed` bytes fit.
        Only files that are called as this class calls its own count, and only they are removed."""
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
    """Where copies lie unless told: FULCRUM_SHELF, or the user's cache; FULCRUM_SHELF_GB limits
    it."""
    place = os.environ.get("FULCRUM_SHELF") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "fulcrum/shelf"
    )
    try:
        limit = float(os.environ.get("FULCRUM_SHELF_GB") or LIMIT)
    except ValueError:
        raise BadInput(
            f"FULCRUM_SHELF_GB is {os.environ['FULCRUM_SHELF_GB']!r}", "give a number of gigabytes"
        ) from None
    return RemoteCache(at_home(place), limit, say)
