"""Claims: held only against their own lever alone, as it was published, on a comparable baseline
and metric."""

import numpy as np
import pytest

from fulcrum.judge.claim_verdicts import claim_verdict, claimed_direction, judged_claims
from fulcrum.judge.effects import effects_on
from fulcrum.levers.base import Claim
from fulcrum.levers.catalog import CATALOG
from fulcrum.studies.arms import prove
from fulcrum.studies.claims import claim_places, scope_of
from fulcrum.studies.plan_file import from_plain
from tests.study.small import SMALL, arms_of, cells_of, plan, with_metrics

METRICS = ("frechet", "mmd", "validation_loss")
FID = Claim(metric="fid", change=-3.0, scope="somewhere", source="a paper")
SEEDS = tuple(range(8))
# scatters far more than the arms differ in a tie
BASELINE = (3.0, 4.0, 5.0, 3.5, 4.5, 5.5, 4.2, 3.8)
# mean, noise
MOVED = {
    "better": (-2.0, 0.01),
    "worse": (2.0, 0.01),
    "tie": (0.0, 0.01),
    "inconclusive": (0.0, 6.0),
}


def study(asked, word):
    """Arms of a plan, cells in which every arm found `word` on all metrics, and its effects."""
    arms, (mean, noise) = arms_of(asked), MOVED[word]
    moved = [
        one + mean + noise * sign
        for one, sign in zip(BASELINE, (1, -1, 1, 1, -1, -1, 1, -1), strict=True)
    ]
    values = {arm.name: BASELINE if arm.is_baseline else moved for arm in arms}
    cells = cells_of(values, METRICS[0], "lower")
    for metric in METRICS[1:]:
        cells = with_metrics(cells, cells_of(values, metric, "lower"))
    return arms, cells, {metric: effects_on(asked, arms, cells, metric) for metric in METRICS}


def held(asked, name, metric="fid", word="better"):
    """The first claim about a metric of the arm `name`."""
    arms, cells, effects = study(asked.model_copy(update={"seeds": SEEDS}), word)
    return next(
        claim for claim in claims_of(asked, arms, cells, effects)[name] if claim.metric == metric
    )


def claims_of(asked, arms, cells, effects):
    places = claim_places(asked, prove(asked, CATALOG), effects)
    return judged_claims(asked, arms, cells, effects, places)


def test_a_lever_alone_as_it_was_published_is_held_against_its_claim():
    row = held(plan(arms=("muon",)), "muon")
    assert (row.verdict, row.seen) == (
        "replicated",
        "frechet",
    ) and "on other features, at 32 px" in row.why
    row = held(plan(arms=("muon",)), "muon", word="worse")
    assert (
        row.verdict == "opposite here"
        and "at 32 px: it says nothing about the claim's own setting" in row.why
    )
    assert held(plan(arms=("muon",)), "muon", word="inconclusive").verdict == "underpowered"
    assert held(plan(arms=("muon",)), "muon", word="tie").verdict == "out of scope"
    # our teacher stands in for the published ones
    assert held(plan(arms=("repa",)), "repa").verdict == "replicated"


@pytest.mark.parametrize(
    ("changes", "arm", "why"),
    [
        ({"arms": ("muon + ema(every=2)",)}, "muon + ema(every=2)", "this lever alone"),
        (
            {"arms": ("muon(momentum=0.8)",)},
            "muon(momentum=0.8)",
            "about momentum=0.95, and here it is muon(",
        ),
        (
            {"arms": ("short_captions(prompts=matched)",)},
            "short_captions(prompts=matched)",
            "prompts=kept",
        ),
        ({"arms": ("repa @ (0, 0.5)",)}, "repa @ (0, 0.5)", "part of the budget"),
        ({"arms": ("repa(until=0.5)",)}, "repa(until=0.5)", "until=None"),
        ({"arms": ("muon",), "baseline": "spark + repa"}, "muon", "already has repa"),
        ({"arms": ("muon",), "settings": (*SMALL, "flow.predict=x")}, "muon", "flow.predict"),
        ({"arms": ("muon",), "settings": (*SMALL, "precision.storage=bf16")}, "muon", "bf16"),
        ({"arms": ("muon",), "trunk": "spark", "trunk_images": 24}, "muon", "late change"),
        ({"arms": ("muon",), "judges": ("lite0",)}, "muon", "from outside"),
        ({"arms": ("aligned_codec",)}, "aligned_codec", "also had REPA on"),
        (
            {"arms": (), "design": "leave_one_out", "stack": ("muon", "bf16_storage")},
            "without muon",
            "taken from a stack",
        ),
    ],
)
def test_everywhere_else_it_is_not_comparable_and_says_why(changes, arm, why):
    row = held(plan(**changes), arm)
    assert row.verdict == "not comparable" and why in row.why, row


