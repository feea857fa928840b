"""The sentences of the report, made from findings."""

import math
import re
import shlex

from fulcrum.judge import schema
from fulcrum.judge.schema import ArmResult, ClaimResult, Effect, ShownMetric, StudyResult, Target

# --------------------------------------------------------------------------------------------------
# What was run, and how: the plan's choices as names and values, for the page and its Markdown.


def facts(result: StudyResult) -> list[tuple[str, str]]:
    """What differs from the recipe first: settings, data and text encoder, the same for every
    arm."""
    plan, made = result.plan, result.made
    machines = schema.machines(result)
    unlike = max((row.unlike for row in result.effects), default=0)
    took = f", in {schema.duration(made.seconds)}" if made.seconds is not None else ""
    rows = [
        ("baseline", plan.baseline),
        ("settings of every arm", ", ".join(plan.settings) or "none: the recipe's own"),
        ("data", plan.data),
        ("text encoder", plan.text),
        ("plan", plan.hash),
        ("seeds", ", ".join(map(str, plan.seeds))),
        ("looks", schema.looks(result)),
        ("images per cell", f"{plan.images:,}"),
        ("samples per cell", f"{plan.sample_count:,}, guidance {schema.plain(plan.guidance, 1)}"),
        ("learning rates", plan.learning_rate_policy),
        ("smallest effect of interest", schema.plain(plan.smallest_effect)),
        ("significance level", f"{schema.plain(plan.alpha)}, over the whole family of arms"),
        ("threads per cell", str(plan.threads_per_cell)),
        ("machine", "; ".join(machines) or made.machine),
        (
            "unlike machines",
            f"some pairs ran on two kinds of machine: up to {unlike} of an arm" if unlike else "",
        ),
        ("made", f"Fulcrum {made.version}, {made.date}{took}"),
    ]
    return [(name, value) for name, value in rows if value]


def changed(result: StudyResult) -> str:
    """'spark with optim.lr=0.001, data.size=32 and 3 more settings': what the baseline is, so that
    nobody takes it for the recipe as it is."""
    settings = result.plan.settings
    if not settings:
        return ""
    rest = len(settings) - 3
    more = f" and {rest} more setting{'s' if rest > 1 else ''}" if rest > 0 else ""
    return ", ".join(settings[:3]) + more


def gallery_command(result: StudyResult) -> str:
    """What a person types to draw with the study's arms: its own command's plan, place and files.
    Empty where the study was not made by that command."""
    try:
        words = shlex.split(result.made.command)
    except ValueError:
        return ""
    if words[:3] != ["fulcrum", "study", "run"] or len(words) < 4:
        return ""
    pairs = zip(words[4::2], words[5::2], strict=False)  # every option of it has a value
    kept = [word for pair in pairs if pair[0] in ("--out", "--with") for word in pair]
    return shlex.join(["fulcrum", "gallery", "--study", words[3], *kept])


# --------------------------------------------------------------------------------------------------
# Plain sentences: what a study found about an arm, and what it cost.


EQUAL = {"images": "images", "steps": "steps", "time": "time", "seconds": "time", "flops": "FLOPs"}
# A comparison's tone decides its colour; a word that we do not know stays neutral.
TONES = {
    "better": "good",
    "worse": "bad",
    "tie": "even",
    "inconclusive": "open",
    "failed": "bad",
    "not learned": "early",
    "replicated": "good",
    "contradicted": "bad",
    "opposite here": "open",
    "underpowered": "open",
    "fades": "open",
    "grows": "good",
    "crossing": "open",
    "better together": "good",
    "worse together": "bad",
}
KNOWN = ("better", "worse", "tie", "not learned", "inconclusive", "failed", "waiting", "no answer")
DECIDED = ("better", "worse")
COSTS = {
    "time_ratio": "time per image",
    "flops_ratio": "FLOPs",
    "memory_ratio": "memory",
    "parameters_ratio": "parameters",
}


def tone(verdict: str | None) -> str:
    return TONES.get(verdict or "", "even")


def held_equal(unit: str) -> str:
    """What was the same for both arms of a comparison; a unit that we do not know is shown as it
    is."""
    return f"equal {EQUAL[unit]}" if unit in EQUAL else unit


def lowered(label: str) -> str:
    """A metric's label inside a sentence: 'Attribute accuracy' loses its capital, 'MMD' and 'FID'
    keep theirs."""
    return (
        label[:1].lower() + label[1:]
        if label[1:2].islower() and not label.startswith("Fréchet")
        else label
    )


def verb(label: str) -> str:
    """'are' for 'Short captions' and 'Muon + TREAD', 'is' for 'Muon': good enough for names of
    levers."""
    name = re.sub(r"\s*\(.*\)\s*$", "", label)
    return "are" if " + " in name or " and " in name or re.search(r"[^s]s$", name) else "is"


