"""Files that nobody vouches for, read whole: plain ones of a bounded size; captions only from inside their folder."""

import errno
import os
from pathlib import Path

from fulcrum.files.paths import open_regular
from fulcrum.files.refusals import reason

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


def leads_out(folder: Path, path: Path) -> bool:
    """Is it a link to something outside the folder? Whoever made the folder could have any text of ours read into it."""
    return path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
