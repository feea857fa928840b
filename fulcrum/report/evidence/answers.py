"""What the articles say of the published study, each as a question with our answer: a word, and the findings behind it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fulcrum.report.evidence.decision import SAME_TIME, Decision, all_decisions, named, table
from fulcrum.report.evidence.known_studies import AGAIN, Studies
from fulcrum.report.finding import Effect
from fulcrum.report.schema import StudyResult
from fulcrum.report.table import mean_sd
from fulcrum.report.wording import number, sentences

CAPTIONS = ("short_captions", "short_captions(prompts=matched)", "mixed_captions")
TOKENIZERS = ("wide_codec", "aligned_codec", "latent_alignment", "end_to_end_codec")
ROUTES = ("tread", "sprint")
STORED = ("bf16_storage", "bf16_optimizer_state", "bf16_everything", "bf16_compute")
ALIGNED = ("repa", "repa(teacher=supervised)", "irepa")
PICTURES = ("real_data", "synthetic_then_real")
NOT_RUN = "Not run yet"
DISTANCE = "frechet"  # between drawn and real pictures, whatever was asked for; lower is better


class Question(NamedTuple):
    question: str
    claim: str  # what the articles say, in words
    answer: Callable[[Sequence[Decision], Studies], tuple[str, str]]  # a word or two, and the findings behind it
    roots: Sequence[str]  # arms that were asked again elsewhere


class ArticleAnswer(NamedTuple):
    question: str
    claim: str  # what the articles say, in words
    word: str  # the answer in a word or two
    text: str


def answers(studies: Studies) -> list[ArticleAnswer]:
    rows = [one for one in table(studies) if one.may_conclude or one.arm.root in CAPTIONS]
    asked: tuple[Question, ...] = (
        Question("Captions first?", "How long captions are is the largest lever of all.", _captions, CAPTIONS),
        Question("The tokenizer second?", "After captions, the autoencoder is what matters most.", _tokenizer, TOKENIZERS),
        Question("Does alignment pay?", "REPA improves quality; a stronger teacher improves it more.", _alignment, ALIGNED),
        Question("Alignment as burn-in?", "REPA should be switched off when training has got going.", _burn_in, ()),
        Question("Routing only at many tokens?", "TREAD and SPRINT hurt at few tokens and pay at many.", _routing, ROUTES),
        Question(
            "Precision, a silent tax?",
            "Weights that are stored in BF16 cost quality that nobody notices.",
            _precision,
            STORED,
        ),
        Question("Is Muon a free gain?", "Muon is better than AdamW, at no cost.", _muon, ("muon",)),
        Question("Real or synthetic pictures?", "Real pictures look more real and follow captions less.", _real, PICTURES),
    )
    made = list[ArticleAnswer]()
    for one in asked:
        word, text = one.answer(rows, studies)
        made.append(ArticleAnswer(one.question, one.claim, word, text + _again(one.roots, studies)))
    return made


def _again(roots: Sequence[str], studies: Studies) -> str:
    """What became of the same decisions elsewhere: ' Again on pocket: Muon +0.02 [+0.01, +0.03], better, 8 pairs.'"""
    lines = list[str]()
    for name, result in ((name, studies[name]) for name in AGAIN if name in studies):
        own = _all(all_decisions(name, result), roots)
        found = [f"{sentences.plain(one.arm)} {one.change}, {one.verdict}, {one.pairs} pairs" for one in own]
        metric = f"{sentences.lowered(result.primary.label)}, {sentences.direction(result.primary)}"
        lines += [f" Again on {result.plan.baseline} ({metric}): {'; '.join(found)}."] if found else []
    return "".join(lines)


def told(decision: Decision) -> str:
    """The finding as the report words it, and what it costs where that is known."""
    sentence = sentences.answer(decision.result, decision.arm).removesuffix(".")
    sentence = sentence.replace(decision.arm.label, decision.name, 1)
    dear = decision.time is not None and abs(decision.time - 1.0) > SAME_TIME
    cost = f"; {number.ratio(decision.time)} the time" if dear else ""
    bounds = "".join(f"; {bound}" for bound in decision.bounds)
    return f"{sentence}{cost}{bounds}."


def _settled(decision: Decision) -> bool:
    return decision.verdict in ("better", "worse", "tie")


def _all(rows: Sequence[Decision], roots: Sequence[str]) -> list[Decision]:
    return [decision for root in roots if (decision := named(rows, root)) is not None]


def _told(rows: Sequence[Decision]) -> str:
    return " ".join(map(told, rows))


def _sized(decision: Decision) -> str:
    return f"{decision.name} ({decision.change}, {decision.pairs} pairs)"


def _by_verdict(decision: Decision, *, better: str, worse: str, tie: str) -> str:
    return {"better": better, "worse": worse, "tie": tie}.get(decision.verdict, "Undecided")


def _captions(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = _all(rows, CAPTIONS)
    short = named(rows, "short_captions")
    if short is None:
        return NOT_RUN, "No study of short captions has been kept."
    text = _told(own)
    if short.verdict != "worse" or short.gain is None:
        return _by_verdict(short, better="No, opposite here", worse="", tie="No difference here"), text
    others = [one for one in rows if one not in own and one.decided and one.gain is not None]
    if not others:
        return "Undecided", f"{text} No other decision has a verdict to set beside it."
    next_one = max(others, key=lambda one: abs(one.gain or 0.0))
    text += f" The largest of the other {len(rows) - len(own)} decisions is {_sized(next_one)}."
    text += _captions_by_distance(rows)
    if abs(next_one.gain or 0.0) > abs(short.gain):
        return "No, not here", text
    apart = _nearest_to_zero(short) > _farthest_from_zero(next_one)
    return ("Yes, here" if apart else "It leads, but the intervals meet"), text


def _captions_by_distance(rows: Sequence[Decision]) -> str:
    """The score asks for what short captions never say, so their size is also told by a distance between pictures."""
    matched = named(rows, "short_captions(prompts=matched)")
    size = None if matched is None else matched.by(DISTANCE)
    if matched is None or size is None:
        return ""
    others = [(one, other) for one in rows if one.arm.root not in CAPTIONS and (other := one.by(DISTANCE)) is not None]
    _, largest = max(others, key=lambda pair: pair[1].mean or 0.0, default=(None, None))
    beside = next((f"; next comes {one.name} ({_changed(other)})" for one, other in others if other is largest), "")
    return (
        " Short captions say neither where things are, nor how large or how patterned, and the score asks for that: part "
        "of the harm is given. By Fréchet distance, asked by prompts of their own kind, they change it by "
        f"{_changed(size)}, {size.n} pairs, exploratory{beside}."
    )


def _changed(effect: Effect) -> str:
    return number.change(effect.mean, effect.low, effect.high)


def _nearest_to_zero(decision: Decision) -> float:
    return min((abs(end) for end in decision.gain_interval or (0.0,)), default=0.0)


def _farthest_from_zero(decision: Decision) -> float:
    return max(abs(end) for end in decision.gain_interval or (decision.gain or 0.0,))


def _tokenizer(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = _all(rows, TOKENIZERS)
    if not own:
        return NOT_RUN, "No study of another tokenizer has been kept."
    text = _told(own)
    helped = [one for one in own if one.verdict == "better"]
    if not helped:
        return (
            "Undecided" if not all(map(_settled, own)) else "No, not here"
        ), f"{text} None of them improved quality here for certain."
    best = max(helped, key=lambda one: one.gain or 0.0)
    rest = [one for one in rows if one not in own and one.verdict == "better"]
    if not rest:
        return "Yes, here", f"{text} Nothing else improved quality for certain."
    rival = max(rest, key=lambda one: one.gain or 0.0)
    text += f" The largest improvement that is none of the tokenizer's is {_sized(rival)}.{_nearest(rows)}"
    if (rival.gain or 0.0) > (best.gain or 0.0):
        mixed = any(one.verdict == "worse" for one in own)
        return (
            "Some help, some hurt, none is the largest gain" if mixed else "It helps, and is not the largest gain"
        ) + " here", text
    apart = _nearest_to_zero(best) > _farthest_from_zero(rival)
    return ("Yes, here" if apart else "It leads the gains, but the intervals meet"), text


def _nearest(rows: Sequence[Decision]) -> str:
    """Which decisions of the table's own study come nearest to real pictures: the articles speak of such distances."""
    most = max((one.result for one in rows), key=lambda result: sum(one.result is result for one in rows))
    known = [(one, size) for one in rows if one.result is most and (size := one.by(DISTANCE)) is not None]
    best = sorted(known, key=lambda pair: pair[1].mean or 0.0)[:2]
    if len(best) < 2 or (best[0][1].mean or 0.0) >= 0:
        return ""
    listed = sentences.listed([f"{one.name} ({_changed(size)})" for one, size in best])
    return f" By Fréchet distance, as the articles measure, the order is another: {listed} gain most (exploratory)."


