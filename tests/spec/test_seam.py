"""The base records of the seams, and the names that people's own files know them by."""

import pytest

from fulcrum.spec import seam

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


@pytest.mark.parametrize("name", FORMER)
def test_a_file_written_before_finds_its_base_record(name):
    assert getattr(seam, name) is getattr(seam, name.removesuffix("Encoder") + "Filler")


def test_other_names_are_unknown():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = seam.Nothing
