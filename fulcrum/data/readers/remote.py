"""Files behind URLs: what is there, and its bytes as a stream. http(s) needs no package, all else goes through fsspec."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlsplit
from urllib.request import Request, urlopen

from fulcrum.spec.errors import BadInput
from fulcrum.spec.install import install

WAIT = 60.0  # seconds without a byte
MOST_NAMED = 1_000_000  # files that one pattern may name
MARKS = ("ETag", "etag", "md5", "blob_id", "generation", "mtime", "LastModified", "last_modified", "updated", "created")
_COUNT = re.compile(r"[0-9]{1,18}")  # isdigit() accepts signs that int() does not
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class Facts(NamedTuple):
    size: int | None  # bytes, as the other side says
    version: str  # its tag or time: another one is another file; empty: nobody says


def is_remote(path: str) -> bool:
    return "://" in path


def split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its words may hold the password
        raise BadInput(
            f"an address that begins with {url.split('://')[0]}:// cannot be read: its host is written wrongly",
            "expected such as https://host/shard.tar; an IPv6 host stands in [ and ]",
        ) from None


def shown(url: str) -> str:
    """A URL without what may be a secret: user, password and query."""
    parts = split(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def said(url: str, error: BaseException) -> str:
    """What an error says of a URL, without those."""
    parts = split(url)
    text = f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__
    for secret in (parts.netloc.rpartition("@")[0], parts.password, parts.query):
        text = text.replace(secret, "...") if secret else text
    return text


def file_name(url: str) -> str:
    return split(url).path.rsplit("/", 1)[-1]


def named(url: str) -> list[str]:
    """The URLs that a pattern such as shards/{00000..00127}.tar names."""
    found = _RANGE.search(url)
    if found is None:
        return [url]
    first, last = found.groups()
    count = int(last) - int(first) + 1
    if not 1 <= count <= MOST_NAMED:
        raise BadInput(f"{found.group()} in {shown(url)} names {max(count, 0):,} files", "write {00000..00127}")
    numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return [one for number in numbers for one in named(url[: found.start()] + number + url[found.end() :])]


def require_backend(url: str) -> None:
    """Refuse a protocol that nobody here speaks, before anything is begun."""
    if not _is_http(url):
        _system(url)


def listed(url: str, ends: tuple[str, ...]) -> list[str]:
    """The files below a URL whose names end so, sorted; `*` stands for any part of a name."""
    if _is_http(url):
        raise BadInput(
            f"a web server cannot be asked what lies in {shown(url)}", "name the files: https://.../{00000..00127}.tar"
        )
    system, inner = _system(url)
    try:
        entries = system.glob(inner if "*" in inner else inner.rstrip("/") + "/*")
        return sorted(system.unstrip_protocol(one) for one in entries if one.lower().endswith(ends))
    except ImportError as error:
        raise _missing(url, error) from None
    except Exception as error:  # every protocol has errors of its own
        raise BadInput(f"cannot look at {shown(url)}: {said(url, error)}", "is it there, and may you read it?") from None


def facts(url: str) -> Facts:
    """Asked without fetching it. Raises what the protocol raises."""
    if _is_http(url):
        try:
            with urlopen(Request(url, method="HEAD"), timeout=WAIT) as answer:  # noqa: S310 - http(s) only, see _is_http
                return _of_answer(answer)
        except HTTPError as error:
            error.close()
            if error.code not in (403, 405, 501):  # some servers and signed URLs know GET only
                raise
            with urlopen(url, timeout=WAIT) as answer:
                return _of_answer(answer)
    system, inner = _system(url)
    about = system.info(inner)
    return Facts(about.get("size"), " ".join(str(about[name]) for name in MARKS if about.get(name) is not None))


def _of_answer(answer: Any) -> Facts:
    length, tag = answer.headers.get("Content-Length"), answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    return Facts(int(length) if length is not None and _COUNT.fullmatch(length) else None, tag or "")


@contextmanager
def opened(url: str) -> Iterator[IO[bytes]]:
    """Its bytes, once, from the beginning."""
    if _is_http(url):
        with urlopen(url, timeout=WAIT) as answer:
            yield answer
        return
    system, inner = _system(url)
    with system.open(inner, "rb") as stream:
        yield stream


def _is_http(url: str) -> bool:
    if not url.startswith(("http://", "https://")):
        return False
    if "@" in split(url).netloc:
        raise BadInput(
            f"a user and a password in {shown(url)} would be seen by others",
            "sign the URL instead, or use a protocol that keeps credentials elsewhere",
        )
    return True


def _system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        system, inner = url_to_fs(url)
        return system, inner
    except ImportError as error:
        raise _missing(url, error) from None
    except (ValueError, TypeError) as error:  # unknown; or it wants more than an address, as github does
        raise BadInput(
            f"cannot look at {shown(url)}: {said(url, error)}",
            "known are file, http, https, s3, gs, az, hf and all that fsspec knows",
        ) from None


def _missing(url: str, error: ImportError) -> BadInput:
    from fsspec.registry import known_implementations

    scheme = url.split("://")[0]
    about = known_implementations.get(scheme, {})
    package = str(about.get("class", "")).split(".")[0]
    hint = install(package) if package not in ("", "fsspec") else str(about.get("err") or error)
    return BadInput(f"{scheme}:// needs a package that is not installed ({error})", hint)