def test_a_metric_that_the_study_has_not_is_not_comparable():
    row = held(plan(arms=("short_captions",)), "short_captions", "dino_mmd")
    assert (row.verdict, row.seen, row.why) == (
        "not comparable",
        "",
        "no metric of this study stands for dino_mmd",
    )


def test_a_direction_that_does_not_carry_over_is_out_of_scope_but_for_the_claims_own_recipe():
    assert held(plan(arms=("tread",)), "tread").verdict == "out of scope"
    asked = from_plain(
        {"title": "t", "baseline": "prx_256", "arms": ["tread"], "seeds": list(SEEDS)}
    )
    rows = claims_of(asked, *study(asked, "worse"))["tread"]
    # 1,024 tokens, 256
    assert [row.verdict for row in rows if row.metric == "fid"] == ["out of scope", "replicated"]


def test_only_the_same_setting_contradicts():
    """A claim about one of our own metrics, made with one of our own recipes."""
    own = Claim(
        metric="frechet",
        change=-1.0,
        scope="the recipe spark",
        source="our own study",
        recipe="spark",
    )
    base, *_ = prove(plan(settings=(), images=None), CATALOG)
    assert (
        scope_of(own, base) == "same" and claim_verdict("worse", own, "same")[0] == "contradicted"
    )
    assert claim_verdict("tie", own, "same")[0] == "contradicted"
    smaller, *_ = prove(plan(), CATALOG)
    assert scope_of(own, smaller) == "scaled" and scope_of(FID, base) == "scaled"


def test_what_failed_or_was_not_learned_says_nothing_about_a_claim():
    for word in ("failed", "not learned"):
        verdict, why = claim_verdict(word, FID, "scaled")
        assert verdict == "not comparable" and why


@pytest.mark.parametrize(
    ("seen", "change", "scope", "expected"),
    [
        ("better", -3.0, "scaled", "replicated"),
        ("worse", +3.0, "same", "replicated"),
        ("worse", -3.0, "scaled", "opposite here"),
        ("worse", -3.0, "same", "contradicted"),
        ("better", 0.0, "same", "contradicted"),
        ("tie", -3.0, "same", "contradicted"),
        ("tie", -3.0, "scaled", "out of scope"),
        ("tie", 0.0, "scaled", "replicated"),
        ("inconclusive", -3.0, "same", "underpowered"),
    ],
)
def test_the_table_of_verdicts(seen, change, scope, expected):
    assert claim_verdict(seen, FID.model_copy(update={"change": change}), scope)[0] == expected


def test_the_claims_that_are_held_are_one_family():
    """With nothing true, some claim of nine levers is decided in about 5 % of studies, whatever the
    number of metrics."""
    asked = plan(
        arms=("muon", "repa", "short_captions", "bf16_storage", "x_prediction", "wide_codec"),
        seeds=SEEDS,
    )
    arms, rng, decided = arms_of(asked), np.random.default_rng(0), 0
    places = claim_places(asked, prove(asked, CATALOG), ("frechet", "mmd"))
    for _ in range(150):
        one, other = (
            cells_of({arm.name: rng.standard_normal(8) for arm in arms}, metric)
            for metric in ("frechet", "mmd")
        )
        cells = with_metrics(one, other)
        effects = {metric: effects_on(asked, arms, cells, metric) for metric in ("frechet", "mmd")}
        rows = judged_claims(
            asked.model_copy(update={"margin_deviations": 1e-6}), arms, cells, effects, places
        )
        decided += any(
            row.verdict in ("replicated", "opposite here")
            for claims in rows.values()
            for row in claims
        )
    assert decided / 150 <= 0.05 + 3 * (0.05 * 0.95 / 150) ** 0.5


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
