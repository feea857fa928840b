"""The cells of a study, as far as judging reads them: one arm under one seed each."""

from collections.abc import Mapping
from typing import Any


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Did two cells run on unlike machines? A cell that does not say where it ran is not compared.

    Fulcrum's own version does not count: what changes numbers there changes a cell's key or the
    name of its files.
    """
    sides = [
        {name: fact for name, fact in facts.items() if name != "fulcrum"} for facts in (one, other)
    ]
    return all(sides) and sides[0] != sides[1]
