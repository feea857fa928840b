"""What a set of captions is like, in numbers: lengths, repeats, words, openings, languages; before and after a change."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from fulcrum.data.texts.language import language

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
            "languages": {name: round(n / looked, 4) for name, n in self.languages.most_common(SHOWN)},
        }
        if self.scores:
            facts["score_mean"] = round(float(np.mean(self.scores)), 4)
            facts["score_5_50_95"] = [round(float(one), 4) for one in np.percentile(self.scores, [5, 50, 95])]
        return facts


def statistics_lines(columns: dict[str, dict[str, Any]], new: Iterable[str] = ()) -> list[str]:
    """A table for people: a caption's name, then its numbers."""
    added, lines = set(new), ["captions        pictures  words (5, 50, 95 %)      distinct words  repeated  score"]
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
