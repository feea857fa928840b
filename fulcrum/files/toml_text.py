"""TOML that a person wrote, parsed within limits: a few kilobytes must not take minutes."""

import re
import tomllib
from typing import Any

MOST_LETTERS = 4_000_000
MOST_PARTS = 64  # of a dotted key: the parser's work grows with the square of them
_CHAIN = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}""")


def parse_toml(text: str) -> dict[str, Any]:
    """The tables, or a ValueError that says in words why there are none."""
    if len(text) > MOST_LETTERS:
        raise ValueError(f"it has {len(text):,} letters, more than {MOST_LETTERS:,}")
    if chain := _CHAIN.search(text):
        line = text.count("\n", 0, chain.start()) + 1
        raise ValueError(f"a key of more than {MOST_PARTS} parts (at line {line})")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
