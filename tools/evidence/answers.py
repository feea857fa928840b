"""Does routing pay only at many tokens? From the study at several numbers of tokens, or half an
answer without it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fulcrum.advice.decisions import (
    AGAIN,
    SAME_TIME,
    TIMING_ERROR,
    Decision,
    Studies,
    all_decisions,
    named,
)
from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.schema import Effect, StudyResult
from tools.evidence.decisions import pooled, ranked
from tools.evidence.sections import starts, turned_back
from tools.evidence.words import (
    DISTANCE,
    NOT_RUN,
    all_told,
    by_distance,
    by_verdict,
    changed,
    settled,
    sized,
    those_of,
    told,
)

# --------------------------------------------------------------------------------------------------
# Does routing pay only at many tokens? From the study at several numbers of tokens, or half an
# answer without it.


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
    trends = [
        row
        for row in result.trends
        if row.arm in ROUTES and row.metric == result.primary.name and row.verdict
    ]
    text += "".join(
        f" Over all scales the effect of {row.arm} {row.verdict} "
        f"({number.change(row.slope, row.low, row.high)} per {row.axis}, {row.n} pairs)."
        for row in trends
    )
    if not most or not all(map(settled, most)):
        return "Undecided", text
    if any(one.verdict == "better" for one in most):
        return (
            "Yes, here"
            if not any(one.verdict == "better" for one in least)
            else "It pays at both ends here"
        ), text
    cheap = [one for one in most if one.verdict == "tie" and (one.time or 1.0) < 1.0 - SAME_TIME]
    if cheap:
        return "It saves time at many tokens, and gains nothing", text
    if not trends or not all(row.verdict == "fades" for row in trends):
        return "No, not here", text
    back = turned_back(result)
    if not back:
        return f"Not at equal images here{perhaps}, but its harm fades", text
    return (
        f"Not at equal images here{perhaps}; its harm is least from {scales[-2]} tokens on",
        f"{text} {' '.join(back)}",
    )


def _at_equal_time(result: StudyResult, own: Sequence[Decision]) -> list[tuple[Decision, Effect]]:
    """Beyond the fewest tokens; equal FLOPs stand in the study's own section."""
    rows = [
        (one, one.at_equal_time(result.primary.name))
        for one in own
        if one.arm.scale != result.scales[0].name
    ]
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
    found = "; ".join(
        f"{sentences.plain(one.arm)} at {one.arm.scale} {changed(row)}" for one, row in later
    )
    notes = dict.fromkeys(row.note for _, row in later if row.note)
    return f" At equal time, exploratory: {found}{''.join(f' ({note})' for note in notes)}."


# --------------------------------------------------------------------------------------------------
# What the articles say of the published study, each as a question with our answer: a word, and the
# findings behind it.


CAPTIONS = ("short_captions", "short_captions(prompts=matched)", "mixed_captions")
TOKENIZERS = ("wide_codec", "aligned_codec", "latent_alignment", "end_to_end_codec")
STORED = ("bf16_storage", "bf16_optimizer_state", "bf16_everything", "bf16_compute")
ALIGNED = ("repa", "repa(teacher=supervised)", "irepa")
PICTURES = ("real_data", "synthetic_then_real")
LOSS = "validation_loss"  # read along the way, so it is known at equal time too


class Question(NamedTuple):
    question: str
    claim: str  # what the articles say, in words
    #: a word or two, and the findings behind it
    answer: Callable[[Sequence[Decision], Studies], tuple[str, str]]
    roots: Sequence[str]  # arms that were asked again elsewhere


class ArticleAnswer(NamedTuple):
    question: str
    claim: str  # what the articles say, in words
    word: str  # the answer in a word or two
    text: str


