"""Files behind URLs, through fsspec: what is there, and its bytes as a stream. What is told shows no URL's secrets."""

import re
from math import prod
from typing import IO, Any, NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit

from fulcrum.spec.errors import BadInput
from fulcrum.spec.install import install
from fulcrum.spec.printable import shown

HTTP = ("http", "https")
MOST_NAMED = 1_000_000  # files that one pattern may name
MOST_DIGITS = 18  # of a number in a pattern
MARKS = ("ETag", "etag", "md5", "blob_id", "generation", "mtime", "LastModified", "last_modified", "updated", "created")
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
            f"an address that begins with {url.split('://')[0]}:// cannot be read: its host is written wrongly",
            "expected such as https://host/shard.tar; an IPv6 host stands in [ and ], and in a password / is %2F, ? is %3F",
        ) from None


def file_name(url: str) -> str:
    return split_url(url).path.rsplit("/", 1)[-1]


def without_secrets(url: str) -> str:
    """A URL without what may be a secret: user, password and query."""
    return re.sub(r"//[^/?#]*@", "//", re.split(r"[?#]", _CUT.sub("//", url), maxsplit=1)[0])


def reason_of(url: str, error: BaseException) -> str:
    """What an error says of a URL, without secrets of it or of another: they go first, then the text is shortened."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    parts = split_url(url)
    pieces = parts.query.split("&")
    values = [value for piece in pieces for value in [piece.partition("=")[2]] if len(value) >= _TELLING]
    for secret in (parts.netloc.rpartition("@")[0], parts.password, parts.query, *pieces, *values):
        for spelling in (secret, unquote(secret or "")):
            text = text.replace(spelling, "...") if spelling else text
    text = shown(_URL.sub(lambda other: without_secrets(other.group()), text))
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def numbered_urls(url: str) -> list[str]:
    """The URLs that a pattern such as shards/{00000..00127}.tar names."""
    ranges = _RANGE.findall(url)
    countable = all(len(end) <= MOST_DIGITS for ends in ranges for end in ends)
    count = prod(max(int(last) - int(first) + 1, 0) for first, last in ranges) if countable else 0  # of all together
    if not 1 <= count <= MOST_NAMED:
        names = f"{count:,}" if countable else "too many"
        raise BadInput(f"{without_secrets(url)[:LONGEST]} names {names} files", "write {00000..00127}")
    urls = [url]
    for first, last in ranges:
        texts = [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        urls = [_RANGE.sub(text, one, count=1) for one in urls for text in texts]
    return urls


def file_system(url: str) -> tuple[Any, str]:
    """Who speaks the URL's protocol, and the path in his words; refused before anything is begun where nobody does."""
    from fsspec.core import url_to_fs

    parts = split_url(url)
    if parts.scheme in HTTP:
        from fulcrum.files.remote.http_files import HttpFiles

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
    except (ValueError, TypeError) as error:  # unknown; or it wants more than an address, as github does
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
            f"cannot look at {without_secrets(url)}: {reason_of(url, error)}", "is it there, and may you read it?"
        ) from None


def announced(url: str) -> Announced:
    """Asked without fetching it. Raises what the protocol raises."""
    system, path = file_system(url)
    facts = system.info(path)
    return Announced(facts.get("size"), " ".join(str(facts[name]) for name in MARKS if facts.get(name) is not None))


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
