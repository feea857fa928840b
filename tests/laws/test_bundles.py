"""Bundles: every one trains as a whole, and an arm with it says that it is a compound."""

import pytest

from fulcrum.data.fillers import MixedStyles, OneStyle
from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.laws import TINY, Court, Ground
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse
from fulcrum.spec.stage import phases
from fulcrum.training.build import require_witness

LONG = (*TINY, "budget.images=96")  # an average needs more than ten steps
MANY = (*TINY, "budget.images=48", "budget.batch=4", "data.size=128")  # 256 tokens


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    return Court(CATALOG, tmp_path_factory.mktemp("court"))


@pytest.mark.parametrize("name", CATALOG.bundles)
def test_a_bundle_trains_draws_and_every_part_is_on(name, court):
    settings = MANY if name == "speedrun" else LONG
    phrase = parse(f"spark + {name}", CATALOG, settings)
    assert len(phrase.levers) > 1  # what a study calls compound
    trained = court.trained(phrase.run)
    require_witness(phrase.levers, trained.built)
    baseline = court.baseline(Ground(str(settings), parse("spark", CATALOG, settings).run))
    assert trained.prints["samples"] != baseline.prints["samples"]


def test_the_speed_run_is_refused_with_few_tokens():
    with pytest.raises(BadInput, match="the run has 64 tokens, and the published run had 256"):
        parse("spark + speedrun", CATALOG, ["data.size=64"])
    assert parse("spark + speedrun", CATALOG, ["data.size=128"]).run.tokens == 256


def test_the_published_recipe_ends_with_mixed_lengths():
    stages = phases(parse("spark + prx_recipe", CATALOG).run)
    assert isinstance(stages[0].run.data.caption, OneStyle) and isinstance(
        stages[-1].run.data.caption, MixedStyles
    )
