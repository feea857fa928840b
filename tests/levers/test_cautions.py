"""Levers that learn from an embedded network say what that network was told of the world."""

import pytest

from fulcrum.levers.catalog import LEVERS
from fulcrum.levers.recipes import spark
from fulcrum.spec.errors import BadInput

# networks that learned what words mean from the world's captions
CAPTIONED = {"asset:score", "asset:captioner"}
UNTOLD = {"asset:teacher", "asset:codec_aligned"}
SINGLE = [lever for lever in LEVERS if not lever.__module__.endswith("bundles")]


def read_by(lever):
    """Names of all files that the edited run reads."""
    try:
        run = lever.edit(spark())
    except BadInput:  # nothing to change there; no such lever reads a teacher
        run = spark()
    return {name for filler in run.fillers() for name in filler.hashes()}


@pytest.mark.parametrize("lever", SINGLE, ids=str)
def test_the_card_says_what_the_network_was_told(lever):
    """Found by what the edited run reads, so that a new lever cannot forget it."""
    read = read_by(lever())
    assert bool(UNTOLD & read) == ("was told no attribute and no caption" in lever.card.warns)
    assert bool(CAPTIONED & read) == ("from captions of the same world" in lever.card.warns)


@pytest.mark.parametrize(
    "lever", [lever for lever in SINGLE if "teacher" in lever.model_fields], ids=str
)
def test_the_supervised_teacher_is_a_choice_and_its_labels_are_named(lever):
    default, supervised = read_by(lever()), read_by(lever(teacher="supervised"))
    assert "asset:teacher" in default and "asset:teacher_supervised" not in default
    assert "asset:teacher_supervised" in supervised and "asset:teacher" not in supervised
    assert "from the same labels" in lever.card.warns
