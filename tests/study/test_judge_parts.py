"""Small decisions of the judge, each by itself: margins, floors, endings, what would have been
seen, curves by arm."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm, t

from fulcrum.judge import effects as main_effects
from fulcrum.judge import findings
from fulcrum.judge.cells import CellRecord, MetricValue
from fulcrum.judge.design import JudgedArm
from fulcrum.judge.equal_cost import curves_of, fronts
from fulcrum.judge.looks import Answer, looks_of
from fulcrum.judge.metrics import margins, not_learned
from fulcrum.judge.power import contrast_detectable, detectable
from fulcrum.judge.schema import CurvePoint
from fulcrum.judge.sequence import ending
from fulcrum.judge.statistics import kept_share, paired_effect
from tests.study.small import plan, with_failed

LOOKS = (8, 12, 16)


def cells(values, metric="attribute_f1", floors=None):
    card = {} if floors is None else {"floors": floors}
    return {
        seed: CellRecord("base", seed, {metric: MetricValue(value, card)})
        for seed, value in enumerate(values)
    }


@pytest.mark.parametrize(("metric", "better"), [("attribute_f1", 1.0), ("mmd", -1.0)])
def test_a_baseline_has_learned_where_its_interval_is_beyond_the_best_of_the_floors(metric, better):
    """At the floor, or with an interval that touches it, it has not; the best of several floors
    counts."""
    for above, learned in ((0.3, True), (0.0, False), (-0.3, False)):
        values = [0.5 + better * above] * 3
        told = not_learned(
            {"base": cells(values, metric, {"grey": 0.5, "noise": 0.5 - better})},
            "base",
            metric,
            0.95,
        )
        assert (told is None) is learned and (
            learned or told.values | {"mean": 0} == {"mean": 0, "floor": 0.5, "name": "grey"}
        )
    wide = [0.5 + better * (0.3 + noise) for noise in (-0.2, 0.0, 0.2)]  # 0.3 ± 0.497
    assert (
        not_learned({"base": cells(wide, metric, {"grey": 0.5})}, "base", metric, 0.95).code
        == "not-learned"
    )
    assert not_learned({"base": cells(wide, metric, {"grey": 0.5})}, "base", metric, 0.5) is None
    assert not_learned({"base": cells([0.0, 0.0], metric, None)}, "base", metric, 0.95) is None
    assert not_learned({"base": cells([0.0], metric, {"grey": 0.5})}, "base", metric, 0.95) is None


def test_a_margin_is_the_plans_else_a_share_else_deviations():
    arms = [
        SimpleNamespace(name="arm", against="base"),
        SimpleNamespace(name="lost", against="nobody"),
    ]
    measured = {"base": cells([1.0, 2.0, 4.0], "mmd")}
    asked = plan(margin_deviations=0.5)
    assert margins(asked, arms, measured, "mmd") == {
        "arm": pytest.approx(0.5 * np.std([1, 2, 4], ddof=1))
    }
    assert margins(asked, arms, {"base": cells([3.0], "mmd")}, "mmd") == {"arm": 0.0}
    assert margins(plan(smallest_relative=0.1), arms, measured, "mmd") == {
        "arm": pytest.approx(0.1 * 7 / 3)
    }
    assert margins(plan(margins={"mmd": 0.3}), arms, measured, "mmd") == {"arm": 0.3}
    assert margins(plan(primary="mmd", smallest_effect=0.25), arms, measured, "mmd") == {
        "arm": 0.25
    }


@pytest.mark.parametrize(
    ("pairs", "left", "says"),
    [
        (8, "decided", "decided at 8 of 16 pairs"),
        (12, "unlikely", "stopped at 12 of 16 pairs: the chance of an answer by 16 was below 10%"),
        (8, "failed", "stopped at 8 of 16 pairs"),
        (16, "", "undecided after all 16 pairs"),
        (8, "", "undecided at 8 of 16 pairs: it goes on to 12"),
        (12, "", "undecided at 12 of 16 pairs: it goes on to 16"),
    ],
)
def test_where_the_looks_at_an_arm_ended(pairs, left, says):
    look = next(one for one in looks_of(LOOKS, 0.05) if one.pairs == pairs)
    assert ending(Answer(None, look, left), LOOKS).text == says


def effect_on(metric, scale=1.0):
    after = {
        seed: scale * value
        for seed, value in enumerate([1.0, -1.0, 2.0, -1.0, 0.5, 0.1, 0.4, -0.2])
    }
    return paired_effect(dict.fromkeys(after, 0.0), after, name="arm", metric=metric)


def test_what_would_have_been_seen_is_that_of_the_last_look_on_the_primary_metric_alone():
    fixed, looked = (
        plan(seeds=tuple(range(16)), primary="attribute_f1"),
        plan(seeds=tuple(range(16)), looks=LOOKS, primary="attribute_f1"),
    )
    last = looks_of(LOOKS, fixed.alpha)[-1]
    for asked, metric, pairs, alpha in (
        (fixed, "attribute_f1", 8, fixed.alpha),
        (looked, "attribute_f1", 16, last.level),
        (looked, "mmd", 8, fixed.alpha),
    ):
        effect = effect_on(metric)
        assert findings._detectable(asked, effect, 3) == pytest.approx(
            detectable(pairs, 3, alpha=alpha) * effect.sd
        )
    assert findings._detectable(fixed, effect_on("mmd", 0.0), 3) is None


def test_of_all_arms_the_loudest_is_told():
    rows = [
        ("mmd", 0.2),
        ("mmd", 0.7),
        ("mmd", None),
        ("mmd", 0.4),
        ("frechet", None),
        ("vgg.kid", 0.1),
    ]
    effects = [effect_on(metric).model_copy(update={"detectable": seen}) for metric, seen in rows]
    assert findings._loudest(effects) == {"mmd": 0.7, "vgg.kid": 0.1}


def test_curves_are_shares_of_the_budget_by_arm_and_seed():
    points = (
        CurvePoint(images=16, values={"mmd": 3.0}),
        CurvePoint(images=64, values={"other": 1.0}),
    )
    own = {
        0: CellRecord("a", 0, curve=points, budget=64),
        1: CellRecord("a", 1, budget=64),
        2: CellRecord("a", 2, curve=points, budget=64, failure="lost"),
    }
    cells = {"a": own, "stopped": {0: CellRecord("stopped", 0, curve=points, budget=64)}}
    found = curves_of([JudgedArm("a"), JudgedArm("b")], cells, "mmd")
    assert found == {"a": {0: [(0.25, 3.0)], 1: []}, "b": {}}


def test_a_front_is_what_no_cheaper_arm_equals_at_the_first_scale():
    scales = {
        "base": "s",
        "cheap": "s",
        "dear": "s",
        "beaten": "s",
        "unmeasured": "s",
        "large": "l",
    }
    arms = [SimpleNamespace(name=name, scale=scale) for name, scale in scales.items()]
    means = {
        name: (mean, mean, mean)
        for name, mean in dict(base=3.0, cheap=4.0, dear=1.0, beaten=3.5, large=0.0).items()
    }
    prices = dict(base=1.0, cheap=0.5, dear=2.0, beaten=1.0, large=0.1, unmeasured=0.1)
    costs = {
        name: SimpleNamespace(time_ratio=cost, flops_ratio=cost) for name, cost in prices.items()
    }
    for front in fronts(arms, means, costs, "mmd"):
        assert {point.arm: point.front for point in front.points} == {
            "base": True,
            "cheap": True,
            "dear": True,
            "beaten": False,
        }


@pytest.mark.parametrize(
    ("lost", "verdict", "word", "silenced"),
    [
        ({}, "better", "better", False),
        ({"ab": [0]}, "better", "inconclusive", True),
        ({"ab": [0]}, "tie", "inconclusive", True),
        ({"ab": [0]}, "worse", "worse", False),
        ({"b": [0, 1], "ab": [0]}, "better", "better", False),
        ({"b": [0], "a": [1]}, "better", "better", False),
    ],
)
def test_a_lever_with_which_more_cells_failed_is_not_called_better(lost, verdict, word, silenced):
    """Four combinations of two levers, two seeds: what is said of lever a."""
    table = SimpleNamespace(
        levers=["a", "b"], on=np.array([[False, False], [True, False], [False, True], [True, True]])
    )
    arms = [SimpleNamespace(name=name) for name in ("baseline", "a", "b", "ab")]
    row = effect_on("mmd").model_copy(update={"arm": "a", "verdict": verdict, "planned": 2})
    cells = with_failed({}, {arm: dict.fromkeys(seeds, "lost") for arm, seeds in lost.items()})
    found = main_effects._with_failures(row, table, arms, cells)
    with_it = sum(len(lost.get(name, ())) for name in ("a", "ab"))
    without = sum(len(lost.get(name, ())) for name in ("baseline", "b"))
    told = f"{with_it} of 4 cells with it failed, {without} of 4 without it"
    told += ": survivors alone make it neither better nor a tie" * silenced
    assert found.verdict == word and found.warnings == ((told,) if lost else ())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_few_seeds_have_students_interval_and_a_headline_that_their_test_is_sure_of(sign):
    error, degrees = 0.05, 9.0
    row = effect_on("attribute_f1").model_copy(
        update={"mean": sign * 0.2, "p_adjusted": 0.01, "margin": 0.02}
    )
    found = main_effects._by_normal_theory(row, error, degrees, 4, "higher", 0.05)
    reach, near = error * t.isf(0.025, degrees), error * t.isf(0.05, degrees)
    assert (found.low, found.high) == pytest.approx((sign * 0.2 - reach, sign * 0.2 + reach))
    assert (found.tie_low, found.tie_high) == pytest.approx((sign * 0.2 - near, sign * 0.2 + near))
    share = kept_share(norm.isf(t.sf(0.2 / error, degrees)), 0.05 / 4)
    assert found.verdict == ("better" if sign > 0 else "worse")
    assert (
        found.shrunk == pytest.approx(sign * max(0.2 * share, 0.2 - reach))
        and 0.2 * share > 0.2 - reach
    )
    unsure = main_effects._by_normal_theory(
        row.model_copy(update={"p_adjusted": 0.2}), error, degrees, 4, "higher", 0.05
    )
    assert (unsure.verdict, unsure.shrunk) == ("inconclusive", sign * 0.2)


@pytest.mark.parametrize("seeds", [(0, 1), tuple(range(8))])
def test_what_a_fraction_would_have_seen_follows_the_scatter_that_it_was_judged_by(seeds):
    """Of few seeds no less than that of all levers together; where nothing scatters, nothing is
    said."""
    asked = plan(
        arms=(), design="fractional", stack=("muon", "bf16_storage", "ema(every=2)"), seeds=seeds
    )
    calm, loud = effect_on("mmd", 0.01), effect_on("mmd", 0.03)
    effects = main_effects.FractionEffects([calm, loud], [], [], [])
    together = np.sqrt((calm.sd**2 + loud.sd**2) / 2)
    units = contrast_detectable(asked, 8, 2)
    for row in (calm, loud):
        scatter = max(row.sd, together) if len(seeds) == 2 else row.sd
        assert findings._with_sight(asked, row, effects).detectable == pytest.approx(
            units * scatter
        )
    still = effect_on("mmd", 0.0)
    nothing = main_effects.FractionEffects([still], [], [], [])
    assert findings._with_sight(asked, still, nothing).detectable is None
    assert findings._by_seed(effects) == {
        "arm": dict(zip(loud.seeds, loud.differences, strict=True))
    }
