"""How an arm is recognised in every figure: a hue, a dash where hues repeat, and its place in the ranking as a mark."""
from __future__ import annotations

from fulcrum.report.schema import Arm, StudyResult
from fulcrum.report.table import ranked

COLOURS = 7                    # hues of the style sheet beside the baseline's grey


def colour(result: StudyResult, arm: Arm) -> str:
    """The style-sheet classes of an arm: grey for a baseline, then hues in the order of the plan; one decision keeps its
    hue at every scale."""
    compared = result.compared
    if arm not in compared:
        return "arm-0"
    place = list(dict.fromkeys(one.root for one in compared)).index(arm.root)
    return f"arm-{1 + place % COLOURS}" + (" again" if place >= COLOURS else "")


def mark(result: StudyResult, arm: Arm) -> str:
    """The number beside an arm in the ranking of its scale, and in figures; a baseline is B."""
    if arm not in result.compared:
        return "B"
    others = [one for one in ranked(result) if one.scale == arm.scale and one in result.compared]
    return str(1 + others.index(arm))
