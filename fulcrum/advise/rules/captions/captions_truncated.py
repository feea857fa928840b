"""Rule: captions that the text encoder cuts off."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import CaptionSet
from fulcrum.advise.subjects.config_file import ConfigFile, Entry
from fulcrum.advise.subjects.text_limits import limits_in_config

PER_WORD = 1.3  # tokens of an English word, about, with CLIP's and T5's vocabularies
TRUNCATED_SHARE = 0.05
# Statistics of captions that somebody wrote down: p50 to p95, median, mean. A maximum or p99 above the limit is no fault.
SUMMARY_NAME = re.compile(r"(^|[._])(p_?(5|6|7|8|9)[05]|q_?(5|6|7|8|9)[05]|median|mean|avg|average)($|[._])")


class CaptionsTruncated(AuditRule):
    id = "captions-truncated"
    family = "captions"
    gain = 0.1
    effort = "edit"
    why = (
        "what stands behind the text encoder's last token is never read: long captions cost their writing and teach nothing"
    )
    size = "the share of captions that lose their end is told with the fault"
    source = "CLIP reads 77 tokens"
    fix = (
        "use an encoder that reads more (T5: 512), or shorter captions with what matters first; say what yours reads:"
        " --tokens 256"
    )

    def in_captions(self, captions: CaptionSet) -> Sightings:
        texts = captions.texts()
        long = sum(tokens(text) > captions.limit for text in texts)
        if texts and long > TRUNCATED_SHARE * len(texts):
            yield Sighting(
                captions.path,
                f"{long / len(texts):.0%} of {len(texts):,} captions are longer than {captions.limit} tokens "
                f"(estimated at {PER_WORD} a word)",
            )

    def in_config(self, config: ConfigFile) -> Sightings:
        """Lengths that the configuration itself records, beside the limit that it sets."""
        limits = [limit for limit in limits_in_config(config) if not limit.judged]
        recorded = [(entry, length) for entry in config.entries if (length := _recorded(entry)) is not None]
        limit = max(limits, key=lambda one: one.tokens, default=None)  # of several encoders the one that reads most
        over = [(entry, length) for entry, length in recorded if limit is not None and length > limit.tokens]
        if limit is not None and over:
            entry = over[0][0]
            yield Sighting(
                limit.place,
                f"{limit.seen}, and captions are recorded as longer: {entry.path} = {entry.value} (line {entry.line})",
            )


def _recorded(entry: Entry) -> float | None:
    """A usual length of captions in tokens, where this is one."""
    if entry.number is None or not re.search(r"caption|text|prompt", entry.path) or not SUMMARY_NAME.search(entry.path):
        return None
    words = "word" in entry.path
    return entry.number * PER_WORD if words else entry.number if "token" in entry.path else None


def tokens(text: str) -> float:
    """About as many as a subword vocabulary makes of it; scripts without spaces have about one a letter."""
    wide = sum(ord(letter) > 0x2E80 for letter in text)
    return PER_WORD * len(text.split()) + wide + 2
