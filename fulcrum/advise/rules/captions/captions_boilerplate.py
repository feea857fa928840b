"""Rule: captions that begin with the same empty words."""

from collections import Counter

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import CaptionSet

SHARE, WORDS = 0.3, 3
EMPTY = (
    "image",
    "picture",
    "photo",
    "photograph",
    "shows",
    "depicts",
    "features",
    "captures",
    "sorry",
    "cannot",
    "unable",
    "illustration",
)


class CaptionsBoilerplate(AuditRule):
    id = "captions-boilerplate"
    family = "captions"
    severity = "note"
    gain = 0.05
    effort = "edit"
    why = "'The image shows' is no part of a prompt: it takes tokens, and prompts without it are unlike what was trained on"
    size = "no number published"
    fix = "strip it when captions are written, or ask the captioner to begin with the subject"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        texts = captions.texts()
        openings = Counter(" ".join(text.lower().split()[:WORDS]) for text in texts)
        common = [
            (opening, times) for opening, times in openings.most_common(5) if any(word in opening.split() for word in EMPTY)
        ]
        times = sum(times for _, times in common)
        if len(texts) >= 20 and times > SHARE * len(texts):
            yield Sighting(
                captions.path,
                f"{times / len(texts):.0%} of the captions begin with "
                f"{', '.join(repr(opening) for opening, _ in common[:3])}",
            )
