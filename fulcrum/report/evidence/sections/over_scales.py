"""A study at several scales in words: where its baselines begin, and effects that fade only a part of the way."""

from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.schema import StudyResult
from fulcrum.judge.tables import mean_sd


def starts(result: StudyResult) -> str:
    """'The baselines have 0.83 at 16, 0.72 at 64 and 0.62 at 256.'"""
    bases = [arm for arm in result.arms if result.is_base(arm)]
    means = [f"{number.plain(mean_sd(arm, result.primary.name)[0], 2)} at {arm.scale}" for arm in bases]
    return f"The baselines have {sentences.listed(means)}."


def turned_back(result: StudyResult) -> list[str]:
    """A sentence for each decision whose effect fades over all scales, and yet is no smaller at the last than at the one
    before: a straight line through three points does not see that."""
    scales = [scale.name for scale in result.scales]
    fading = {row.arm for row in result.trends if row.metric == result.primary.name and row.verdict == "fades"}
    lines = []
    for root in (root for root in result.decisions if root in fading):
        arms = {arm.scale: arm for arm in result.compared if arm.root == root}
        effects = {scale: result.effect(arms[scale].name, result.primary.name) for scale in scales if scale in arms}
        sizes = [abs(row.mean) for row in effects.values() if row is not None and row.mean is not None]
        if len(sizes) == len(scales) > 2 and sizes[-1] >= sizes[-2]:
            first, before, last = scales[0], scales[-2], scales[-1]
            name = sentences.plain(arms[last])
            lines.append(
                f"The effect of {name} is smaller at {before} than at {first}, and no smaller at {last} than at {before}: "
                "it does not fade all the way."
            )
    return lines
