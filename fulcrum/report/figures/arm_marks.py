"""How an arm is recognised in every figure, beside its mark: a hue, and a dash where hues repeat."""

from fulcrum.report.arm_result import ArmResult
from fulcrum.report.schema import StudyResult

COLOURS = 7  # hues of the style sheet beside the baseline's grey


def colour(result: StudyResult, arm: ArmResult) -> str:
    """The style-sheet classes of an arm: grey for a baseline, then hues in the order of the plan; one decision keeps its
    hue at every scale."""
    if result.is_base(arm) or arm.root not in result.decisions:  # a combination of levers has none of its own
        return "arm-0"
    place = result.decisions.index(arm.root)
    return f"arm-{1 + place % COLOURS}" + (" again" if place >= COLOURS else "")
