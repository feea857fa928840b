"""Rule: many pictures share one caption."""

from collections import Counter

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import CaptionSet, data_command

DUPLICATED_SHARE = 0.2


class CaptionsDuplicated(AuditRule):
    id = "captions-duplicated"
    family = "captions"
    gain = 0.2
    effort = "rework"
    why = "a caption that many pictures share tells the network nothing that sets them apart"
    size = "as short captions in the worst case: a caption for all is a class label"
    source = "see captions-short"
    fix = "recaption these pictures, or take out repeated pictures: fulcrum data import --once"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        first = [next(iter(one.captions.values()))[0] for one in captions.samples if one.captions]
        counts = Counter(first)
        shared = sum(times for times in counts.values() if times > 1)
        if len(first) >= 20 and shared > DUPLICATED_SHARE * len(first):
            text, times = counts.most_common(1)[0]
            yield Sighting(
                captions.path,
                f"{shared / len(first):.0%} of the pictures share their caption with another; {times:,} have {text[:60]!r}",
                "recaption these pictures, or take out repeated ones: "
                + (
                    data_command("filter", captions.path, "once", "--duplicates", "0")
                    if captions.stored
                    else captions.import_command("--once")
                ),
            )
