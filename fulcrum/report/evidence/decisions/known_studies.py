"""Which studies the evidence page knows by the names of their folders, what each asks, and which were not run yet."""

from collections.abc import Mapping
from typing import NamedTuple

from fulcrum.judge.schema import StudyResult

Studies = Mapping[str, StudyResult]  # name of its folder -> what a kept study found
TABLE = "replication"  # how the names begin of studies that change one decision at a time
AGAIN = ("replication_pocket", "emoji")  # what asks the same on a larger recipe, and on pictures that others drew
LONGER = "skeptic_budget"  # what trains both sides longer
RECIPE = "spark"  # of the ranking: decisions on another recipe stand in a section of their own


class Asked(NamedTuple):
    folder: str  # the name, or how names begin where there may be several
    question: str


ASKED = (
    Asked("replication", "every row of the published table that needs no other, one decision at a time"),
    Asked("replication_bases", "rows that need another decision first: a codec trained along, rounding at random"),
    Asked("replication_synthetic", "real pictures instead of synthetic ones"),
    Asked("replication_mislabels", "filtering captions where some were planted wrong"),
    Asked("replication_rates", "optimizer and storage, each at a learning rate of its own"),
    Asked("replication_pocket", "the largest effects, and the opposite ones, again on a larger recipe"),
    Asked("resolution", "routing at few and at many tokens"),
    Asked("resolution_objective", "x-prediction against velocity at few and at many tokens"),
    Asked("late", "changes that come late: alignment switched off, a curated end, every token at the end"),
    Asked("stack", "the best decisions together: one left out at a time, and all of them at equal time"),
    Asked("fraction", "which decisions compound: several at once, in few combinations"),
    Asked("emoji", "the largest effects on pictures that no one here drew"),
    Asked("skeptic_judge", "the largest effects as another judge sees them"),
    Asked("skeptic_seeds", "the largest effects on other seeds"),
    Asked("skeptic_guidance", "the largest effects without guidance"),
    Asked("skeptic_rate", "the largest effects at a constant learning rate"),
    Asked("skeptic_budget", "the largest effects after twice the images"),
)
SEVERAL = ("resolution", "late", "stack", "fraction")  # there may be several: late, late_trunk


def ordered(studies: Studies) -> dict[str, StudyResult]:
    """The studies in the order in which the page asks for them; those that it does not know come last, by name."""
    places = {asked.folder: place for place, asked in enumerate(ASKED)}

    def place(name: str) -> tuple[int, str]:
        known = name if name in places else next((one for one in SEVERAL if name.startswith(f"{one}_")), name)
        return places.get(known, len(places)), name

    return {name: studies[name] for name in sorted(studies, key=place)}


def missing(studies: Studies) -> list[Asked]:
    """What was not run yet."""
    return [asked for asked in ASKED if not any(_is(name, asked) for name in studies)]


def _is(name: str, asked: Asked) -> bool:
    return name == asked.folder or (asked.folder in SEVERAL and name.startswith(f"{asked.folder}_"))


def in_table(name: str, result: StudyResult) -> bool:
    """Does a study change one decision at a time on the recipe of the ranking?"""
    alone = result.fraction is None and not result.scales
    return alone and name.startswith(TABLE) and result.plan.baseline.split(" + ")[0] == RECIPE
