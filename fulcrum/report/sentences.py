"""Plain sentences: what a study found about an arm, how sure it is, what it cost."""

import math
import re

from fulcrum.report import number
from fulcrum.report.arm_result import ArmResult, ClaimResult
from fulcrum.report.finding import Effect, Target
from fulcrum.report.schema import ShownMetric, StudyResult

EQUAL = {"images": "images", "steps": "steps", "time": "time", "seconds": "time", "flops": "FLOPs"}
# A comparison's tone decides its colour; a word that we do not know stays neutral.
TONES = {
    "better": "good",
    "worse": "bad",
    "tie": "even",
    "inconclusive": "open",
    "replicated": "good",
    "contradicted": "bad",
    "underpowered": "open",
    "out of scope": "even",
    "failed": "bad",
    "fades": "open",
    "grows": "good",
    "better together": "good",
    "worse together": "bad",
}
KNOWN = ("better", "worse", "tie", "inconclusive", "failed", "waiting", "no answer")
CLAIMS = {
    "replicated": "the direction is as claimed",
    "contradicted": "not the direction that was claimed",
    "underpowered": "this study cannot tell",
    "out of scope": "our setting does not stand for the claim's",
}
COSTS = {"time_ratio": "time per image", "flops_ratio": "FLOPs", "memory_ratio": "memory", "parameters_ratio": "parameters"}


def tone(verdict: str | None) -> str:
    return TONES.get(verdict or "", "even")


def held_equal(unit: str) -> str:
    """What was the same for both arms of a comparison; a unit that we do not know is shown as it is."""
    return f"equal {EQUAL[unit]}" if unit in EQUAL else unit


def lowered(label: str) -> str:
    """A metric's label inside a sentence: 'Attribute accuracy' loses its capital, 'MMD' and 'FID' keep theirs."""
    return label[:1].lower() + label[1:] if label[1:2].islower() and not label.startswith("Fréchet") else label


def verb(label: str) -> str:
    """'are' for 'Short captions' and 'Muon + TREAD', 'is' for 'Muon': good enough for names of levers."""
    name = re.sub(r"\s*\(.*\)\s*$", "", label)
    return "are" if " + " in name or " and " in name or re.search(r"[^s]s$", name) else "is"


def verdict_of(result: StudyResult, arm: ArmResult) -> str:
    effect = result.effect(arm.name, result.primary.name)
    if effect is not None:
        return effect.verdict
    if arm.cells and arm.count("failed") == len(arm.cells):
        return "failed"
    return "waiting" if result.state != "finished" else "no answer"


def answer(result: StudyResult, arm: ArmResult) -> str:
    """One sentence per arm, on the plan's primary metric."""
    metric, effect, are = result.primary, result.effect(arm.name, result.primary.name), verb(arm.label)
    if effect is None:
        return _no_answer(result, arm)
    numbers = f"{lowered(metric.label)} {number.change(effect.mean, effect.low, effect.high)}, {_pairs(effect)}"
    if effect.p_adjusted is not None:
        p = number.probability(effect.p_adjusted)
        numbers += f", p {p}"
    finding = {
        "better": f"{are} better",
        "worse": f"{are} worse",
        "tie": f"{are} as good as the baseline",
        "inconclusive": f"{are} undecided",
    }.get(effect.verdict, f"{are} {effect.verdict}")
    return f"{arm.label} {finding}: {numbers}{_why(result, effect)}."


def headline(result: StudyResult, scale: str = "") -> str:
    """What a reader should take away in ten seconds: who improved the primary metric, who hurt it, what is open."""
    arms = [arm for arm in result.compared if arm.scale == scale]
    size = {arm.name: abs(effect.mean or 0.0) for arm in arms if (effect := result.effect(arm.name, result.primary.name))}
    arms = sorted(arms, key=lambda arm: -size.get(arm.name, 0.0))
    named: dict[str, list[str]] = {verdict: [] for verdict in KNOWN}
    for arm in arms:
        named.setdefault(verdict_of(result, arm), []).append(_sized(result, arm))
    what, margin = lowered(result.primary.label), number.plain(result.plan.smallest_effect)
    sentences = {
        "better": f"{{}} improved {what}.",
        "worse": f"{{}} made {'it' if named['better'] else what} worse.",
        "tie": f"{{}} changed it by less than the {margin} that would matter.",
        "inconclusive": "Undecided: {}.",
        "failed": "Failed: {}.",
        **{verdict: f"{verdict.capitalize()}: {{}}." for verdict in named if verdict not in KNOWN},
        "no answer": "No answer yet: {}." if named["waiting"] else "No answer: {}.",
    }
    named["no answer"] = named["waiting"] + named["no answer"]
    return " ".join(form.replace("{}", listed(named[verdict])) for verdict, form in sentences.items() if named[verdict])


