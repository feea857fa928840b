"""What a usable caption is: rules on a text alone, each with the reason that a ledger counts by.

A reason reads `category: particulars`, as in an import's ledger.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from fulcrum.data.texts.language import language
from fulcrum.spec.errors import BadInput

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
_COMPOUND_WORD = re.compile(r"\w+(?:['’-]\w+)*")


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
            raise BadInput(f"captions of {least} to {most} words: that lets none through", "give a least below the most")
        if not 0 <= self.most_repeated <= 1:
            raise BadInput(f"the share of repeated words is between 0 and 1, found {self.most_repeated}")

    def fault(self, text: str, style: str = "") -> str:
        """Why a caption does not pass; empty if it does."""
        if not _COMPOUND_WORD.search(text):
            return "empty"
        if control := next((sign for sign in text if unicodedata.category(sign) in ("Cc", "Cs", "Co", "Cn")), None):
            return f"control characters: U+{ord(control):04X}"
        if self.refusals and (said := _REFUSAL.search(text)):
            return f"refusal: {said.group(0)!r}"
        return self._length(text, style) or self._repetition(text, style) or self._language(text)

    def _length(self, text: str, style: str) -> str:
        count = (
            len([tag for tag in text.split(",") if tag.strip()]) if style == "tags" else len(_COMPOUND_WORD.findall(text))
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
            share = 1 - len(runs) / runs.total() if runs else 0.0  # two words have no run that could come again
        return f"repetition: {share:.0%} of it came before in it" if share > self.most_repeated else ""

    def _language(self, text: str) -> str:
        guess = language(text) if self.language else ""
        return f"language: {guess}, wanted {self.language}" if guess and guess != self.language else ""


def cleaned(text: str) -> str:
    """An answer as a caption: white space made plain, quotes around the whole taken off. Control characters stay: a rule
    names them."""
    text = " ".join(text.split(" ")).strip()
    text = re.sub(r"[ \t\r\n]+", " ", text)
    pairs = {'"': '"', "“": "”", "'": "'"}
    if len(text) > 1 and pairs.get(text[0]) == text[-1] and text.count(text[0]) <= 2:
        text = text[1:-1].strip()
    return text
