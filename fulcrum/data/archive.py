"""Tar archives that nobody vouches for, read as a stream: nothing is extracted, no name is a path, all is limited."""
from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import PurePosixPath
from typing import IO, NamedTuple

from fulcrum.data.picture import MOST_BYTES

TARS = (".tar", ".tar.gz", ".tgz")
MOST_MEMBERS = 10_000_000               # of one archive
MOST_UNPACKED = 1 << 40                 # bytes of one archive: a terabyte
MOST_RATIO = 100                        # unpacked to packed, after the first 64 MB: pictures do not shrink like this
_FREE = 1 << 26
_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, LZMAError, UnicodeError, ValueError, OverflowError)


class Broken(Exception):
    """The archive cannot be read any further."""


class Member(NamedTuple):
    name: str
    data: bytes
    fault: str                          # why it must not be used; empty if it may


def members(stream: IO[bytes], packed: int | None = None) -> Iterator[Member]:
    """Files as they come. `packed`: size of the archive, where known, to refuse what unfolds beyond reason."""
    unpacked = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|*", errorlevel=1) as archive:
            for number, info in enumerate(archive):
                if info.isdir():
                    continue
                unpacked += info.size
                if number >= MOST_MEMBERS or unpacked > MOST_UNPACKED:
                    raise Broken(f"more than {MOST_MEMBERS:,} members or {MOST_UNPACKED:,} bytes: split it")
                if packed is not None and unpacked > _FREE + MOST_RATIO * packed:
                    raise Broken(f"{packed:,} bytes unfold to more than {unpacked:,}: a decompression bomb?")
                fault = _fault(info)
                yield Member(info.name, b"" if fault else _read(archive, info), fault)
    except Broken:
        raise
    except _DAMAGE as error:
        raise Broken(f"damaged or cut off ({error})") from None


def _fault(info: tarfile.TarInfo) -> str:
    path = PurePosixPath(info.name)
    if not info.isreg():
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