def _sized(result: StudyResult, arm: ArmResult) -> str:
    """'Muon (+0.027)' where an arm made a difference, else its name."""
    effect = result.effect(arm.name, result.primary.name)
    if effect is None or effect.mean is None or effect.verdict not in ("better", "worse"):
        return plain(arm)
    return f"{plain(arm)} ({number.change(effect.mean, effect.low, effect.high).split(' [')[0]})"


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


def claim_of(result: StudyResult, arm: ArmResult) -> str:
    """How the published claims about an arm fared, each with the metric it is about: 'FID contradicted'. The clearest
    answer stands first; empty where nothing was claimed."""
    order = ("contradicted", "replicated", "underpowered", "out of scope")
    verdicts = [(claim.verdict, claim.metric) for claim in arm.claims if claim.verdict]
    verdicts = verdicts or [
        (row.claim_verdict, result.metric(row.metric).label) for row in result.effects_of(arm) if row.claim_verdict
    ]
    by: dict[str, list[str]] = {}
    for verdict, metric in sorted(verdicts, key=lambda one: order.index(one[0]) if one[0] in order else len(order)):
        by.setdefault(verdict, []).append(published(metric))
    return "; ".join(f"{', '.join(dict.fromkeys(metrics))} {verdict}" for verdict, metrics in by.items())


def published(metric: str) -> str:
    """A published metric's name as papers write it."""
    return metric.upper() if metric in ("fid", "cmmd", "kid") else metric


def claimed(claim: ClaimResult) -> str:
    """'FID −2.65'"""
    return f"{published(claim.metric)} {number.change(claim.change, None, None)}"


def seen_of(result: StudyResult, arm: ArmResult, claim: ClaimResult) -> str:
    """What this study saw of a claim, on which of its metrics, and how that agrees with the primary one."""
    if not claim.seen:
        return f"No metric of this study stands for {published(claim.metric)}." if result.effects else ""
    metric, row = result.metric(claim.seen), result.effect(arm.name, claim.seen)
    if row is None:
        return ""
    why = f": {CLAIMS[claim.verdict]}" if claim.verdict in CLAIMS else ""
    sentence = (
        f"Our {lowered(metric.label)} stands for {published(claim.metric)} ({direction(metric)}): "
        f"{number.change(row.mean, row.low, row.high)}, {row.verdict}{why}."
    )
    first = result.effect(arm.name, result.primary.name)
    if first is not None and metric.name != result.primary.name and first.verdict != row.verdict:
        sentence += (
            f" The ranking asks another metric, {lowered(result.primary.label)}, on which {arm.label} "
            f"{verb(arm.label)} {first.verdict}."
        )
    return sentence


def _pairs(effect: Effect) -> str:
    return f"{effect.n} pair" + ("" if effect.n == 1 else "s")


def _why(result: StudyResult, effect: Effect) -> str:
    margin = number.plain(result.plan.smallest_effect)
    if effect.verdict == "tie":
        return f"; inside the ±{margin} that would matter"
    if effect.verdict == "inconclusive":
        return f"; {too_few(result, effect)}" if too_few(result, effect) else f"; too noisy to tell ±{margin} from zero"
    return ""


def _no_answer(result: StudyResult, arm: ArmResult) -> str:
    total, done, failed = len(arm.cells), arm.count("done"), arm.count("failed")
    if total and failed == total:
        return f"{arm.label} failed: none of {total} seeds finished, so there is nothing to compare."
    if result.state != "finished":
        return f"{arm.label}: no answer yet, {done} of {total} seeds done."
    return f"{arm.label}: no answer; {done} of {total} seeds finished and no comparison was made."


def too_few(result: StudyResult, effect: Effect) -> str:
    """The smallest p that n sign flips can give is 2 / 2^n: below that no result can be significant."""
    floor = 2.0 ** (1 - effect.n)
    if effect.n < 1 or floor <= result.plan.alpha:
        return ""
    return f"with {_pairs(effect)} no p below {number.probability(floor)} exists, so nothing can be significant"