def verdict_of(result: StudyResult, arm: ArmResult) -> str:
    effect = result.effect(arm.name, result.primary.name)
    if effect is not None:
        return effect.verdict
    if arm.cells and arm.count("failed") == len(arm.cells):
        return "failed"
    return "waiting" if result.state != "finished" else "no answer"


def base_name(result: StudyResult, arm: ArmResult) -> str:
    """What an arm is compared with, inside a sentence: 'the baseline', or the label of another
    arm."""
    base = result.base_of(arm)
    return "the baseline" if result.is_base(base) else base.label


def answer(result: StudyResult, arm: ArmResult) -> str:
    """One sentence per arm, on the plan's primary metric."""
    effect, are = result.effect(arm.name, result.primary.name), verb(arm.label)
    if effect is None or not effect.n:
        return _no_answer(result, arm)
    numbers = f"{lowered(result.primary.label)} {_measured(effect)}, {schema.pairs(effect)}"
    if effect.p_adjusted is not None:
        numbers += f", p {schema.probability(effect.p_adjusted)}"
    base = base_name(result, arm)
    if effect.verdict == "not learned":
        return (
            f"{arm.label}: {base} has not learned this yet: train longer. So far"
            f" {numbers}{_why(result, arm, effect)}."
        )
    finding = {
        "better": f"{are} better" + (f" than {base}" if base != "the baseline" else ""),
        "worse": f"{are} worse" + (f" than {base}" if base != "the baseline" else ""),
        "tie": f"differ{'s' if are == 'is' else ''} from {base} too little to matter",
        "inconclusive": f"{are} undecided",
    }.get(effect.verdict, f"{are} {effect.verdict}")
    return f"{arm.label} {finding}: {numbers}{_why(result, arm, effect)}."


def _measured(effect: Effect) -> str:
    """'about +0.04 (measured +0.048 [+0.030, +0.066])'; without a shrunken mean, or a verdict, what
    was measured alone."""
    measured = schema.change(effect.mean, effect.low, effect.high)
    return f"about {_about(effect)} (measured {measured})" if _shrunk(effect) else measured


def _shrunk(effect: Effect) -> bool:
    return effect.shrunk is not None and effect.verdict in DECIDED


def _about(effect: Effect) -> str:
    """The size that a headline says: a shrunken one in two digits, a measured one with those that
    its interval deserves."""
    if effect.shrunk is not None and _shrunk(effect):
        return schema.signed(
            effect.shrunk,
            max(0, 1 - math.floor(math.log10(abs(effect.shrunk)))) if effect.shrunk else 0,
        )
    return schema.change(effect.mean, effect.low, effect.high).split(" [")[0]


def headline(result: StudyResult, scale: str = "") -> str:
    """What a reader should take away in ten seconds: who improved the primary metric, who hurt it,
    what is open."""
    arms = [arm for arm in result.compared if arm.scale == scale]
    size = {
        arm.name: abs(effect.mean or 0.0)
        for arm in arms
        if (effect := result.effect(arm.name, result.primary.name))
    }
    arms = sorted(arms, key=lambda arm: -size.get(arm.name, 0.0))
    named: dict[str, list[str]] = {verdict: [] for verdict in KNOWN}
    for arm in arms:
        named.setdefault(verdict_of(result, arm), []).append(_sized(result, arm))
    what, margin = lowered(result.primary.label), schema.plain(result.plan.smallest_effect)
    sentences = {
        "better": f"{{}} improved {what}.",
        "worse": f"{{}} made {'it' if named['better'] else what} worse.",
        "tie": (
            f"{{}} changed {'it' if named['better'] or named['worse'] else what} by less than the"
            f" {margin} that would matter."
        ),
        "not learned": (
            f"The baseline has not learned this yet ({what}): train longer. Not compared until"
            " then: {}."
        ),
        "inconclusive": "Undecided: {}.",
        "failed": "Failed: {}.",
        **{verdict: f"{verdict.capitalize()}: {{}}." for verdict in named if verdict not in KNOWN},
        "no answer": "No answer yet: {}." if named["waiting"] else "No answer: {}.",
    }
    named["no answer"] = named["waiting"] + named["no answer"]
    return " ".join(
        form.replace("{}", listed(named[verdict]))
        for verdict, form in sentences.items()
        if named[verdict]
    )


def _sized(result: StudyResult, arm: ArmResult) -> str:
    """'Muon (about +0.022, measured +0.07)' where an arm made a difference, else its name; failed
    seeds beside it."""
    effect, failed = result.effect(arm.name, result.primary.name), schema.failures(result, arm)
    size = ""
    if effect is not None and effect.mean is not None and effect.verdict in DECIDED:
        size = measured = schema.change(effect.mean, effect.low, effect.high).split(" [")[0]
        if _shrunk(effect) and _about(effect) != measured:
            size = f"about {_about(effect)}, measured {measured}"
    inside = "; ".join(part for part in (size, failed) if part)
    return f"{plain(arm)} ({inside})" if inside else plain(arm)


