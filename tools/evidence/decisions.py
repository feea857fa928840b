"""Every published claim beside what was seen of it, in four words: replicated, opposite here,
undecided, not comparable."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fulcrum.advice.decisions import Decision, Studies, all_decisions, best_first, in_table, ordered
from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge import sentences as claim_sentences
from fulcrum.judge.schema import ClaimResult
from fulcrum.judge.tables import Table

# --------------------------------------------------------------------------------------------------
# Every published claim beside what was seen of it, in four words: replicated, opposite here,
# undecided, not comparable.


WAITING = "no answer yet"
FARED = {
    "replicated": "replicated",
    "contradicted": "contradicted",
    "opposite here": "opposite here",
    "underpowered": "undecided",
    "out of scope": "not comparable",
    "not comparable": "not comparable",
    None: WAITING,
}
MIXED = "seen both ways"
SAME = "no difference here"
ORDER = (
    "replicated",
    "contradicted",
    "opposite here",
    SAME,
    "undecided",
    WAITING,
    "not comparable",
)
MEANS = {
    "replicated": "the same direction, over paired seeds",
    "contradicted": "another direction in the claim's own setting",
    "opposite here": (
        "the other direction in our small setting, which says nothing about the claim's own"
    ),
    SAME: (
        "too small a difference to matter in our small setting; a published size does not carry"
        " over"
    ),
    "undecided": "held against it, and our seeds cannot tell",
    WAITING: "the study is not finished",
    "not comparable": (
        "nothing here stands for the published comparison, or its direction is not expected to"
        " carry over"
    ),
}


class HeldClaim(NamedTuple):
    """A claim, and how it fared in one study."""

    decision: Decision
    claim: ClaimResult

    @property
    def word(self) -> str:
        if self.claim.why == claim_sentences.NO_DIFFERENCE:
            return SAME
        return FARED.get(self.claim.verdict, self.claim.verdict or WAITING)

    @property
    def published(self) -> tuple[str, float, str, str]:
        """What makes it one claim, wherever it is met."""
        return self.claim.metric, self.claim.change, self.claim.scope, self.claim.source

    @property
    def held(self) -> bool:
        return self.word != "not comparable"

    @property
    def reason(self) -> str:
        return self.claim.why or claim_sentences.MEANING.get(
            self.claim.verdict or "", "the study is not finished"
        )

    @property
    def where(self) -> str:
        return f"{self.claim.source}, {self.claim.scope}"

    @property
    def seen(self) -> str:
        """'Fréchet distance −1.9 [−2.5, −1.3], 8 pairs'"""
        result, name = self.decision.result, self.claim.seen
        row = result.effect(self.decision.arm.name, name) if name else None
        if row is None or row.mean is None:
            return number.NONE
        metric = result.metric(name)
        pairs = f"{row.n} pair{'' if row.n == 1 else 's'}"
        return f"{metric.label} {number.change(row.mean, row.low, row.high)}, {pairs}"


def fared(studies: Studies) -> list[HeldClaim]:
    """Every claim once for each study that holds something against it, whatever came out; a claim
    that nothing is held against stands once. Trainings that two studies share are counted once."""
    rows, seen = list[HeldClaim](), list[tuple[tuple[str, float, str, str], frozenset[str]]]()
    for name, result in ordered(studies).items():
        for decision in all_decisions(name, result):
            for claim in decision.arm.claims:
                row = HeldClaim(decision, claim)
                if not decision.is_among(keys for known, keys in seen if known == row.published):
                    seen.append((row.published, decision.keys))
                    rows.append(row)
    held = [row for row in rows if row.held]
    known, alone = {row.published for row in held}, dict[tuple[str, float, str, str], HeldClaim]()
    for row in rows:
        if row.published not in known:
            alone.setdefault(row.published, row)
    return sorted([*held, *alone.values()], key=lambda row: ORDER.index(row.word))


def counts(rows: Sequence[HeldClaim]) -> dict[str, int]:
    """Word -> how many published numbers, in their order. A number that several arms or studies are
    held against counts once, and is undecided only where all of them are."""
    words: dict[tuple[str, float, str, str], set[str]] = {}
    for row in rows:
        words.setdefault(row.published, set()).add(row.word)
    counted = Counter(_together(said) for said in words.values())
    return {word: counted[word] for word in (*ORDER[:4], MIXED, *ORDER[4:]) if counted[word]}


def _together(words: set[str]) -> str:
    decided = (
        words - {"undecided", WAITING, "not comparable"}
        or words - {WAITING, "not comparable"}
        or words
    )
    return next(iter(decided)) if len(decided) == 1 else MIXED


def summary(rows: Sequence[HeldClaim]) -> str:
    """'5 replicated, 2 opposite here, 3 undecided'"""
    return (
        sentences.listed([f"{many} {word}" for word, many in counts(rows).items()])
        if rows
        else "none"
    )


def usual_place(rows: Sequence[HeldClaim]) -> str:
    """Where most claims were made: it is said once, and the tables say what differs."""
    return Counter(row.where for row in rows).most_common(1)[0][0]


def _elsewhere(row: HeldClaim, usual: str) -> str:
    """What a claim's setting has beside the usual one, or all of it; empty: nothing."""
    return "" if row.where == usual else row.where.removeprefix(f"{usual}, ")


