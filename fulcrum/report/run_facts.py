"""What was run, and how: the plan's choices as names and values, for the page and its Markdown."""

import shlex

from fulcrum.report.schema import StudyResult
from fulcrum.report.wording import certainty, number


def facts(result: StudyResult) -> list[tuple[str, str]]:
    """What differs from the recipe first: settings, data and text encoder, the same for every arm."""
    plan, made = result.plan, result.made
    machines = certainty.machines(result)
    unlike = max((row.unlike for row in result.effects), default=0)
    took = f", in {number.duration(made.seconds)}" if made.seconds is not None else ""
    rows = [
        ("baseline", plan.baseline),
        ("settings of every arm", ", ".join(plan.settings) or "none: the recipe's own"),
        ("data", plan.data),
        ("text encoder", plan.text),
        ("plan", plan.hash),
        ("seeds", ", ".join(map(str, plan.seeds))),
        ("looks", certainty.looks(result)),
        ("images per cell", f"{plan.images:,}"),
        ("samples per cell", f"{plan.sample_count:,}, guidance {number.plain(plan.guidance, 1)}"),
        ("learning rates", plan.learning_rate_policy),
        ("smallest effect of interest", number.plain(plan.smallest_effect)),
        ("significance level", f"{number.plain(plan.alpha)}, over the whole family of arms"),
        ("threads per cell", str(plan.threads_per_cell)),
        ("machine", "; ".join(machines) or made.machine),
        ("unlike machines", f"some pairs ran on two kinds of machine: up to {unlike} of an arm" if unlike else ""),
        ("made", f"Fulcrum {made.version}, {made.date}{took}"),
    ]
    return [(name, value) for name, value in rows if value]


def changed(result: StudyResult) -> str:
    """'spark with optim.lr=0.001, data.size=32 and 3 more settings': what the baseline is, so that nobody takes it for
    the recipe as it is."""
    settings = result.plan.settings
    if not settings:
        return ""
    rest = len(settings) - 3
    more = f" and {rest} more setting{'s' if rest > 1 else ''}" if rest > 0 else ""
    return ", ".join(settings[:3]) + more


def gallery_command(result: StudyResult) -> str:
    """What a person types to draw with the study's arms: its own command's plan, place and files. Empty where the study
    was not made by that command."""
    try:
        words = shlex.split(result.made.command)
    except ValueError:
        return ""
    if words[:3] != ["fulcrum", "study", "run"] or len(words) < 4:
        return ""
    pairs = zip(words[4::2], words[5::2], strict=False)  # every option of it has a value
    kept = [word for pair in pairs if pair[0] in ("--out", "--with") for word in pair]
    return shlex.join(["fulcrum", "gallery", "--study", words[3], *kept])
