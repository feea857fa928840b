"""Published claims: what the literature says that a lever does."""

from typing import Annotated, Any

from pydantic import Field

from fulcrum.spec.record import Record

ANY = "any"
Words = Annotated[str, Field(min_length=3)]


class Claim(Record):
    """What the literature says a lever does, where, and by how much."""

    metric: str
    change: float  # arm minus baseline, in the metric's own unit
    scope: Words
    source: Words  # a claim without a source is no claim
    note: str = ""
    carries: bool = True  # may its direction be expected at another scale?
    #: of the lever, where it is not about the defaults; ANY: about every value
    settings: dict[str, Any] = {}
    also: str = ""  # another lever that the published arm had on: the number belongs to both
    recipe: str = ""  # which of ours is the setting that it was made in
