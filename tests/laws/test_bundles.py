"""Bundles: every one trains as a whole, and an arm with it says that it is a compound."""

import pytest

from fulcrum.laws.ground import TINY, Ground
from fulcrum.laws.laws import Court
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.phrase import parse
from fulcrum.train.build import require_witness

LONG = (*TINY, "budget.images=96")  # an average needs more than ten steps


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    return Court(CATALOG, tmp_path_factory.mktemp("court"))


@pytest.mark.parametrize("name", CATALOG.bundles)
def test_a_bundle_trains_draws_and_every_part_is_on(name, court):
    phrase = parse(f"spark + {name}", CATALOG, LONG)
    assert len(phrase.levers) > 1  # what a study calls compound
    trained = court.trained(phrase.run)
    require_witness(phrase.levers, trained.built)
    baseline = court.baseline(Ground("latents", parse("spark", CATALOG, LONG).run))
    assert trained.prints["samples"] != baseline.prints["samples"]
