"""A reader under attack: what it is fed, and what bad input may end in."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fulcrum.spec.errors import FulcrumError


class Target(NamedTuple):
    name: str
    seeds: list[bytes]  # sound inputs to begin from
    feed: Callable[[bytes, Path], object]  # reads one input; the folder is its own
    refusals: tuple[type[Exception], ...] = (FulcrumError,)  # what bad input may end in
    words: tuple[bytes, ...] = ()  # pieces that its format is made of