def shrinkage(result: StudyResult) -> str:
    """Why a headline says 'about'; empty where nothing was shrunk."""
    if not any(
        _shrunk(row)
        for arm in result.best_first
        if (row := result.effect(arm.name, result.primary.name))
    ):
        return ""
    return (
        "“About”: a difference that was picked out for being large is larger than the truth on"
        " average, and this takes that off. The less clearly it passed the bar, by its own pairs,"
        " the more is taken, and no more than its interval allows: many stand at the near end of"
        " theirs."
    )


def headlines(result: StudyResult) -> list[str]:
    """The headline, scale by scale where there are several."""
    if not result.scales:
        return [sentence for sentence in [headline(result)] if sentence]
    by_scale = [(scale.name, headline(result, scale.name)) for scale in result.scales]
    return [f"At scale {name}: {sentence}" for name, sentence in by_scale if sentence]


def plain(arm: ArmResult) -> str:
    """An arm's label without its scale, for places that tell the scale by themselves."""
    return arm.label.removesuffix(f" [{arm.scale}]")


def listed(names: list[str], last: str = "and") -> str:
    """'a', 'a and b', 'a, b and c'; a long list is cut, the ranking below is whole."""
    kept = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"]
    return kept[0] if len(kept) == 1 else f"{', '.join(kept[:-1])} {last} {kept[-1]}"


def _why(result: StudyResult, arm: ArmResult, effect: Effect) -> str:
    margin = schema.plain(result.plan.smallest_effect if effect.margin is None else effect.margin)
    failed = schema.failures(result, arm)
    parts = [f"{failed}, so these are survivors" if failed else ""]
    if effect.verdict == "tie":
        parts.append(f"inside the ±{margin} that would matter")
    if effect.verdict == "inconclusive":
        few = schema.too_few(result, effect)
        passed = effect.p_adjusted is not None and effect.p_adjusted <= result.plan.alpha
        noisy = (
            "the interval holds zero, and a verdict asks both"
            if passed
            else _noisy(result, effect, margin)
        )
        parts.append(few or ("survivors alone make no arm better" if failed else noisy))
    return "".join(f"; {part}" for part in parts if part)


def _noisy(result: StudyResult, effect: Effect, margin: str) -> str:
    """Why an effect that did not pass is open: zero is possible, or only the correction for so many
    arms keeps it from a verdict."""
    apart = (
        effect.low is not None
        and effect.high is not None
        and (effect.low > 0.0 or effect.high < 0.0)
    )
    arms = sum(arm.scale == "" for arm in result.compared) or len(result.compared)
    return (
        f"its interval leaves zero out, its p over {arms} arms does not pass"
        if apart
        else f"too noisy to tell ±{margin} from zero"
    )


def _no_answer(result: StudyResult, arm: ArmResult) -> str:
    total, done, failed = len(arm.cells), arm.count("done"), arm.count("failed")
    if total and failed == total:
        return (
            f"{arm.label} failed: none of {total} seeds finished, so there is nothing to compare."
        )
    if result.state != "finished":
        return f"{arm.label}: no answer yet, {done} of {total} seeds done."
    return f"{arm.label}: no answer; {done} of {total} seeds finished and no comparison was made."


def more_seeds(result: StudyResult) -> str:
    """What to do about arms that cannot be decided for want of pairs; empty where there are none,
    or more will come."""
    if result.state == "running":
        return ""
    rows = [(arm, result.effect(arm.name, result.primary.name)) for arm in result.compared]
    short = {
        plain(arm): schema.fewest(result) - row.n
        for arm, row in rows
        if row and schema.too_few(result, row)
    }
    if not short:
        return ""
    most = max(short.values())
    seeds = "one seed more" if most == 1 else f"{most} seeds more"
    return (
        f"Too few pairs for {listed(list(short))}. Give the plan {seeds} and run it again; what is"
        " done is kept:"
    )


def elsewhere(result: StudyResult, arm: ArmResult) -> list[str]:
    """The same comparison with something else held equal: a slower arm may win on images and lose
    on time."""
    headline, name = result.effect(arm.name, result.primary.name), result.primary.name
    return [
        f"at {held_equal(row.unit)}: "
        + ("" if row.exploratory else f"{row.verdict}, ")
        + schema.change(row.mean, row.low, row.high)
        + "".join(
            f" ({word})" for word in ("exploratory" if row.exploratory else "", row.note) if word
        )
        for row in result.effects_of(arm)
        if row.metric == name and row is not headline
    ]


