"""http(s) as an fsspec file system over the standard library: fsspec's own would need aiohttp."""

import re
from typing import IO, Any, cast
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fsspec.spec import AbstractFileSystem

from fulcrum.files.remote.urls import without_secrets

WAIT = 60.0  # seconds without a byte
_COUNT = re.compile(r"[0-9]{1,18}")  # isdigit() accepts signs that int() does not
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
            with _ask(Request(path)) as answer:
                return facts_of(path, answer)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> IO[bytes]:
        return _ask(Request(path))


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
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _ask(request: Request) -> IO[bytes]:
    return cast(IO[bytes], build_opener(_Redirects).open(request, timeout=WAIT))


def facts_of(url: str, answer: Any) -> dict[str, Any]:
    """What an answer's headers state, by fsspec's names; a length that is no number is none."""
    length, tag = answer.headers.get("Content-Length"), answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    size = int(length) if length is not None and _COUNT.fullmatch(length) else None
    return {"name": url, "type": "file", "size": size, "ETag": tag}
