"""Rule: captions with control characters, markup or broken encoding."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import SHOWN, CaptionSet

BROKEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u202a-\u202e\ufeff\ufffd]|Ã[\x80-\xbf¤¶¼©¨]|</?[a-z]{1,8}>|&[a-z]{2,6};"
)


class CaptionsControlCharacters(AuditRule):
    id = "captions-control-characters"
    family = "captions"
    gain = 0.02
    effort = "edit"
    why = (
        "a tokenizer splits them into bytes that no prompt will ever hold; they are a sign of text that was decoded wrongly"
    )
    size = "no number published"
    fix = "decode as UTF-8 and strip markup before the import"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        bad = [
            one.name
            for one in captions.samples
            if any(BROKEN.search(text) for texts in one.captions.values() for text in texts)
        ]
        if bad:
            yield Sighting(
                bad[0],
                f"{len(bad):,} samples have captions with control characters, markup or broken letters: "
                f"{', '.join(map(repr, bad[:SHOWN]))}",
            )