def targets(result: StudyResult, arm: ArmResult) -> list[str]:
    """How soon an arm gets where the baseline ends; what is not reached is told once for images,
    time and FLOPs."""
    sentences, missed, base = (
        list[str](),
        dict[tuple[str, int, int], list[str]](),
        base_name(result, arm),
    )
    for row in result.time_to_target:
        if row.arm == arm.name:
            unit = EQUAL.get(row.unit, row.unit)
            goal = f"{lowered(result.metric(row.metric).label)} {schema.plain(row.target)}"
            if row.reached and row.ratio is not None:
                sentences.append(_reached(row, goal, f"{base}'s {unit}"))
            else:
                missed.setdefault((goal, row.reached, row.n), []).append(unit)
    return sentences + [
        f"{reached} of {n} seeds reach {goal}, where {base} ends, counted in {listed(units, 'or')}."
        for (goal, reached, n), units in missed.items()
    ]


def _reached(row: Target, goal: str, needed: str) -> str:
    """'Reaches attribute accuracy 0.78 with 0.71× [0.64×, 0.79×] of the baseline's images, 6 of 6
    seeds.'"""
    between = (
        ""
        if row.low is None or row.high is None
        else f" [{schema.ratio(row.low)}, {schema.ratio(row.high)}]"
    )
    return (
        f"Reaches {goal} with {schema.ratio(row.ratio)}{between} of {needed}, {row.reached} of"
        f" {row.n} seeds."
    )


def cost(arm: ArmResult) -> str:
    """'1.08× time per image, 1.00× FLOPs'; empty when nothing was measured."""
    ratios = [(getattr(arm.cost, field), name) for field, name in COSTS.items()]
    return ", ".join(f"{schema.ratio(value)} {name}" for value, name in ratios if value is not None)


def parts(arm: ArmResult) -> str:
    """'One seed spends 1.2e+15 FLOPs: denoiser 93 %, codec 5 %, evaluation 2 %.'; empty when
    nothing was counted."""
    whole = sum(arm.cost.parts.values())
    if not whole:
        return ""
    shares = sorted(arm.cost.parts.items(), key=lambda part: -part[1])
    return (
        f"One seed spends {whole:.3g} FLOPs: "
        + ", ".join(f"{name} {value / whole:.1%}" for name, value in shares)
        + "."
    )


def direction(metric: ShownMetric) -> str:
    return f"{metric.better} is better"


# --------------------------------------------------------------------------------------------------
# Sentences about published claims: what was claimed, on which of our metrics it was held, and how
# it fared.
#
# They stand in the section of their lever and never beside the ranking's verdict: a claim is about
# another metric.


NO_DIFFERENCE = "no difference that matters here, and a published size does not carry over"
MEANING = {
    "replicated": "the direction is as claimed",
    "contradicted": "in the same setting, not the direction that was claimed",
    "opposite here": (
        "the other direction, in a scaled-down setting: it says nothing about the claim's own"
    ),
    "underpowered": "this study cannot tell",
    "not comparable": "our setting does not stand for the claim's",
    "out of scope": "our setting does not stand for the claim's",
}


def published(metric: str) -> str:
    """A published metric's name as papers write it."""
    return metric.upper() if metric in ("fid", "cmmd", "kid") else metric


def claimed(claim: ClaimResult) -> str:
    """'FID −2.65'"""
    return f"{published(claim.metric)} {schema.change(claim.change, None, None)}"


def seen_of(result: StudyResult, arm: ArmResult, claim: ClaimResult) -> str:
    """What this study saw of a claim, on which of its metrics, and how that agrees with the primary
    one."""
    reason = claim.why or MEANING.get(claim.verdict or "", "")
    if claim.verdict == "not comparable":
        return f"Not held against it: {reason}."
    if not claim.seen:
        return (
            f"No metric of this study stands for {published(claim.metric)}."
            if result.effects
            else ""
        )
    metric, row = result.metric(claim.seen), result.effect(arm.name, claim.seen)
    if row is None:
        return ""
    word = "" if row.exploratory else f", {row.verdict}"
    sentence = (
        f"Our {lowered(metric.label)} stands for {published(claim.metric)} ({direction(metric)}): "
        f"{schema.change(row.mean, row.low, row.high)}{word}" + (f": {reason}." if reason else ".")
    )
    first = result.effect(arm.name, result.primary.name)
    leans = "better" if ((row.mean or 0.0) > 0) == (metric.better == "higher") else "worse"
    if (
        first is not None
        and metric.name != result.primary.name
        and first.verdict in ("better", "worse")
        and first.verdict != leans
    ):
        sentence += (
            f" The ranking asks another metric, {lowered(result.primary.label)}, on which"
            f" {arm.label} {verb(arm.label)} {first.verdict}."
        )
    return sentence
