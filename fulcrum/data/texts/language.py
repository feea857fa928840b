"""Which language a caption is in, told by its script and its commonest words: a guess that would rather say nothing.

No model: a caption has a dozen words, and what matters is that a German line among English ones is noticed.
"""

import re
import unicodedata
from functools import lru_cache

SCRIPTS = {  # first word of a letter's Unicode name -> language; of scripts that several share, the commonest
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
    "en": "the a an of and in on at is are with to from this that there it its near behind above over by for as or not",
    "de": "der die das ein eine einen einem einer und im mit auf ist sind von dem den des zu vor hinter über am unter",
    "fr": "le la les un une des du et dans sur avec est sont au aux de en ce cette qui devant derrière",
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
    return {word: {one: 1 / len(languages) for one in languages} for word, languages in owners.items()}


_WEIGHTS = _weights()


def language(text: str) -> str:
    """A code such as `en`, or nothing where the text does not tell."""
    return _of_words(_WORD.findall(text.lower()))


def languages(text: str) -> set[str]:
    """Every language that some stretch of a text is surely in."""
    words = _WORD.findall(text.lower())
    runs = [words[first : first + RUN] for first in range(0, max(1, len(words) - RUN // 2), RUN // 2)]
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
