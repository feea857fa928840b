"""What a number is: metric, card, interval, and the rule that refuses to compare unlike numbers."""

import math
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from pydantic import model_validator

from fulcrum.spec.record import Frozen

# --------------------------------------------------------------------------------------------------
# What each metric declares about each fault, written down before anyone looks; `probe.py` holds
# every one to it.
#
# worse, better   the metric must move that way: its interval leaves that of pictures without the
#                 fault
# stays           it must not move: the two intervals overlap
# depends         it may do either, on other features or at another N; shown, never held against it
#
# No torch in here: cards are read without it.


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


# A share is taken over pictures one by one: it cannot know that some are alike, or how many there
# are. Of 32 repeated pictures it gives the share of those 32, with an interval as if they were all;
# so it may move by chance.
_BLIND = {"halved": "stays", "duplicated": "depends", "collapsed": "depends", "copy": "stays"}

SEES: Mapping[str, Sees] = {
    # halved: its bias in N
    "frechet": _sees(halved="worse", duplicated="worse", collapsed="worse", copy="better"),
    "frechet_limit": _sees(halved="stays", duplicated="worse", collapsed="worse", copy="better"),
    "mmd": _sees(halved="stays", duplicated="worse", collapsed="worse", copy="better"),
    # A distance of means: random repeats move the mean, a collapse that leaves it where it was goes
    # unseen. Its bias at half of N is there, and smaller than its interval: both fall as 1/N.
    "mmd_published": _sees(halved="stays", duplicated="worse", collapsed="stays", copy="better"),
    "kid": _sees(halved="stays", duplicated="worse", collapsed="worse", copy="better"),
    # Asks only whether pictures lie where the reference does: what is bland or repeated lies there
    # too.
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
    # Independent pictures cover 1 - 2^-k = 97 % already: a copy can gain 3 % and no more. Negated
    # colours are colours of the world too: features that care for shapes may find such a picture's
    # neighbours.
    "coverage": {
        **_sees(halved="worse", duplicated="worse", collapsed="worse", copy="depends"),
        "negated": "depends",
    },
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


# --------------------------------------------------------------------------------------------------
# What a number is: its metric, its card, its interval, and the rule that refuses to compare unlike
# numbers.
#
# No torch in here: the study and the report read cards too.


Better = Literal["lower", "higher"]

# raise it when the computation of any metric changes: old and new numbers then refuse to mix
MEASURE_VERSION = "1"


class Metric(NamedTuple):
    """A metric's name and how to read it."""

    name: str
    label: str
    unit: str
    better: Better
    explain: str
    sees: Sees = {}  # what it declares about each fault of the probe


METRICS: dict[str, Metric] = {
    metric.name: metric._replace(sees=SEES.get(metric.name, {}))
    for metric in (
        Metric(
            "frechet",
            "Fréchet distance",
            "",
            "lower",
            "Distance of two Gaussians fitted to the features of generated and reference "
            "pictures. Biased in N. Its "
            "interval is too narrow where features have heavy tails; the card says when.",
        ),
        Metric(
            "frechet_limit",
            "Fréchet distance, N → ∞",
            "",
            "lower",
            "The Fréchet distance extrapolated to infinitely many pictures, against the same "
            "reference. Free of "
            "the bias in N from about four pictures for each feature on; with fewer it lies too "
            "low: see the card.",
        ),
        Metric(
            "mmd",
            "MMD² (unbiased)",
            "",
            "lower",
            "Kernel distance of the feature distributions, median bandwidth, unbiased: it may "
            "fall below zero.",
        ),
        Metric(
            "mmd_published",
            "MMD² (published form)",
            "x1000",
            "lower",
            "The published form: sigma 10 on unit-norm features, x1000. In effect a distance of "
            "means: it hardly "
            "sees lost diversity. Shown for comparison only.",
        ),
        Metric(
            "attribute_f1",
            "Attribute F-score",
            "share",
            "higher",
            "Shapes, colours, textures and sizes drawn at the right place, against those asked "
            "for and those drawn: a "
            "missed object and one too many count alike. Harmonic mean of recall and "
            "precision.",
        ),
        Metric(
            "attribute_f1_second",
            "Attribute F-score, second judge",
            "share",
            "higher",
            "The same score by a second judge with another architecture and other training "
            "pictures. Both learned from "
            "labels of the same world: what they agree on may still be what only such networks "
            "see.",
        ),
        Metric(
            "attribute_accuracy",
            "Attribute recall",
            "share",
            "higher",
            "Of all shapes, colours, textures and sizes asked for, the share drawn at the right "
            "place. Blind to objects "
            "that nobody asked for: noise scores above zero.",
        ),
        Metric(
            "attribute_precision",
            "Attribute precision",
            "share",
            "higher",
            "Of all shapes, colours, textures and sizes that the judge sees, the share that was "
            "asked for there. Blind "
            "to objects that are missing.",
        ),
        Metric(
            "shape_accuracy",
            "Shape accuracy",
            "share",
            "higher",
            "Objects drawn at their place with their shape.",
        ),
        Metric(
            "colour_accuracy",
            "Colour accuracy",
            "share",
            "higher",
            "Objects drawn at their place with their colour.",
        ),
        Metric(
            "texture_accuracy",
            "Texture accuracy",
            "share",
            "higher",
            "Objects drawn at their place with their texture.",
        ),
        Metric(
            "size_accuracy",
            "Size accuracy",
            "share",
            "higher",
            "Objects drawn at their place with their size.",
        ),
        Metric(
            "presence_accuracy",
            "Objects found",
            "share",
            "higher",
            "Objects asked for that stand at their place.",
        ),
        Metric(
            "extra_objects",
            "Extra objects",
            "share",
            "lower",
            "Places that should be empty and hold an object.",
        ),
        Metric(
            "validation_loss",
            "Validation loss",
            "",
            "lower",
            "Loss on held-out pictures at fixed times and noises. Comparable only inside one "
            "latent space and one "
            "objective.",
        ),
        Metric("images_per_second", "Images per second", "1/s", "higher", "Training speed."),
        Metric(
            "lite0.kid",
            "KID (EfficientNet-Lite0)",
            "",
            "lower",
            "Kernel distance of ImageNet features of generated and reference pictures, "
            "unbiased: it may be below zero.",
        ),
        Metric(
            "lite0.mmd",
            "MMD² (EfficientNet-Lite0)",
            "",
            "lower",
            "Kernel distance of ImageNet features, median bandwidth, unbiased: it may fall "
            "below zero.",
        ),
        Metric(
            "lite0.name_rank",
            "Rank of the name",
            "share",
            "higher",
            "Share of other held-out names that fit a picture worse than its own, by a linear "
            "map from ImageNet "
            "features to a sentence encoder. Chance is 0.5; the card says what real pictures "
            "reach.",
        ),
        Metric(
            "lite0.name_recall",
            "Name found",
            "share",
            "higher",
            "Pictures whose own name fits best among the held-out ones, by the same map. The "
            "card says what real "
            "pictures reach.",
        ),
        Metric(
            "vgg.kid",
            "KID (VGG)",
            "",
            "lower",
            "Kernel distance of five layers of LPIPS's VGG: sensitive to blur, noise and other "
            "low faults.",
        ),
        Metric(
            "vgg.lpips",
            "LPIPS to the real picture",
            "",
            "lower",
            "Perceptual distance to the reference picture that has the same caption. A caption "
            "allows many pictures: "
            "zero is not the aim.",
        ),
    )
}

# What real networks of installed packages measure, for plans that name them as judges.
JUDGED: dict[str, tuple[str, ...]] = {
    judge: tuple(name for name in METRICS if name.startswith(f"{judge}."))
    for judge in ("lite0", "vgg")
}


class Sampling(Frozen):
    """How the pictures were drawn. None where a field has no meaning (reference pictures, a folder
    of files)."""

    sampler: str | None = None
    steps: int | None = None
    #: the scale of classifier-free guidance, or another guide in words
    guidance: float | str | None = None
    prompts: str | None = None  # hash of the prompts, in order
    noise: str | None = None  # the policy in words, e.g. "keyed by image index"


class MetricCard(Frozen):
    """The facts that travel with a number. Two numbers are comparable when their cards are
    equal."""

    metric: str
    better: Better
    estimator: str  # what is computed, in words
    interval: str  # what the interval covers, in words
    #: hash of the network that looked at the pictures (or of the codec: validation loss)
    extractor: str | None = None
    resize: str | None = None
    value_range: str | None = None  # how the pictures entered: "uint8", "float [-1, 1]"
    n: int
    reference: str | None = None  # key of the reference set
    sampler: str | None = None
    steps: int | None = None
    guidance: float | str | None = None
    prompts: str | None = None
    noise: str | None = None
    #: what pictures get that show nothing: noise, grey, another scene's picture
    floors: dict[str, float] | None = None
    ceiling: float | None = None  # what real pictures get
    #: why this very number, or its interval, deserves less trust than usual
    caution: str | None = None
    code: str = MEASURE_VERSION


# What helps to read a number and decides nothing about it: an older card without them is as
# comparable as before.
ABOUT = ("floors", "ceiling", "caution")


class Measured(Frozen):
    """A value with its interval (95 %) and its card."""

    value: float
    low: float
    high: float
    card: MetricCard

    @model_validator(mode="after")
    def _ordered(self) -> "Measured":
        if not self.low <= self.high:
            raise ValueError(
                f"{self.card.metric}: the interval is upside down: low {self.low}, high {self.high}"
            )
        return self


class NotComparable(ValueError):
    """Two numbers whose cards differ in fields that decide what the number means."""


def compatible(a: MetricCard, b: MetricCard, may_differ: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the fields that differ and were allowed to, for labelling; raises NotComparable for
    any other.

    `may_differ` holds what the levers of an arm declare that they change, such as "guidance" or
    "prompts".
    """
    known = MetricCard.model_fields
    unknown = sorted(set(may_differ) - set(known))
    if unknown:
        raise ValueError(
            f"may_differ names no field of a metric card: {unknown}\n  fields: {', '.join(known)}"
        )
    fixed = sorted({"metric", "better"} & set(may_differ))
    if fixed:
        raise ValueError(f"{fixed} may never differ: such numbers have nothing in common")
    different = [
        name
        for name in known
        if name not in ABOUT and not _same(getattr(a, name), getattr(b, name))
    ]
    refused = [name for name in different if name not in may_differ]
    if refused:
        width = max(len(name) for name in refused)
        lines = "\n".join(
            f"  {name:<{width}}  {getattr(a, name)!r}  against  {getattr(b, name)!r}"
            for name in refused
        )
        raise NotComparable(
            f"these two numbers of {a.metric!r} must not be compared; their cards"
            f" differ:\n{lines}\n  measure both the same way, or let the arm's levers declare the"
            " field"
        )
    return tuple(different)


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=0.0)
    return a == b
