"""What is on the disk and is not as it was written: refused in words, set aside, never used and never destroyed."""

import os
import shutil
from itertools import chain, count
from pathlib import Path

from fulcrum.spec.errors import RunFailed

ASIDE = "damaged-"  # what the name of everything that was set aside begins with


class Damaged(RunFailed):
    """A file or folder of ours is not what was written."""


def set_aside(path: Path) -> Path:
    """Move something damaged out of the way, beside what was set aside there before."""
    aside = free_aside(path)
    path.rename(aside)
    return aside


def free_aside(path: Path) -> Path:
    """Where something damaged can be kept: damaged-NAME, and of what is damaged again damaged-2-NAME, damaged-3-NAME."""
    names = chain([ASIDE], (f"{ASIDE}{time}-" for time in count(2)))
    return next(place for name in names if not os.path.lexists(place := path.with_name(name + path.name)))


def remove(path: Path) -> None:
    """Remove whatever stands at a path; of a link the link, not what it names. Nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
