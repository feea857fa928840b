"""Files that nobody vouches for, read whole: plain ones of a bounded size; captions only from inside their folder."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fulcrum.files.paths import open_regular, reason

MOST_BYTES = 1 << 28  # of one file


def too_large(size: int) -> str:
    return f"too large a file: {size:,} bytes, the limit is {MOST_BYTES:,}"


def read_untrusted(path: Path, first: int | None = None) -> bytes:
    """All bytes of a file, or the first so many; a ValueError says why they cannot be had."""
    try:
        with open(open_regular(path, follow=True), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > MOST_BYTES and first is None:
                raise ValueError(too_large(size))
            return stream.read(size if first is None else first)
    except OSError as error:
        plain = error.errno not in (errno.EINVAL, errno.EISDIR)  # a pipe would keep us waiting, a device has no end
        raise ValueError(f"cannot be read ({reason(error)})" if plain else "not a file: a device or a pipe") from None


def bounded_lines(stream: IO[bytes], most: int) -> Iterator[bytes | None]:
    """Line by line; None for one of more than `most` bytes, which is passed over and never held whole."""
    while line := stream.readline(most + 1):
        whole = len(line) <= most
        while not whole and line and not line.endswith(b"\n"):
            line = stream.readline(most)
        yield line if whole else None


def leads_out(folder: Path, path: Path) -> bool:
    """Is it a link to something outside the folder? Whoever made the folder could have any text of ours read into it."""
    return path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
