"""Rule: captions that the text encoder cuts off."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import CaptionSet

PER_WORD = 1.3  # tokens of an English word, about, with CLIP's and T5's vocabularies
SHARE = 0.05


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
        if texts and long > SHARE * len(texts):
            yield Sighting(
                captions.path,
                f"{long / len(texts):.0%} of {len(texts):,} captions are longer than {captions.limit} tokens "
                f"(estimated at {PER_WORD} a word)",
            )


def tokens(text: str) -> float:
    """About as many as a subword vocabulary makes of it; scripts without spaces have about one a letter."""
    wide = sum(ord(letter) > 0x2E80 for letter in text)
    return PER_WORD * len(text.split()) + wide + 2