def sure(result: StudyResult, effect: Effect) -> list[str]:
    """How far a reader may trust one comparison, as short sentences."""
    sentences = []
    few = too_few(result, effect)
    if few:  # of what is undecided, the answer says it
        sentences += [few[0].upper() + few[1:] + "."] if effect.verdict != "inconclusive" else []
    elif effect.p_adjusted is not None:
        beats = "below" if effect.p_adjusted <= result.plan.alpha else "not below"
        sentences.append(
            f"p {number.probability(effect.p_adjusted)} over the whole family of arms, {beats} the "
            f"planned {number.plain(result.plan.alpha)}."
        )
    if effect.correlation is not None:
        help_ = "pairing helped" if effect.correlation > 0.3 else "pairing helped little"
        sentences.append(f"Over seeds the two arms correlate at {number.plain(effect.correlation, 2)}: {help_}.")
    if effect.detectable is not None:
        sentences.append(
            f"With the scatter of these pairs, a true difference of {_rough(effect.detectable)} would be "
            "seen in four studies of five."
        )
    return sentences


def visible(result: StudyResult) -> str:
    """What differences on the primary metric this study can see, lever by lever; empty where that is not known."""
    fewest = math.ceil(1 - math.log2(result.plan.alpha))  # pairs whose sign flips can give a p that small
    if len(result.plan.seeds) < fewest:
        return f"So few seeds cannot decide anything, whatever is found: {fewest} are the fewest that can."
    rows = [result.effect(arm.name, result.primary.name) for arm in result.compared]
    sizes = [row.detectable for row in rows if row is not None and row.detectable is not None]
    loudest = result.detectable.get(result.primary.name)
    if not sizes:
        return (
            ""
            if loudest is None
            else (
                f"Of the lever that scatters most, a true difference of {_rough(loudest)} "
                "would be seen in four studies of five."
            )
        )
    least, most = _rough(min(sizes)), _rough(max(sizes))
    size = least if least == most else f"{least} to {most}, depending on how much a lever scatters over seeds,"
    return f"A true difference of {size} would be seen in four studies of five."


def _rough(size: float) -> str:
    return number.plain(size, number.decimals(size))


def elsewhere(result: StudyResult, arm: ArmResult) -> list[str]:
    """The same comparison with something else held equal: a slower arm may win on images and lose on time."""
    headline, name = result.effect(arm.name, result.primary.name), result.primary.name
    return [
        f"at {held_equal(row.unit)}: {row.verdict}, {number.change(row.mean, row.low, row.high)}"
        + (f" ({row.note})" if row.note else "")
        for row in result.effects_of(arm)
        if row.metric == name and row is not headline
    ]


def targets(result: StudyResult, arm: ArmResult) -> list[str]:
    """How soon an arm gets where the baseline ends; what is not reached is told once for images, time and FLOPs."""
    sentences, missed = list[str](), dict[tuple[str, int, int], list[str]]()
    for row in result.time_to_target:
        if row.arm == arm.name:
            unit = EQUAL.get(row.unit, row.unit)
            goal = f"{lowered(result.metric(row.metric).label)} {number.plain(row.target)}"
            if row.reached and row.ratio is not None:
                sentences.append(_reached(row, goal, unit))
            else:
                missed.setdefault((goal, row.reached, row.n), []).append(unit)
    return sentences + [
        f"{reached} of {n} seeds reach {goal}, where the baseline ends, counted in {listed(units, 'or')}."
        for (goal, reached, n), units in missed.items()
    ]


def _reached(row: Target, goal: str, unit: str) -> str:
    """'Reaches attribute accuracy 0.78 with 0.71× [0.64×, 0.79×] of the baseline's images, 6 of 6 seeds.'"""
    between = "" if row.low is None or row.high is None else f" [{number.ratio(row.low)}, {number.ratio(row.high)}]"
    return (
        f"Reaches {goal} with {number.ratio(row.ratio)}{between} of the baseline's {unit}, {row.reached} of {row.n} seeds."
    )


def cost(arm: ArmResult) -> str:
    """'1.08× time per image, 1.00× FLOPs'; empty when nothing was measured."""
    ratios = [(getattr(arm.cost, field), name) for field, name in COSTS.items()]
    return ", ".join(f"{number.ratio(value)} {name}" for value, name in ratios if value is not None)


def parts(arm: ArmResult) -> str:
    """'One seed spends 1.2e+15 FLOPs: denoiser 93 %, codec 5 %, evaluation 2 %.'; empty when nothing was counted."""
    whole = sum(arm.cost.parts.values())
    if not whole:
        return ""
    shares = sorted(arm.cost.parts.items(), key=lambda part: -part[1])
    return f"One seed spends {whole:.3g} FLOPs: " + ", ".join(f"{name} {value / whole:.1%}" for name, value in shares) + "."


def direction(metric: ShownMetric) -> str:
    return f"{metric.better} is better"


def failures(arm: ArmResult) -> str:
    failed = arm.count("failed")
    return f"{failed} of {len(arm.cells)} seeds failed" if failed else ""