def answers(studies: Studies) -> list[ArticleAnswer]:
    judged = [one for one in pooled(studies) if one.judged_alike or one.arm.root in CAPTIONS]
    rows = [one for one in judged if not one.circumstances]
    asked: tuple[Question, ...] = (
        Question(
            "Captions first?",
            "How long captions are is the largest lever of all.",
            _captions,
            CAPTIONS,
        ),
        Question(
            "The tokenizer second?",
            "After captions, the autoencoder is what matters most.",
            _tokenizer,
            TOKENIZERS,
        ),
        Question(
            "Does alignment pay?",
            "REPA improves quality; a stronger teacher improves it more.",
            _alignment,
            ALIGNED,
        ),
        Question(
            "Alignment as burn-in?",
            "REPA should be switched off when training has got going.",
            _burn_in,
            (),
        ),
        Question(
            "Routing only at many tokens?",
            "TREAD and SPRINT hurt at few tokens and pay at many.",
            routing,
            ROUTES,
        ),
        Question(
            "Precision, a silent tax?",
            "Weights that are stored in BF16 cost quality that nobody notices.",
            _precision,
            STORED,
        ),
        Question(
            "Is Muon a free gain?", "Muon is better than AdamW, at no cost.", _muon, ("muon",)
        ),
        Question(
            "Real or synthetic pictures?",
            "Real pictures look more real and follow captions less.",
            _real,
            PICTURES,
        ),
    )
    made = list[ArticleAnswer]()
    for one in asked:
        word, text = one.answer(rows, studies)
        made.append(ArticleAnswer(one.question, one.claim, word, text + _again(one.roots, studies)))
    return made


def _again(roots: Sequence[str], studies: Studies) -> str:
    """What became of the same decisions elsewhere: ' Again on pocket: Muon +0.02 [+0.01, +0.03],
    better, 8 pairs.'"""
    lines = list[str]()
    for name, result in ((name, studies[name]) for name in AGAIN if name in studies):
        own = those_of(all_decisions(name, result), roots)
        found = [
            f"{sentences.plain(one.arm)} {one.change}, {one.verdict}, {one.pairs} pairs"
            for one in own
        ]
        metric = f"{sentences.lowered(result.primary.label)}, {sentences.direction(result.primary)}"
        lines += (
            [f" Again on {result.plan.baseline} ({metric}): {'; '.join(found)}."] if found else []
        )
    return "".join(lines)


