"""Levers that learn from an embedded network say that it and the judges of their pictures learned from the same labels."""

import pytest

from fulcrum.files.shipped import asset_hash
from fulcrum.levers.catalog import LEVERS
from fulcrum.recipes.spark import spark
from fulcrum.spec.errors import BadInput

FITTED_TO_LABELS = {asset_hash(name) for name in ("teacher", "score", "codec_aligned")}


@pytest.mark.parametrize("lever", [lever for lever in LEVERS if not lever.__module__.endswith("bundles")], ids=str)
def test_the_card_says_whose_labels_the_network_learned(lever):
    """Found by what the edited run reads, so that a new lever cannot forget it."""
    try:
        run = lever().edit(spark())
    except BadInput:  # nothing to change there; no such lever reads a teacher
        run = spark()
    learns = bool(FITTED_TO_LABELS & {one for filler in run.fillers() for one in filler.hashes().values()})
    assert learns == ("from the same labels" in lever.card.warns)
