"""Tar archives that nobody vouches for, read as a stream: nothing is extracted, no name is a path, all is limited."""

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple, Self

from fulcrum.data.readers.untrusted_file import MOST_BYTES, too_large

TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MOST_MEMBERS = 50_000_000  # of one archive
MOST_UNPACKED = 1 << 40  # bytes of one archive: a terabyte
MOST_RATIO = 100  # unpacked to packed, after the first 64 MB: pictures do not shrink like this
MOST_HEADERS = 1 << 20  # bytes before a member's own: names and attributes, which a reader must hold in memory
_FREE = 1 << 26
_PACKED: dict[bytes, Callable[[Any], Any]] = {  # by their first bytes, whatever the name
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_DAMAGE = (
    *(tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, UnicodeError, ValueError, OverflowError, RecursionError),
)


class Broken(Exception):
    """The archive cannot be read any further."""


class Member(NamedTuple):
    name: str
    size: int
    is_file: bool  # else a link, a device, a pipe
    read: Callable[[], bytes]  # before the next member is asked for

    @property
    def fault(self) -> str:
        """Why it must not be stored under its name; empty if it may."""
        path = PurePosixPath(self.name)
        if not self.is_file:
            return "a link or device, not a file"
        if path.is_absolute() or ".." in path.parts or "\\" in self.name or "\0" in self.name:
            return "its name leads out of the archive"
        return too_large(self.size) if self.size > MOST_BYTES else ""


class _Strict(tarfile.TarInfo):
    """Python's reader takes a damaged header, or a missing end, for the end: what follows would be lost without a word."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError):  # type: ignore[attr-defined]  # not public
            raise Broken("cut off: a tar ends with blocks of zeros, this one does not") from None
        except tarfile.InvalidHeaderError as error:  # type: ignore[attr-defined]
            raise Broken(f"damaged ({error})") from None


def require_sound(stream: IO[bytes], packed: int) -> None:
    """Of what is packed: its checksum stands at the end, and what was unpacked before a fault shows may be wrong."""
    whole = _Limited(stream, packed)
    if whole.is_packed:
        try:
            while whole.read(1 << 20):
                pass
        except _DAMAGE as error:
            raise Broken(f"damaged or cut off ({error}); packed, so that no part of it can be trusted") from None
    stream.seek(0)


def members(stream: IO[bytes], packed: int | None = None) -> Iterator[Member]:
    """All but folders, as they come. `packed`: size of the archive, where known, to refuse what unfolds beyond reason."""
    number = 0
    try:
        source = _Limited(stream, packed)
        source.headers_end = MOST_HEADERS  # the first are read when it is opened
        with tarfile.open(fileobj=source, mode="r|", errorlevel=1, tarinfo=_Strict) as archive:
            while (info := source.headers_of_next(archive)) is not None:
                if archive.offset > source.most:  # where the next begins: the reader would go there step by step
                    raise Broken(f"damaged or cut off: {info.name} announces {info.size:,} bytes, more than can follow")
                number += 1
                if number > MOST_MEMBERS:
                    raise Broken(f"more than {MOST_MEMBERS:,} members: split it")
                if not info.isdir():
                    is_file = info.isreg() and not info.issparse()
                    yield Member(info.name, info.size, is_file, partial(_read, archive, info))
            while rest := archive.fileobj.read(1 << 16):
                if rest.strip(b"\0"):
                    raise Broken("more follows its end: two archives in one file?")
    except Broken:
        raise
    except _DAMAGE as error:
        raise Broken(f"damaged or cut off ({error})") from None


class _Limited(io.RawIOBase):
    """The bytes of a tar, unpacked if need be; no more of them than can be meant well, headers included."""

    def __init__(self, stream: IO[bytes], packed: int | None) -> None:
        head = stream.read(6)
        stream.seek(0)
        unpack = next((unpack for magic, unpack in _PACKED.items() if head.startswith(magic)), None)
        self.is_packed, self.packed, self.seen = unpack is not None, packed, 0
        self.stream: IO[bytes] = unpack(stream) if unpack else stream
        self.most = MOST_UNPACKED
        if packed is not None:
            self.most = min(MOST_UNPACKED, _FREE + MOST_RATIO * packed if self.is_packed else packed)
        self.headers_end = self.most

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.seen += len(data)
        if self.seen > self.most:
            raise Broken(f"{self.packed or 'some'} bytes unfold to more than {self.most:,}: a decompression bomb?")
        if self.seen > self.headers_end:
            raise Broken(f"a member's headers have more than {MOST_HEADERS:,} bytes: who made it?")
        return data

    def headers_of_next(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        """The next member. Its headers are read whole, and what they say is kept: neither may grow without end."""
        self.headers_end = archive.offset + MOST_HEADERS
        info = archive.next()
        self.headers_end = self.most
        archive.members.clear()  # type: ignore[attr-defined]  # it would remember all of them
        if sum(len(name) + len(value) for name, value in archive.pax_headers.items()) > MOST_HEADERS:
            raise Broken(f"headers for all members have more than {MOST_HEADERS:,} bytes: who made it?")
        return info


def _read(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    try:
        stream = archive.extractfile(info)
        data = stream.read() if stream else b""
    except _DAMAGE as error:
        raise Broken(f"damaged or cut off ({error}), at {info.name}") from None
    if len(data) != info.size:
        raise Broken(f"cut off inside {info.name}")
    return data