def _captions(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = those_of(rows, CAPTIONS)
    short = named(rows, "short_captions")
    if short is None:
        return NOT_RUN, "No study of short captions has been kept."
    text = all_told(own)
    if short.verdict != "worse" or short.gain is None:
        return (
            by_verdict(short, better="No, opposite here", worse="", tie="No difference here"),
            text,
        )
    rest = [one for one in ranked(rows) if one not in own]
    others = [one for one in rest if one.decided and one.gain is not None]
    if not others:
        return "Undecided", f"{text} No other decision has a verdict to set beside it."
    next_one = max(others, key=lambda one: abs(one.gain or 0.0))
    text += f" The largest of the other {len(rest)} decisions of the ranking is {sized(next_one)}."
    text += _captions_by_distance(rows)
    if abs(next_one.gain or 0.0) > abs(short.gain):
        return "No, not here", text
    apart = _nearest_to_zero(short) > _farthest_from_zero(next_one)
    return ("Yes, here" if apart else "It leads, but the intervals meet"), text


def _captions_by_distance(rows: Sequence[Decision]) -> str:
    """The score asks for what short captions never say, so their size is also told by a distance
    between pictures."""
    matched = named(rows, "short_captions(prompts=matched)")
    size = None if matched is None else matched.by(DISTANCE)
    if matched is None or size is None:
        return ""
    rest = [one for one in ranked(rows) if one.arm.root not in CAPTIONS]
    others = [(one, other) for one in rest if (other := one.by(DISTANCE)) is not None]
    _, largest = max(others, key=lambda pair: pair[1].mean or 0.0, default=(None, None))
    beside = next(
        (
            f"; next comes {one.name} ({changed(other)})"
            for one, other in others
            if other is largest
        ),
        "",
    )
    return (
        " Short captions say neither where things are, nor how large or how patterned, and the"
        " score asks for that: part of the harm is given. By Fréchet distance, asked by prompts of"
        f" their own kind, they change it by {changed(size)}, {size.n} pairs, exploratory{beside}."
    )


def _nearest_to_zero(decision: Decision) -> float:
    return min((abs(end) for end in decision.gain_interval or (0.0,)), default=0.0)


def _farthest_from_zero(decision: Decision) -> float:
    return max(abs(end) for end in decision.gain_interval or (decision.gain or 0.0,))


def _tokenizer(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = those_of(rows, TOKENIZERS)
    if not own:
        return NOT_RUN, "No study of another tokenizer has been kept."
    text = all_told(own)
    helped = [one for one in own if one.verdict == "better"]
    if not helped:
        return (
            "Undecided" if not all(map(settled, own)) else "No, not here"
        ), f"{text} None of them improved quality here for certain."
    best = max(helped, key=lambda one: one.gain or 0.0)
    rest = [one for one in ranked(rows) if one not in own and one.verdict == "better"]
    if not rest:
        return "Yes, here", f"{text} Nothing else improved quality for certain."
    rival = max(rest, key=lambda one: one.gain or 0.0)
    text += (
        " The largest improvement that is none of the tokenizer's is"
        f" {sized(rival)}.{_nearest(rows)}"
    )
    if (rival.gain or 0.0) > (best.gain or 0.0):
        mixed = any(one.verdict == "worse" for one in own)
        return (
            "Some help, some hurt, none is the largest gain"
            if mixed
            else "It helps, and is not the largest gain"
        ) + " here", text
    apart = _nearest_to_zero(best) > _farthest_from_zero(rival)
    return ("Yes, here" if apart else "It leads the gains, but the intervals meet"), text


def _nearest(rows: Sequence[Decision]) -> str:
    """Which decisions of the ranking come nearest to real pictures: the articles speak of such
    distances."""
    known = [(one, size) for one in ranked(rows) if (size := one.by(DISTANCE)) is not None]
    best = sorted(known, key=lambda pair: pair[1].mean or 0.0)[:2]
    if len(best) < 2 or (best[0][1].mean or 0.0) >= 0:
        return ""
    listed = sentences.listed([f"{one.name} ({changed(size)})" for one, size in best])
    return (
        f" By Fréchet distance, as the articles measure, the order is another: {listed} gain most"
        " (exploratory)."
    )


def _alignment(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = those_of(rows, ALIGNED)
    repa = named(rows, "repa")
    if repa is None:
        return NOT_RUN, "No study of REPA has been kept."
    word = by_verdict(
        repa,
        better="Yes, at equal images here",
        worse="No, opposite here",
        tie="No difference that matters here",
    )
    return (
        word,
        (
            f"{all_told(own)}{_loss_at_equal_time(own)} Teachers as strong as the articles' were"
            " not tried."
        ),
    )


def _burn_in(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    always = named(rows, "repa")
    ended = [one for one in rows if one.arm.root.startswith("repa(until=")]
    text = all_told(ended)
    late = all_decisions("late", studies["late"]) if "late" in studies else []
    direct = [one for one in late if one.arm.root.startswith("repa(until=") and one.arm.against]
    # held against alignment that stays on, by seeds: the answer; the rows above are each held
    # against none
    if direct:
        verdicts = {one.verdict for one in direct}
        text = f"Held against REPA that stays on: {all_told(direct)} Against no alignment: {text}"
        if "better" in verdicts:
            return "Yes, here", text
        if "undecided" in verdicts:
            return "Undecided", text
        return ("No, not here" if "worse" in verdicts else "No difference that matters here"), text
    if always is None or not ended:
        return NOT_RUN, "No study of both has been kept."
    return "Undecided", f"{text} The study that holds one against the other was not run yet."


def _precision(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    stored = named(rows, "bf16_storage")
    if stored is None:
        return NOT_RUN, "No study of BF16 storage has been kept."
    own = those_of(rows, (*STORED, "stochastic_rounding"))
    own += [one for one in rows if one.arm.root.startswith("bf16_op(")]
    hurt = [one for one in own if one.verdict == "worse"]
    word = by_verdict(
        stored, better="No, opposite here", worse="Yes, here", tie="No, less than would matter here"
    )
    text = told(stored)
    if stored.verdict == "worse" and stored.is_slight:
        word = "A small one, if any, here"
        text += (
            f" What is left when it is not picked out is less than the {stored.margin} that would"
            " matter."
        )
    text += by_distance(stored, "the distance between pictures hardly sees it")
    rest = [one for one in own if one is not stored]
    if rest:
        also = [sized(one) for one in hurt if one is not stored]
        quiet = [one.name for one in rest if one.verdict == "tie"]
        unknown = [one.name for one in rest if one.verdict == "undecided"]
        text += f" Of {len(rest)} other roundings,"
        parts = [f"worse: {sentences.listed(also)}"] if also else []
        parts += [f"too small to matter: {sentences.listed(quiet)}"] if quiet else []
        parts += [f"undecided: {sentences.listed(unknown)}"] if unknown else []
        text += f" {'; '.join(parts) or 'none has an answer'}."
    return word, text


def _muon(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = [one for one in rows if one.arm.root == "muon"]
    if not own:
        return NOT_RUN, "No study of Muon has been kept."
    # a verdict on an optimizer is as fair as its rates
    last = next((one for one in own if one.result.sweeps), own[0])
    rates = " ".join(
        f"{'Each at a rate of its own' if one.result.sweeps else 'At one learning rate'}:"
        f" {told(one)}"
        for one in own
    )
    better = "Better, its time is not measured yet" if last.time is None else "Yes, here"
    if last.time is not None and last.time > 1.0 + SAME_TIME:
        left = [_least_at_equal_time(one) for one in own]
        gone = all(loss is not None and loss >= 0.0 for loss in left)
        better = (
            "Better, not free: in the same time its loss is no lower"
            if gone
            else "Better, not free"
        )
    word = by_verdict(
        last, better=better, worse="No, opposite here", tie="No difference that matters here"
    )
    return word, f"{rates}{_loss_at_equal_time(own)}"


def _loss_at_equal_time(own: Sequence[Decision]) -> str:
    """What a slower decision is worth where both sides get the same time: by the loss, which is
    read along the way."""
    lines, notes = list[str](), dict[str, None]()
    for one in own:
        row, whole = one.at_equal_time(LOSS), one.by(LOSS)
        if row is not None and row.mean is not None:
            images = f" (at equal images {changed(whole)})" if whole is not None else ""
            lines.append(
                f"{one.name} {changed(row)}{images}, {row.n}"
                f" pairs{_if_time_is_off(one, row, whole)}"
            )
            notes |= {row.note: None} if row.note else {}
    if not lines:
        return ""
    why = "".join(f"; {note}" for note in notes)
    return (
        f" In the same time by {sentences.lowered(own[0].result.metric(LOSS).label)} (lower is"
        f" better, exploratory{why}): {'; '.join(lines)}. The slower side is the one that is read"
        " early, which counts against it. How well captions are followed was measured at the end"
        " only."
    )


def _least_at_equal_time(one: Decision) -> float | None:
    """The least change of the loss in the same time that its interval and the error of the step's
    time leave open."""
    row, whole = one.at_equal_time(LOSS), one.by(LOSS)
    if row is None or row.low is None:
        return None
    return row.low - (_moved(one, row, whole) or 0.0)


def _if_time_is_off(one: Decision, row: Effect, whole: Effect | None) -> str:
    moved = _moved(one, row, whole)
    if moved is None:
        return ""
    return (
        f", and a time that is {TIMING_ERROR:.0%} off would move it by about"
        f" {number.plain(moved, number.decimals(moved))}"
    )


def _moved(one: Decision, row: Effect, whole: Effect | None) -> float | None:
    """How far a number at equal time moves if the step's time was measured wrong, by a straight
    line between the two."""
    if one.time is None or whole is None or whole.mean is None or row.mean is None:
        return None
    return abs(row.mean - whole.mean) * TIMING_ERROR / abs(one.time - 1.0)


def _real(rows: Sequence[Decision], studies: Studies) -> tuple[str, str]:
    own = those_of(rows, PICTURES)
    real = named(rows, "real_data")
    if real is None:
        return NOT_RUN, "No study of real against synthetic pictures has been kept." + (
            f" {all_told(own)}" if own else ""
        )
    word = by_verdict(
        real,
        better="Real ones, here",
        worse="Synthetic ones, here",
        tie="No difference that matters here",
    )
    nearer = real.by(DISTANCE)
    if (
        real.verdict == "worse"
        and nearer is not None
        and nearer.high is not None
        and nearer.high < 0.0
    ):
        word = "As claimed, here, and slight" if real.is_slight else "As claimed, here"
    text = (
        f"{told(real)}{by_distance(real, 'no nearer to real pictures for certain')} The reference"
        " is of real pictures."
    )
    return word, " ".join([text, *(told(one) for one in own if one is not real)])
