"""Does routing pay only at many tokens? From the study at several numbers of tokens, or half an answer without it."""

from collections.abc import Sequence

from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.schema import Effect, StudyResult
from fulcrum.report.evidence.answers.answer_words import NOT_RUN, all_told, changed, settled, those_of, told
from fulcrum.report.evidence.decisions.decision import SAME_TIME, Decision, all_decisions
from fulcrum.report.evidence.decisions.known_studies import Studies
from fulcrum.report.evidence.sections.over_scales import starts, turned_back

ROUTES = ("tread", "sprint")


def routing(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    few, result = those_of(rows, ROUTES), studies.get("resolution")
    if result is None:
        if not few:
            return NOT_RUN, "No study of routing has been kept."
        word = "Half an answer" if any(map(settled, few)) else "Undecided"
        return word, f"At few tokens: {all_told(few)} The study at more tokens was not run yet."
    scales = [scale.name for scale in result.scales]
    own = [one for one in all_decisions("resolution", result) if one.arm.root in ROUTES]
    least = [one for one in own if one.arm.scale == scales[0]]
    most = [one for one in own if one.arm.scale == scales[-1]]
    text = f"{starts(result)} " + " ".join(f"At {one.arm.scale}: {told(one)}" for one in own)
    later = _at_equal_time(result, own)
    text += _told_at_equal_time(later)
    perhaps = ", at equal time perhaps" if any(_gains(result, row) for _, row in later) else ""
    trends = [row for row in result.trends if row.arm in ROUTES and row.metric == result.primary.name and row.verdict]
    text += "".join(
        f" Over all scales the effect of {row.arm} {row.verdict} "
        f"({number.change(row.slope, row.low, row.high)} per {row.axis}, {row.n} pairs)."
        for row in trends
    )
    if not most or not all(map(settled, most)):
        return "Undecided", text
    if any(one.verdict == "better" for one in most):
        return ("Yes, here" if not any(one.verdict == "better" for one in least) else "It pays at both ends here"), text
    cheap = [one for one in most if one.verdict == "tie" and (one.time or 1.0) < 1.0 - SAME_TIME]
    if cheap:
        return "It saves time at many tokens, and gains nothing", text
    if not trends or not all(row.verdict == "fades" for row in trends):
        return "No, not here", text
    back = turned_back(result)
    if not back:
        return f"Not at equal images here{perhaps}, but its harm fades", text
    return f"Not at equal images here{perhaps}; its harm is least from {scales[-2]} tokens on", f"{text} {' '.join(back)}"


def _at_equal_time(result: StudyResult, own: Sequence[Decision]) -> list[tuple[Decision, Effect]]:
    """Beyond the fewest tokens; equal FLOPs stand in the study's own section."""
    rows = [(one, one.at_equal_time(result.primary.name)) for one in own if one.arm.scale != result.scales[0].name]
    return [(one, row) for one, row in rows if row is not None]


def _gains(result: StudyResult, row: Effect) -> bool:
    """Is all of its interval on the better side?"""
    if row.low is None or row.high is None:
        return False
    return row.low > 0.0 if result.primary.better == "higher" else row.high < 0.0


def _told_at_equal_time(later: Sequence[tuple[Decision, Effect]]) -> str:
    """Why to doubt it stands once, behind all."""
    if not later:
        return ""
    found = "; ".join(f"{sentences.plain(one.arm)} at {one.arm.scale} {changed(row)}" for one, row in later)
    notes = dict.fromkeys(row.note for _, row in later if row.note)
    return f" At equal time, exploratory: {found}{''.join(f' ({note})' for note in notes)}."
