"""Rule: captions that fit another picture as well as their own."""

from math import sqrt
from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import data_command

if TYPE_CHECKING:
    from fulcrum.advise.subjects.pair_trial import PairTrial

UNLIKE_SHARE = 0.1  # of pairs; wrong captions win every second time, so a tenth of them are twice as many wrong ones
DEVIATIONS = 1.64  # below a half, that chance leaves one time in twenty
MAX_PAIRS_SHOWN = 3


class CaptionsUnlikePictures(AuditRule):
    id = "captions-unlike-pictures"
    family = "captions"
    also = "note where the scorer tells no better than chance"
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
        misfits, count = pairs.misfits, len(pairs.pairs)
        if not misfits or len(misfits) <= UNLIKE_SHARE * count:
            return
        seen = f"by {pairs.scorer} {len(misfits)} of {count} captions fit another picture as well as their own"
        if pairs.warning or len(misfits) > count / 2 - DEVIATIONS * sqrt(count) / 2:
            yield Sighting(
                misfits[0].name,
                f"{seen}, as chance would have it: the scorer does not know such pictures, or almost no caption is right",
                "look at some pairs yourself, or ask a scorer that knows such pictures: --score clip=FOLDER",
                "note",
            )
            return
        few = "; ".join(f"{one.name}: {one.caption[:60]!r}" for one in misfits[:MAX_PAIRS_SHOWN])
        scored = ("--score", pairs.scorer, "--drop", "0.1")
        yield Sighting(
            misfits[0].name,
            f"{seen}. A wrong one does so every second time: about {2 * len(misfits) / count:.0%} may be wrong: {few}",
            f"drop the worst pairs: {data_command('filter', pairs.data, 'fitting', *scored)}"
            if pairs.stored
            else f"import them ({data_command('import', pairs.data, 'store')}), then drop the worst pairs: "
            + data_command("filter", f"{pairs.data.rstrip('/')}_store", "fitting", *scored),
        )
