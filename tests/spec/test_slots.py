"""The base records of the seams, and the names that people's own files know them by."""

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec import slots
from fulcrum.spec.record import slot_of

FORMER = [
    "Source",
    "Caption",
    "Codec",
    "TextEncoder",
    "Teacher",
    "Time",
    "Predict",
    "Weight",
    "Route",
    "Condition",
    "Term",
    "Rule",
    "Average",
    "Start",
    "Guide",
]
SEAMS = [
    record for name, record in vars(slots).items() if name.endswith("Filler") and name != "Filler"
]


@pytest.mark.parametrize("name", FORMER)
def test_a_file_written_before_finds_its_base_record(name):
    assert getattr(slots, name) is getattr(slots, name.removesuffix("Encoder") + "Filler")


def test_other_names_are_unknown():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = slots.Nothing


@pytest.mark.parametrize("filler", CATALOG.fillers, ids=lambda filler: filler.kind)
def test_every_filler_fills_one_seam(filler):
    """Each filler derives from one record of the seams, whose fields its own settings add to."""
    base = slot_of(filler.model_construct())
    assert issubclass(filler, base) and [cls for cls in SEAMS if issubclass(filler, cls)] == [base]
