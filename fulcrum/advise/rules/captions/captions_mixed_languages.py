"""Rule: captions of several languages in one data set, or in one file."""

from collections import Counter

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import CaptionSet, data_command

FOREIGN_SHARE = 0.05
ENGLISH = ("--language", "en", "--held-out")  # else held-out pictures stay, whatever their prompts are
COMMON = {
    "English": {"the", "a", "of", "with", "and", "in", "on", "is"},
    "German": {"der", "die", "das", "ein", "eine", "mit", "und", "auf", "einem", "einer"},
    "French": {"le", "la", "les", "un", "une", "avec", "et", "sur", "dans", "des"},
    "Spanish": {"el", "los", "las", "una", "con", "y", "sobre", "del", "en"},
}
SCRIPTS = {
    "Chinese or Japanese": (0x3040, 0x9FFF),
    "Cyrillic": (0x0400, 0x04FF),
    "Arabic": (0x0600, 0x06FF),
    "Korean": (0xAC00, 0xD7AF),
}


class CaptionsMixedLanguages(AuditRule):
    id = "captions-mixed-languages"
    family = "captions"
    gain = 0.1
    effort = "edit"
    why = (
        "most text encoders know one language well: the others' captions are noise, and a file with several is read "
        "as one long prompt"
    )
    size = "no number published"
    fix = "keep one language, or give each its own caption column: fulcrum data import --caption long=caption_en"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        languages = [language(text) for text in captions.texts()]
        counts = Counter(one for one in languages if one)
        if not counts:
            return
        (first, most), *others = counts.most_common()
        rest = sum(times for _, times in others)
        if rest > FOREIGN_SHARE * (most + rest):
            yield Sighting(
                captions.path,
                f"{rest / (most + rest):.0%} of the captions are not {first} but "
                f"{', '.join(name for name, _ in others[:3])}",
                f"keep one language: {data_command('filter', captions.path, 'en', *ENGLISH)}"
                if captions.stored
                else f"import them ({captions.import_command()}), then keep one language: "
                + data_command("filter", f"{captions.path.rstrip('/')}_store", "en", *ENGLISH),
            )


def language(text: str) -> str:
    """A guess from the letters, then from the commonest short words; empty where neither tells."""
    letters = [ord(letter) for letter in text if letter.isalpha()]
    for name, (low, high) in SCRIPTS.items():
        if letters and sum(low <= letter <= high for letter in letters) > 0.3 * len(letters):
            return name
    words = set(text.lower().replace(",", " ").replace(".", " ").split())
    scores = {name: len(words & common) for name, common in COMMON.items()}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] >= 2 and list(scores.values()).count(scores[best]) == 1 else ""
