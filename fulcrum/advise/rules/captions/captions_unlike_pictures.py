"""Rule: captions that fit another picture as well as their own."""

from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings

if TYPE_CHECKING:
    from fulcrum.advise.subjects.pair_trial import PairTrial

SHARE = 0.1  # of pairs; wrong captions win every second time, so a tenth of them are twice as many wrong ones
SHOWN = 3


class CaptionsUnlikePictures(AuditRule):
    id = "captions-unlike-pictures"
    family = "captions"
    gain = 0.1
    effort = "edit"
    why = (
        "a caption that says what its picture does not show teaches the network to ignore words: some of these pictures "
        "have another's caption, or one that would fit many"
    )
    size = "no number published; the page of our lever has what we measured"
    lever = "caption_filter"
    fix = "drop the worst pairs (fulcrum data filter --score world --drop 0.1), or write captions anew (fulcrum caption)"

    def in_pairs(self, pairs: "PairTrial") -> Sightings:
        misfits = pairs.misfits
        if misfits and len(misfits) > SHARE * len(pairs.pairs):
            few = "; ".join(f"{one.name}: {one.caption[:60]!r}" for one in misfits[:SHOWN])
            yield Sighting(
                misfits[0].name,
                f"{len(misfits)} of {len(pairs.pairs)} captions fit another picture as well as their own (by "
                f"{pairs.scorer}): about {min(1.0, 2 * len(misfits) / len(pairs.pairs)):.0%} may be wrong; worst: {few}",
            )
