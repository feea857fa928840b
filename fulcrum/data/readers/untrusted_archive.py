"""Tar archives that nobody vouches for, read as a stream: nothing is extracted, no name is a path, all is limited."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, NamedTuple, Self

from fulcrum.data.readers.untrusted_image import MOST_BYTES

TARS = (".tar", ".tar.gz", ".tgz")
MOST_MEMBERS = 10_000_000  # of one archive
MOST_UNPACKED = 1 << 40  # bytes of one archive: a terabyte
MOST_RATIO = 100  # unpacked to packed, after the first 64 MB: pictures do not shrink like this
_FREE = 1 << 26
_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, UnicodeError, ValueError, OverflowError)


class Broken(Exception):
    """The archive cannot be read any further."""


class Member(NamedTuple):
    name: str
    data: bytes
    fault: str  # why it must not be used; empty if it may


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
    """Of gzip: its checksum stands at the end, and what was unpacked before a fault shows may be wrong already."""
    if stream.read(2) == b"\x1f\x8b":
        stream.seek(0)
        whole = _Limited(stream, packed)
        try:
            while whole.read(1 << 20):
                pass
        except _DAMAGE as error:
            raise Broken(f"damaged or cut off ({error}); packed, so that no part of it can be trusted") from None
    stream.seek(0)


def members(stream: IO[bytes], packed: int | None = None) -> Iterator[Member]:
    """Files as they come. `packed`: size of the archive, where known, to refuse what unfolds beyond reason."""
    try:
        source = _Limited(stream, packed)
        with tarfile.open(fileobj=source, mode="r|", errorlevel=1, tarinfo=_Strict) as archive:
            for number, info in enumerate(archive):
                if archive.offset > source.most:  # where the next begins: the reader would go there step by step
                    raise Broken(f"damaged or cut off: {info.name} announces {info.size:,} bytes, more than can follow")
                if info.isdir():
                    continue
                if number >= MOST_MEMBERS:
                    raise Broken(f"more than {MOST_MEMBERS:,} members: split it")
                fault = _fault(info)
                yield Member(info.name, b"" if fault else _read(archive, info), fault)
            while rest := archive.fileobj.read(1 << 16):
                if rest.strip(b"\0"):
                    raise Broken("more follows its end: two archives in one file?")
    except Broken:
        raise
    except _DAMAGE as error:
        raise Broken(f"damaged or cut off ({error})") from None


class _Limited(io.RawIOBase):
    """The bytes of a tar, unpacked if they are gzip; no more of them than can be meant well, headers included."""

    def __init__(self, stream: IO[bytes], packed: int | None) -> None:
        head = stream.read(2)
        joined = _Joined(head, stream)
        self.stream: _Joined | gzip.GzipFile = gzip.GzipFile(fileobj=joined) if head == b"\x1f\x8b" else joined
        self.most = MOST_UNPACKED
        if packed is not None:
            self.most = min(MOST_UNPACKED, packed if self.stream is joined else _FREE + MOST_RATIO * packed)
        self.packed, self.seen = packed, 0

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.seen += len(data)
        if self.seen > self.most:
            raise Broken(f"{self.packed or 'some'} bytes unfold to more than {self.most:,}: a decompression bomb?")
        return data


class _Joined(io.RawIOBase):
    """A stream whose first bytes were read already; it cannot be wound back, and remote ones need not be."""

    def __init__(self, head: bytes, stream: IO[bytes]) -> None:
        self.head, self.stream = head, stream

    def read(self, size: int = -1) -> bytes:
        if not self.head:
            return self.stream.read(size)
        head, self.head = (self.head, b"") if size < 0 or size >= len(self.head) else (self.head[:size], self.head[size:])
        return head + (self.stream.read(size - len(head)) if size > len(head) else self.stream.read() if size < 0 else b"")


def _fault(info: tarfile.TarInfo) -> str:
    path = PurePosixPath(info.name)
    if not info.isreg() or info.issparse():
        return "a link or device, not a file"
    if path.is_absolute() or ".." in path.parts or "\\" in info.name or "\0" in info.name:
        return "its name leads out of the archive"
    if info.size > MOST_BYTES:
        return f"too large a file: {info.size:,} bytes, the limit is {MOST_BYTES:,}"
    return ""


def _read(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(info)
    data = stream.read() if stream else b""
    if len(data) != info.size:
        raise Broken(f"cut off inside {info.name}")
    return data
