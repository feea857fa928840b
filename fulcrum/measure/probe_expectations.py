"""What each metric declares about each fault, written down before anyone looks; `probe.py` holds every one to it.

worse, better   the metric must move that way: its interval leaves that of pictures without the fault
stays           it must not move: the two intervals overlap
depends         it may do either, on other features or at another N; shown, never held against it

No torch in here: cards are read without it.
"""

from collections.abc import Mapping
from typing import Literal

Declared = Literal["worse", "better", "stays", "depends"]
Sees = Mapping[str, str]

PIXEL_FAULTS = ("negated", "wrong_range", "swapped_channels", "blurred", "jpeg")
PROBES: Mapping[str, str] = {
    "negated": "colours negated, as by a wrong type on the way to the metric (A1)",
    "wrong_range": "[0, 1] taken for [-1, 1]",
    "swapped_channels": "red and blue exchanged",
    "blurred": "details lost",
    "jpeg": "JPEG at quality 10",
    "halved": "half as many pictures, nothing else (A2)",
    "duplicated": "32 pictures, repeated: shared noises (A3)",
    "collapsed": "one picture in 8, repeated, with the mean where it was (A14)",
    "copy": "the reference itself: memorised, not generated",
}


def _sees(pixels: str = "worse", **others: str) -> dict[str, str]:
    return {**dict.fromkeys(PIXEL_FAULTS, pixels), **others}


# A share is taken over pictures one by one: it cannot know that some are alike, or how many there are. Of 32 repeated
# pictures it gives the share of those 32, with an interval as if they were all; so it may move by chance.
_BLIND = {"halved": "stays", "duplicated": "depends", "collapsed": "depends", "copy": "stays"}

SEES: Mapping[str, Sees] = {
    "frechet": _sees(halved="worse", duplicated="worse", collapsed="worse", copy="better"),  # halved: its bias in N
    "frechet_limit": _sees(halved="stays", duplicated="worse", collapsed="worse", copy="better"),
    "mmd": _sees(halved="stays", duplicated="worse", collapsed="worse", copy="better"),
    # A distance of means: random repeats move the mean, a collapse that leaves it where it was goes unseen. Its bias at
    # half of N is there, and smaller than its interval: both fall as 1/N.
    "mmd_published": _sees(halved="stays", duplicated="worse", collapsed="stays", copy="better"),
    "kid": _sees(halved="stays", duplicated="worse", collapsed="worse", copy="better"),
    # Asks only whether pictures lie where the reference does: what is bland or repeated lies there too.
    "density": {
        "negated": "depends",
        "wrong_range": "depends",
        "swapped_channels": "worse",
        "blurred": "worse",
        "jpeg": "depends",
        "halved": "stays",
        "duplicated": "depends",
        "collapsed": "depends",
        "copy": "depends",
    },
    # Independent pictures cover 1 - 2^-k = 97 % already: a copy can gain 3 % and no more. Negated colours are colours of
    # the world too: features that care for shapes may find such a picture's neighbours.
    "coverage": {**_sees(halved="worse", duplicated="worse", collapsed="worse", copy="depends"), "negated": "depends"},
    "attribute_f1": _sees(**_BLIND),
    "attribute_f1_second": _sees(**_BLIND),
    "attribute_accuracy": _sees(**_BLIND),
    "attribute_precision": _sees(**_BLIND),
    "colour_accuracy": _sees(**_BLIND),
    "shape_accuracy": {**_sees(**_BLIND), "swapped_channels": "stays"},
    "size_accuracy": {**_sees(**_BLIND), "swapped_channels": "stays"},
    "texture_accuracy": {**_sees(**_BLIND), "swapped_channels": "depends"},
    "presence_accuracy": {**_sees(**_BLIND), "negated": "stays", "swapped_channels": "stays"},
    "extra_objects": {**_sees("stays", **_BLIND), "negated": "depends", "jpeg": "depends"},
}
