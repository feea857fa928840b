"""http(s) as an fsspec file system over the standard library: fsspec's own would need aiohttp."""

import io
import re
import time
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import IO, Any, cast
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from fsspec.spec import AbstractFileSystem

from fulcrum.files.remote.urls import without_secrets

WAIT = 60.0  # seconds without a byte
MOST_BEFORE = 1 << 20  # bytes before a body: the standard library reads "100 Continue" for as long as they come
SLOWEST = 1000  # bytes a second, over WAIT seconds: who sends one byte a second holds an import for ever
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
    """To http(s) only: the standard library follows to ftp too. A refusal shows no query of the other address."""

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        try:
            target = urljoin(req.full_url, headers.get("location") or headers.get("uri") or "")
        except ValueError:  # its host is written wrongly
            target = "elsewhere"
        if not target.startswith(("http://", "https://")):
            why = f"it leads to {without_secrets(target)}, and only http(s) is followed"
            raise HTTPError(req.full_url, code, why, headers, fp)
        fp.close()  # the standard library would read what comes with it, without end if there is none
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _PacedBytes(io.RawIOBase):
    """The bytes of a connection, headers and all, as long as enough of them come."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.since, self.came = stream, time.monotonic(), 0
        self.before: int | None = None  # bytes so far, where the body has not begun

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int | None:
        count: int | None = self.stream.readinto(into)
        self.came += count or 0
        if self.before is not None:
            self.before += count or 0
            if self.before > MOST_BEFORE:
                raise OSError(f"more than {MOST_BEFORE:,} bytes came, and no answer among them")
        took = time.monotonic() - self.since
        if took > WAIT:
            if count and self.came < SLOWEST * took:
                raise TimeoutError(f"only {self.came / took:.0f} bytes a second came, expected {SLOWEST:,} at least")
            self.since, self.came = time.monotonic(), 0
        return count

    def close(self) -> None:
        self.stream.close()
        super().close()


class _PacedAnswer(HTTPResponse):
    def __init__(self, sock: Any, *given: Any, **options: Any) -> None:
        super().__init__(sock, *given, **options)
        self.paced = _PacedBytes(sock.makefile("rb", buffering=0))
        self.fp.close()  # nothing was read of it yet
        self.fp = io.BufferedReader(self.paced)

    def begin(self) -> None:
        self.paced.before = 0
        super().begin()
        self.paced.before = None


class _Http(HTTPConnection):
    response_class = _PacedAnswer


class _Https(HTTPSConnection):
    response_class = _PacedAnswer


class _OverHttp(HTTPHandler):
    def http_open(self, req: Request) -> Any:
        return self.do_open(_Http, req)


class _OverHttps(HTTPSHandler):
    def https_open(self, req: Request) -> Any:
        return self.do_open(_Https, req)


def _ask(request: Request) -> HTTPResponse:
    return cast(HTTPResponse, build_opener(_OverHttp, _OverHttps, _Redirects).open(request, timeout=WAIT))


def _ask_whole(url: str) -> HTTPResponse:
    """The answer that holds a file. Others succeed too: 206 brings a part that nobody asked for, 204 nothing at all."""
    answer = _ask(Request(url))
    if answer.status in _WHOLE:
        return answer
    why = f"{answer.reason or 'no reason'}, where a whole file was asked for, which is answered with 200"
    raise HTTPError(url, answer.status, why, answer.headers, answer)


def facts_of(url: str, answer: Any) -> dict[str, Any]:
    """What an answer's headers state, by fsspec's names; a length that is no number is none."""
    length, tag = answer.headers.get("Content-Length"), answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    size = int(length) if length is not None and _COUNT.fullmatch(length) else None
    return {"name": url, "type": "file", "size": size, "ETag": tag}
