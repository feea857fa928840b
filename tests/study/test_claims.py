"""Claims: held only against their own lever alone, as it was published, on a comparable baseline and metric."""

import pytest

from fulcrum.levers.base import Claim
from fulcrum.levers.catalog import CATALOG
from fulcrum.study.judge.claims import claim_verdict, claimed_direction, claims_of, scope_of
from fulcrum.study.plan.arms import prove
from fulcrum.study.plan.plan import from_plain
from tests.study.small import SMALL, plan

METRICS = ("attribute_accuracy", "frechet", "mmd", "validation_loss")
FID = Claim(metric="fid", change=-3.0, scope="somewhere", source="a paper")


def held(asked, name, metric="fid", word="better"):
    """The first claim about a metric of the arm `name`, where all metrics found `word`."""
    arms = prove(asked, CATALOG)
    arm = next(one for one in arms if one.name == name)
    words = {(one.name, seen): word for one in arms for seen in METRICS}
    return next(claim for claim in claims_of(asked, arms, arm, words, METRICS) if claim.metric == metric)


def test_a_lever_alone_as_it_was_published_is_held_against_its_claim():
    row = held(plan(arms=("muon",)), "muon")
    assert (row.verdict, row.seen) == ("replicated", "frechet") and "on other features, at 32 px" in row.why
    row = held(plan(arms=("muon",)), "muon", word="worse")
    assert row.verdict == "opposite here" and "at 32 px: it says nothing about the claim's own setting" in row.why
    assert held(plan(arms=("muon",)), "muon", word="inconclusive").verdict == "underpowered"
    assert held(plan(arms=("muon",)), "muon", word="tie").verdict == "out of scope"
    assert held(plan(arms=("repa",)), "repa").verdict == "replicated"  # our teacher stands in for the published ones


@pytest.mark.parametrize(
    ("changes", "arm", "why"),
    [
        ({"arms": ("muon + ema(every=2)",)}, "muon + ema(every=2)", "this lever alone"),
        ({"arms": ("muon(momentum=0.8)",)}, "muon(momentum=0.8)", "about momentum=0.95, and here it is muon("),
        ({"arms": ("short_captions(prompts=matched)",)}, "short_captions(prompts=matched)", "prompts=kept"),
        ({"arms": ("repa @ (0, 0.5)",)}, "repa @ (0, 0.5)", "part of the budget"),
        ({"arms": ("repa(until=0.5)",)}, "repa(until=0.5)", "until=None"),
        ({"arms": ("muon",), "baseline": "spark + repa"}, "muon", "already has repa"),
        ({"arms": ("muon",), "settings": (*SMALL, "flow.predict=x")}, "muon", "flow.predict"),
        ({"arms": ("muon",), "settings": (*SMALL, "precision.storage=bf16")}, "muon", "bf16"),
        ({"arms": ("muon",), "trunk": "spark", "trunk_images": 24}, "muon", "late change"),
        ({"arms": ("muon",), "judges": ("lite0",)}, "muon", "from outside"),
        ({"arms": ("aligned_codec",)}, "aligned_codec", "also had REPA on"),
        ({"arms": (), "design": "leave_one_out", "stack": ("muon", "bf16_storage")}, "without muon", "taken from a stack"),
    ],
)  # fmt: skip
def test_everywhere_else_it_is_not_comparable_and_says_why(changes, arm, why):
    row = held(plan(**changes), arm)
    assert row.verdict == "not comparable" and why in row.why, row


def test_a_metric_that_the_study_has_not_is_not_comparable():
    row = held(plan(arms=("short_captions",)), "short_captions", "dino_mmd")
    assert (row.verdict, row.seen, row.why) == ("not comparable", "", "no metric of this study stands for dino_mmd")


def test_a_direction_that_does_not_carry_over_is_out_of_scope_but_for_the_claims_own_recipe():
    assert held(plan(arms=("tread",)), "tread").verdict == "out of scope"
    asked = from_plain({"title": "t", "baseline": "prx_256", "arms": ["tread"], "seeds": [0, 1]})
    rows = claims_of(asked, arms := prove(asked, CATALOG), arms[1], {("tread", "frechet"): "worse"}, METRICS)
    assert [row.verdict for row in rows if row.metric == "fid"] == ["out of scope", "replicated"]  # 1,024 tokens, 256


def test_only_the_same_setting_contradicts():
    """A claim about one of our own metrics, made with one of our own recipes."""
    own = Claim(metric="frechet", change=-1.0, scope="the recipe spark", source="our own study", recipe="spark")
    (base, *_) = prove(plan(settings=(), images=None), CATALOG)
    assert scope_of(own, base) == "same" and claim_verdict("worse", own, "same")[0] == "contradicted"
    assert claim_verdict("tie", own, "same")[0] == "contradicted"
    (smaller, *_) = prove(plan(), CATALOG)
    assert scope_of(own, smaller) == "scaled" and scope_of(FID, base) == "scaled"


def test_what_failed_or_was_not_learned_says_nothing_about_a_claim():
    for word in ("failed", "not learned"):
        verdict, why = claim_verdict(word, FID, "scaled")
        assert verdict == "not comparable" and why


def test_directions():
    accuracy = Claim(metric="attribute_accuracy", change=-0.1, scope="here", source="our own study")
    assert (claimed_direction(FID), claimed_direction(accuracy)) == ("better", "worse")
    assert claimed_direction(FID.model_copy(update={"change": 0.0})) == "none"
    assert claim_verdict("tie", FID.model_copy(update={"change": 0.0}), "scaled")[0] == "replicated"


def test_every_claim_names_settings_that_its_lever_has():
    for name, lever in CATALOG.levers.items():
        for claim in lever.card.claims:
            assert set(claim.settings) <= set(lever.model_fields), name
            assert claim.recipe in CATALOG.recipes, name
