"""Quality of captions: language, statistics, and the rules of a usable caption."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fulcrum.spec.errors import BadInput

# --------------------------------------------------------------------------------------------------
# Which language a caption is in, told by its script and its commonest words: a guess that would
# rather say nothing.
#
# No model: a caption has a dozen words, and what matters is that a German line among English ones
# is noticed.


# first word of a letter's Unicode name -> language; of scripts that several share, the commonest
SCRIPTS = {
    "CYRILLIC": "ru",
    "GREEK": "el",
    "ARABIC": "ar",
    "HEBREW": "he",
    "DEVANAGARI": "hi",
    "THAI": "th",
    "HANGUL": "ko",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "CJK": "zh",
}
COMMON = {
    "en": (
        "the a an of and in on at is are with to from this that there it its near behind above over"
        " by for as or not"
    ),
    "de": (
        "der die das ein eine einen einem einer und im mit auf ist sind von dem den des zu vor"
        " hinter über am unter"
    ),
    "fr": (
        "le la les un une des du et dans sur avec est sont au aux de en ce cette qui devant"
        " derrière"
    ),
    "es": "el la los las un una y en con es son del de al por se su hay sobre que",
    "it": "il lo la i gli le un una e con di del della su è sono nel nella dal sopra che",
    "pt": "o a os as um uma e em com é são do da no na dos das de sobre que",
    "nl": "de het een en van met op is zijn in aan voor onder boven naar die dat",
    "pl": "i w na z jest są do się nie przy pod nad obok który",
}
LEAST = 1.5  # weight of common words that make a language; a word shared by several counts a part
RUN = 8  # words that are looked at together when several languages are looked for
_WORD = re.compile(r"[^\W\d_]+")


def _weights() -> dict[str, dict[str, float]]:
    """Word -> language -> weight: what several languages have says less."""
    owners: dict[str, list[str]] = {}
    for language, words in COMMON.items():
        for word in words.split():
            owners.setdefault(word, []).append(language)
    return {
        word: {one: 1 / len(languages) for one in languages} for word, languages in owners.items()
    }


_WEIGHTS = _weights()


def language(text: str) -> str:
    """A code such as `en`, or nothing where the text does not tell."""
    return _of_words(_WORD.findall(text.lower()))


def languages(text: str) -> set[str]:
    """Every language that some stretch of a text is surely in."""
    words = _WORD.findall(text.lower())
    runs = [
        words[first : first + RUN] for first in range(0, max(1, len(words) - RUN // 2), RUN // 2)
    ]
    return {one for one in map(_of_words, runs) if one}


def _of_words(words: list[str]) -> str:
    script = _script(words)
    if script:
        return script
    totals: dict[str, float] = {}
    for word in set(words):  # once each: "as wide as tall" is not Portuguese
        for one, weight in _WEIGHTS.get(word, {}).items():
            totals[one] = totals.get(one, 0.0) + weight
    best = sorted(totals.items(), key=lambda item: -item[1])
    if not best or best[0][1] < LEAST or (len(best) > 1 and best[0][1] < 1.5 * best[1][1]):
        return ""
    return best[0][0]


def _script(words: list[str]) -> str:
    """The language of a script that is not Latin, where most letters are of it."""
    letters = "".join(words)
    if letters.isascii() or not letters:
        return ""
    counts: dict[str, int] = {}
    for sign in letters:
        owner = SCRIPTS.get(_named(sign), "latin")
        counts[owner] = counts.get(owner, 0) + 1
    if counts.get("ja") and counts.get("zh"):  # Japanese is written with both
        counts["ja"] += counts.pop("zh")
    best = max(counts, key=lambda one: counts[one])
    return best if best != "latin" else ""


@lru_cache(maxsize=4096)
def _named(sign: str) -> str:
    return unicodedata.name(sign, "").split(" ")[0].split("-")[0]


# --------------------------------------------------------------------------------------------------
# What a set of captions is like, in numbers: lengths, repeats, words, openings, languages; before
# and after a change.


OPENING = 3  # words that captions begin with
SHOWN = 3  # of the commonest openings and languages
LOOKED_AT = 20_000  # captions of which the language is guessed: the first so many
_COMPOUND_WORD = re.compile(r"\w+(?:['’-]\w+)*")


class CaptionCounter:
    """Takes captions one by one; holds counts and no texts but by their hash."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.seen: Counter[int] = Counter()
        self.words: Counter[str] = Counter()
        self.openings: Counter[str] = Counter()
        self.languages: Counter[str] = Counter()
        self.scores: list[float] = []

    def add(self, text: str, score: float | None = None) -> None:
        words = _COMPOUND_WORD.findall(text.lower())
        if len(self.lengths) < LOOKED_AT:
            self.languages[language(text) or "not told"] += 1
        self.lengths.append(len(words))
        self.seen[hash(text)] += 1
        self.words.update(words)
        self.openings[" ".join(words[:OPENING])] += 1
        if score is not None:
            self.scores.append(score)

    def numbers(self) -> dict[str, Any]:
        count = len(self.lengths)
        if not count:
            return {"captions": 0}
        opening, often = self.openings.most_common(1)[0]
        looked = self.languages.total()
        facts: dict[str, Any] = {
            "captions": count,
            "words_mean": round(float(np.mean(self.lengths)), 2),
            "words_5_50_95": [int(one) for one in np.percentile(self.lengths, [5, 50, 95])],
            "distinct_words": len(self.words),
            "repeated": round(1 - len(self.seen) / count, 4),
            "commonest_opening": [opening, round(often / count, 4)],
            "languages": {
                name: round(n / looked, 4) for name, n in self.languages.most_common(SHOWN)
            },
        }
        if self.scores:
            facts["score_mean"] = round(float(np.mean(self.scores)), 4)
            facts["score_5_50_95"] = [
                round(float(one), 4) for one in np.percentile(self.scores, [5, 50, 95])
            ]
        return facts


