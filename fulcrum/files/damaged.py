"""What is on the disk and is not as it was written: refused in words, set aside, never used and never destroyed."""

import shutil
from pathlib import Path

from fulcrum.spec.errors import RunFailed


class Damaged(RunFailed):
    """A file or folder of ours is not what was written."""


def set_aside(path: Path) -> Path:
    """Move something damaged out of the way as damaged-NAME, in place of what was set aside there before."""
    aside = path.with_name(f"damaged-{path.name}")
    remove(aside)
    path.rename(aside)
    return aside


def remove(path: Path) -> None:
    """Remove whatever stands at a path; of a link the link, not what it names. Nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