def _places(first: HeldClaim, more: Sequence[HeldClaim]) -> str:
    """'replication, spark; also in skeptic_seeds and replication_pocket'"""
    also = dict.fromkeys(row.decision.study for row in more)
    others = f"; also in {sentences.listed(list(also))}" if also else ""
    return f"{first.decision.study}, {first.decision.result.plan.baseline}{others}"


def claim_table(rows: Sequence[HeldClaim], word: str) -> Table:
    """A row for each published number and arm, with what the first study saw; further studies that
    say the same word are named behind it."""
    usual, (reason, times) = usual_place(rows), _usual_reason(rows, word)
    groups: dict[tuple[object, ...], list[HeldClaim]] = {}
    for row in rows:
        if row.word == word:
            groups.setdefault((row.published, row.decision.arm.root), []).append(row)
    body = tuple(
        (
            row.decision.name,
            claim_sentences.claimed(row.claim),
            _elsewhere(row, usual),
            row.seen,
            _places(row, more) if row.held else number.NONE,
            "; ".join(
                part
                for part in ("" if row.reason == reason else row.reason, row.claim.note)
                if part
            ),
        )
        for row, *more in groups.values()
    )
    columns = (
        "decision",
        "published",
        "there",
        "we saw",
        "in",
        "what else to know" if reason else "why",
    )
    many = "all" if times == len(groups) else f"{times}"
    why = f". Of {many} of these: {reason}" if reason else ""
    return Table(f"{word.capitalize()}: {MEANS[word]}{why}", columns, body, (0, 1, 2, 3, 4, 5))


def _usual_reason(rows: Sequence[HeldClaim], word: str) -> tuple[str, int]:
    """What is said of most claims with this word, and of how many: it is told once, above the
    table. Empty: nothing is."""
    own = {
        (row.published, row.decision.arm.root): row.reason
        for row in reversed(rows)
        if row.word == word
    }
    reason, times = Counter(own.values()).most_common(1)[0] if own else ("", 0)
    return (reason, times) if times > 2 and 2 * times > len(own) else ("", 0)


# --------------------------------------------------------------------------------------------------
# The decisions of all studies on one recipe: those to be ranked, and those that were held against
# something else.


def pooled(studies: Studies) -> list[Decision]:
    """The decisions of all studies that change one at a time on one recipe, best first, on one
    metric. Trainings that two studies share are counted once."""
    alike, seen = list[Decision](), list[frozenset[str]]()
    metric = next(
        (
            result.primary.name
            for name, result in ordered(studies).items()
            if in_table(name, result)
        ),
        "",
    )
    for name, result in ordered(studies).items():
        if in_table(name, result) and result.primary.name == metric:
            new = [one for one in all_decisions(name, result) if not one.is_among(seen)]
            seen += [one.keys for one in new]
            alike += new
    return best_first(alike)


def table(studies: Studies) -> list[Decision]:
    """The ranking: decisions that were held against the recipe as it is, each in one row. Of one
    that was tried at the recipe's learning rate and at rates that were searched, the first, as all
    others are."""
    return ranked(pooled(studies))


def ranked(decisions: Sequence[Decision]) -> list[Decision]:
    """Those of them that may be ranked."""
    rows = [one for one in decisions if not one.held_against]
    shared = {one.arm.root for one in rows if not one.result.sweeps}
    return [one for one in rows if not one.result.sweeps or one.arm.root not in shared]


def beside(studies: Studies) -> list[Decision]:
    """Decisions on the same recipe that were held against something else than it: beside the
    ranking, not in it."""
    return [one for one in pooled(studies) if one.held_against]


def searched(studies: Studies) -> list[Decision]:
    """Decisions of the ranking as they came out at learning rates that were searched for both
    sides."""
    roots = {one.arm.root for one in table(studies) if not one.result.sweeps}
    own = [
        (name, result)
        for name, result in ordered(studies).items()
        if in_table(name, result) and result.sweeps
    ]
    return [
        one for name, result in own for one in all_decisions(name, result) if one.arm.root in roots
    ]