def statistics_lines(columns: dict[str, dict[str, Any]], new: Iterable[str] = ()) -> list[str]:
    """A table for people: a caption's name, then its numbers."""
    added, lines = (
        set(new),
        ["captions        pictures  words (5, 50, 95 %)      distinct words  repeated  score"],
    )
    for name, facts in columns.items():
        if not facts["captions"]:
            lines.append(f"{name[:15]:<15} none")
            continue
        spread = "{:.1f} ({}, {}, {})".format(facts["words_mean"], *facts["words_5_50_95"])
        score = f"{facts['score_mean']:6.2f}" if "score_mean" in facts else "     -"
        lines.append(
            f"{name[:15]:<15} {facts['captions']:>8,}  {spread:<24} {facts['distinct_words']:>14,} "
            f"{facts['repeated']:>9.1%} {score}" + ("  new" if name in added else "")
        )
    return lines


# --------------------------------------------------------------------------------------------------
# What a usable caption is: rules on a text alone, each with the reason that a ledger counts by.
#
# A reason reads `category: particulars`, as in an import's ledger.


# Words of a caption by style: least and most. Of tags, tags.
LENGTHS = {"long": (8, 220), "medium": (4, 80), "short": (2, 25), "tags": (1, 60)}
ANY_LENGTH = (1, 400)
MOST_REPEATED = 0.3  # share of a text's three-word runs that came before in it
MOST_IN_A_ROW = 3  # times that one word may follow itself
REFUSALS = (
    r"i(?:'|’)?m sorry",
    r"i am sorry",
    r"i (?:can(?:'|’)?t|cannot|can not) (?:help|see|view|describe|provide|assist|identify|process)",
    r"i(?:'|’)?m (?:not able|unable) to",
    r"i am (?:not able|unable) to",
    r"unable to (?:view|see|process|describe|display)",
    r"as an? (?:ai|artificial intelligence|language model)",
    r"as a (?:large )?language model",
    r"no image (?:was |is |has been )?(?:provided|attached|visible|given)",
    r"please (?:provide|upload|share) (?:an?|the|your) (?:image|picture|photo)",
)
_REFUSAL = re.compile(r"\b(?:" + "|".join(REFUSALS) + r")", re.IGNORECASE)


@dataclass(frozen=True)
class CaptionRules:
    """Which texts pass. None of a bound: the one of the style."""

    least_words: int | None = None
    most_words: int | None = None
    most_repeated: float = MOST_REPEATED
    language: str = ""  # a code such as en; empty: any
    refusals: bool = True  # a captioner that refused, or spoke of itself

    def __post_init__(self) -> None:
        least, most = self.least_words or 0, self.most_words
        if least < 0 or (most is not None and most < max(least, 1)):
            raise BadInput(
                f"captions of {least} to {most} words: that lets none through",
                "give a least below the most",
            )
        if not 0 <= self.most_repeated <= 1:
            raise BadInput(
                f"the share of repeated words is between 0 and 1, found {self.most_repeated}"
            )

    def fault(self, text: str, style: str = "") -> str:
        """Why a caption does not pass; empty if it does."""
        if not _COMPOUND_WORD.search(text):
            return "empty"
        if control := next(
            (sign for sign in text if unicodedata.category(sign) in ("Cc", "Cs", "Co", "Cn")), None
        ):
            return f"control characters: U+{ord(control):04X}"
        if self.refusals and (said := _REFUSAL.search(text)):
            return f"refusal: {said.group(0)!r}"
        return self._length(text, style) or self._repetition(text, style) or self._language(text)

    def _length(self, text: str, style: str) -> str:
        count = (
            len([tag for tag in text.split(",") if tag.strip()])
            if style == "tags"
            else len(_COMPOUND_WORD.findall(text))
        )
        least, most = LENGTHS.get(style, ANY_LENGTH)
        least, most = self.least_words or least, self.most_words or most
        what = "tags" if style == "tags" else "words"
        if count < least:
            return f"too short: {count} {what}, at least {least}"
        return f"too long: {count} {what}, at most {most}" if count > most else ""

    def _repetition(self, text: str, style: str) -> str:
        if style == "tags":
            tags = [tag.strip().lower() for tag in text.split(",") if tag.strip()]
            share = 1 - len(set(tags)) / len(tags)
        else:
            words = [word.lower() for word in _COMPOUND_WORD.findall(text)]
            for first in range(len(words) - MOST_IN_A_ROW):
                if len(set(words[first : first + MOST_IN_A_ROW + 1])) == 1:
                    return f"repetition: {words[first]!r} more than {MOST_IN_A_ROW} times in a row"
            runs = Counter(zip(words, words[1:], words[2:], strict=False))
            # two words have no run that could come again
            share = 1 - len(runs) / runs.total() if runs else 0.0
        return (
            f"repetition: {share:.0%} of it came before in it" if share > self.most_repeated else ""
        )

    def _language(self, text: str) -> str:
        guess = language(text) if self.language else ""
        return (
            f"language: {guess}, wanted {self.language}" if guess and guess != self.language else ""
        )


def cleaned(text: str) -> str:
    """An answer as a caption: white space made plain, quotes around the whole taken off. Control
    characters stay: a rule names them."""
    text = " ".join(text.split(" ")).strip()
    text = re.sub(r"[ \t\r\n]+", " ", text)
    pairs = {'"': '"', "“": "”", "'": "'"}
    if len(text) > 1 and pairs.get(text[0]) == text[-1] and text.count(text[0]) <= 2:
        text = text[1:-1].strip()
    return text