def _alignment(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = _all(rows, ALIGNED)
    repa = named(rows, "repa")
    if repa is None:
        return NOT_RUN, "No study of REPA has been kept."
    word = _by_verdict(repa, better="Yes, here", worse="No, opposite here", tie="No difference that matters here")
    return word, _told(own)


def _burn_in(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    always = named(rows, "repa")
    ended = [one for one in rows if one.arm.root.startswith("repa(until=")]
    text = _told([one for one in (always, *ended) if one is not None])
    late = all_decisions("late", studies["late"]) if "late" in studies else []
    direct = [one for one in late if one.arm.root.startswith("repa(until=") and one.arm.against]
    if direct:  # held against alignment that stays on, by seeds: the answer; the rows above are each held against none
        verdicts = {one.verdict for one in direct}
        text = f"Held against REPA that stays on: {_told(direct)} Each against no alignment: {text}"
        if "better" in verdicts:
            return "Yes, here", text
        if "undecided" in verdicts:
            return "Undecided", text
        return ("No, not here" if "worse" in verdicts else "No difference that matters here"), text
    if always is None or not ended:
        return NOT_RUN, "No study of both has been kept."
    return "Undecided", f"{text} The study that holds one against the other was not run yet."


def _routing(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    few, result = _all(rows, ROUTES), studies.get("resolution")
    if result is None:
        if not few:
            return NOT_RUN, "No study of routing has been kept."
        word = "Half an answer" if any(map(_settled, few)) else "Undecided"
        return word, f"At few tokens: {_told(few)} The study at more tokens was not run yet."
    scales = [scale.name for scale in result.scales]
    own = [one for one in all_decisions("resolution", result) if one.arm.root in ROUTES]
    least = [one for one in own if one.arm.scale == scales[0]]
    most = [one for one in own if one.arm.scale == scales[-1]]
    bases = [arm for arm in result.arms if result.is_base(arm)]
    starts = [f"{number.plain(mean_sd(arm, result.primary.name)[0], 2)} at {arm.scale}" for arm in bases]
    text = f"The baselines have {sentences.listed(starts)}. " + " ".join(f"At {one.arm.scale}: {told(one)}" for one in own)
    text += _at_equal_cost(result, own)
    trends = [row for row in result.trends if row.arm in ROUTES and row.metric == result.primary.name and row.verdict]
    text += "".join(
        f" Over all scales the effect of {row.arm} {row.verdict} "
        f"({number.change(row.slope, row.low, row.high)} per {row.axis}, {row.n} pairs)."
        for row in trends
    )
    if not most or not all(map(_settled, most)):
        return "Undecided", text
    if any(one.verdict == "better" for one in most):
        return ("Yes, here" if not any(one.verdict == "better" for one in least) else "It pays at both ends here"), text
    cheap = [one for one in most if one.verdict == "tie" and (one.time or 1.0) < 1.0 - SAME_TIME]
    if cheap:
        return "It saves time at many tokens, and gains nothing", text
    if not trends or not all(row.verdict == "fades" for row in trends):
        return "No, not here", text
    before = {one.arm.root: one.gain or 0.0 for one in own if one.arm.scale == scales[-2]}
    if all((one.gain or 0.0) > before.get(one.arm.root, 0.0) for one in most):
        return "Not at equal images here, but its harm fades", text
    first, best, last = scales[0], scales[-2], scales[-1]
    text += f" Its harm is smaller at {best} than at {first}, and no smaller at {last} than at {best}."
    return f"Not at equal images here; its harm is least from {best} tokens on", text


def _at_equal_cost(result: StudyResult, own: Sequence[Decision]) -> str:
    """Where something else was held equal, beyond the fewest tokens; why to doubt it stands once, behind all."""
    lines, notes = list[str](), dict[str, None]()
    for one in (one for one in own if one.arm.scale != result.scales[0].name):
        for row in result.effects_of(one.arm):
            if row.metric == result.primary.name and row is not one.effect:
                equal = sentences.held_equal(row.unit)
                lines.append(f"{sentences.plain(one.arm)} at {one.arm.scale}, at {equal}: {_changed(row)}")
                notes |= {row.note: None} if row.note else {}
    why = "".join(f" ({note})" for note in notes)
    return f" Exploratory: {'; '.join(lines)}{why}." if lines else ""


def _precision(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    stored = named(rows, "bf16_storage")
    if stored is None:
        return NOT_RUN, "No study of BF16 storage has been kept."
    own = _all(rows, (*STORED, "stochastic_rounding"))
    own += [one for one in rows if one.arm.root.startswith("bf16_op(")]
    hurt = [one for one in own if one.verdict == "worse"]
    word = _by_verdict(stored, better="No, opposite here", worse="Yes, here", tie="No, less than would matter here")
    text = told(stored)
    if stored.verdict == "worse" and stored.is_slight:
        word = "A small one, if any, here"
        text += f" What is left when it is not picked out is less than the {stored.margin} that would matter."
    text += _of_distance(stored, "the distance between pictures hardly sees it")
    rest = [one for one in own if one is not stored]
    if rest:
        also = [_sized(one) for one in hurt if one is not stored]
        quiet = [one.name for one in rest if one.verdict == "tie"]
        unknown = [one.name for one in rest if one.verdict == "undecided"]
        text += f" Of {len(rest)} other roundings,"
        parts = [f"worse: {sentences.listed(also)}"] if also else []
        parts += [f"too small to matter: {sentences.listed(quiet)}"] if quiet else []
        parts += [f"undecided: {sentences.listed(unknown)}"] if unknown else []
        text += f" {'; '.join(parts) or 'none has an answer'}."
    return word, text


def _of_distance(decision: Decision, otherwise: str) -> str:
    """What a distance between pictures says of it; `otherwise` where its interval holds zero."""
    size = decision.by(DISTANCE)
    if size is None or size.low is None or size.high is None:
        return ""
    unsure = f": {otherwise}" if size.low <= 0.0 <= size.high else ""
    return f" Fréchet distance {_changed(size)}, exploratory{unsure}."


def _muon(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = [one for one in rows if one.arm.root == "muon"]
    if not own:
        return NOT_RUN, "No study of Muon has been kept."
    last = next((one for one in own if one.result.sweeps), own[0])  # a verdict on an optimizer is as fair as its rates
    rates = " ".join(
        f"{'Each at a rate of its own' if one.result.sweeps else 'At one learning rate'}: {told(one)}" for one in own
    )
    free = "Better, its time is not measured yet" if last.time is None else "Yes, here"
    return _by_verdict(
        last,
        better="Better, not free" if last.time is not None and last.time > 1.0 + SAME_TIME else free,
        worse="No, opposite here",
        tie="No difference that matters here",
    ), rates


def _real(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = _all(rows, PICTURES)
    real = named(rows, "real_data")
    if real is None:
        return NOT_RUN, "No study of real against synthetic pictures has been kept." + (f" {_told(own)}" if own else "")
    word = _by_verdict(real, better="Real ones, here", worse="Synthetic ones, here", tie="No difference that matters here")
    nearer = real.by(DISTANCE)
    if real.verdict == "worse" and nearer is not None and nearer.high is not None and nearer.high < 0.0:
        word = "As claimed, here"
    text = f"{told(real)}{_of_distance(real, 'no nearer to real pictures for certain')} The reference is of real pictures."
    return word, " ".join([text, *(told(one) for one in own if one is not real)])
