"""Findings: every arm on its own pairs, failures as outcomes, one family, what is exploratory, what
was not learned."""

import math
import time

import numpy as np
import pytest

from fulcrum.judge.card import NotComparable
from fulcrum.judge.cells import CellRecord
from fulcrum.judge.effects import all_findings, confirmed, effects_on, interactions, judged, trends
from fulcrum.judge.metrics import SHOWN, not_stopped, shown_metric
from fulcrum.levers.catalog import CATALOG
from fulcrum.studies import result
from fulcrum.studies.cell import lay_out
from fulcrum.studies.plan_file import from_plain
from tests.study.small import arms_of, cells_of, plan, with_failed, with_metrics, with_value

METRIC = "attribute_accuracy"
SEEDS = tuple(range(6))
ARMS = ("muon", "repa", "ema(every=2)", "bf16_storage")


def noise(rng, mean=0.0):
    return tuple(mean + 0.02 * rng.standard_normal(len(SEEDS)))


@pytest.fixture
def study():
    """A plan, its arms and cells: one arm is better, one much worse, two do nothing."""
    rng, asked = np.random.default_rng(5), plan(arms=ARMS, seeds=SEEDS, primary=METRIC)
    means = {"baseline": 0.5, "muon": 0.7, "repa": 0.15, "ema(every=2)": 0.5, "bf16_storage": 0.5}
    return (
        asked,
        arms_of(asked),
        cells_of({arm: noise(rng, mean) for arm, mean in means.items()}, METRIC),
    )


def findings(asked, arms, cells, metric, stopped=(), failed=None):
    """Effects of all arms that were not stopped on one metric, judged as one family."""
    arms, cells = not_stopped(arms, stopped), with_failed(cells, failed or {})
    return judged(asked, arms, cells, metric, effects_on(asked, arms, cells, metric))


def verdicts(rows):
    return {row.arm: row.verdict for row in rows}


def test_an_arm_without_cells_leaves_the_other_verdicts_as_they_are(study):
    asked, arms, cells = study
    whole = verdicts(findings(asked, arms, cells, METRIC))
    assert whole["muon"] == "better" and whole["repa"] == "worse"
    for hidden in ARMS:
        rest = {arm: values for arm, values in cells.items() if arm != hidden}
        left = verdicts(findings(asked, arms, rest, METRIC))
        assert left == {arm: verdict for arm, verdict in whole.items() if arm != hidden}


def test_numbers_that_were_not_measured_alike_are_not_compared(study):
    """One cell of an arm, of the baseline, or of all but the baseline, measured over other numbers
    of samples."""
    asked, arms, cells = study
    for changed in (
        [("muon", 3)],
        [("baseline", 0)],
        [(arm, seed) for arm in ARMS for seed in SEEDS],
    ):
        mixed = cells
        for arm, seed in changed:
            card = cells[arm][seed].metrics[METRIC].card | {"estimator": "another"}
            mixed = with_value(mixed, arm, seed, METRIC, card=card)
        with pytest.raises(NotComparable, match="estimator"):
            findings(asked, arms, mixed, METRIC)


def test_a_seed_that_one_arm_has_not_yet_leaves_the_other_verdicts_as_they_are(study):
    asked, arms, cells = study
    whole = verdicts(findings(asked, arms, cells, METRIC))
    for hidden in ARMS:
        rest = cells | {hidden: {seed: cell for seed, cell in cells[hidden].items() if seed != 3}}
        rows = {row.arm: row for row in findings(asked, arms, rest, METRIC)}
        assert {arm: row.verdict for arm, row in rows.items() if arm != hidden} == {
            arm: verdict for arm, verdict in whole.items() if arm != hidden
        }
        assert (rows[hidden].n, rows[hidden].planned, rows[hidden].verdict) == (
            5,
            6,
            "inconclusive",
        )
        assert "one more seed can" in rows[hidden].note


def test_the_finished_study_of_make_study_keeps_its_verdicts_whatever_is_hidden_of_one_arm():
    values = {  # attribute recall of 24 trained cells
        "baseline": (0.4897, 0.4932, 0.501, 0.4292, 0.4546, 0.5015),
        "short_captions": (0.1265, 0.1064, 0.1299, 0.1245, 0.1631, 0.1113),
        "muon": (0.5278, 0.5083, 0.522, 0.5288, 0.5273, 0.5425),
        "bf16_storage": (0.4268, 0.4785, 0.48, 0.3652, 0.4429, 0.4912),
    }
    asked = plan(arms=tuple(values)[1:], seeds=SEEDS, primary=METRIC)
    arms, cells = arms_of(asked), cells_of(values, METRIC)
    whole = {"muon": "better", "bf16_storage": "worse", "short_captions": "worse"}
    assert verdicts(findings(asked, arms, cells, METRIC)) == whole
    for hidden in asked.arms:
        for kept in (
            {},
            *({seed: cells[hidden][seed] for seed in SEEDS if seed != gone} for gone in SEEDS),
        ):
            left = verdicts(findings(asked, arms, cells | {hidden: kept}, METRIC))
            assert {arm: left[arm] for arm in whole if arm != hidden} == {
                arm: verdict for arm, verdict in whole.items() if arm != hidden
            }
            assert left.get(hidden) == ("inconclusive" if kept else None)


def test_survivors_never_make_an_arm_better_and_may_make_it_worse(study):
    asked, arms, cells = study
    whole = verdicts(findings(asked, arms, cells, METRIC))
    seven = asked.model_copy(update={"seeds": (*SEEDS, 6)})
    cells["baseline"][6] = cells["baseline"][0]
    lost = {arm: {6: "the loss is not finite"} for arm in ARMS}
    rows = {row.arm: row for row in findings(seven, arms, cells, METRIC, failed=lost)}
    assert (
        whole["muon"] == "better"
        and rows["muon"].verdict == "inconclusive"
        and rows["repa"].verdict == "worse"
    )
    assert "1 of 7 seeds failed" in rows["muon"].note and (rows["muon"].n, rows["muon"].failed) == (
        6,
        1,
    )


def test_an_arm_whose_every_seed_failed_is_failed_and_the_others_are_decided(study):
    asked, arms, cells = study
    whole = verdicts(findings(asked, arms, cells, METRIC))
    del cells["repa"]
    lost = {"repa": dict.fromkeys(SEEDS, "collapsed")}
    rows = {row.arm: row for row in findings(asked, arms, cells, METRIC, failed=lost)}
    assert (rows["repa"].n, rows["repa"].mean, rows["repa"].verdict) == (0, None, "failed")
    assert rows["repa"].note == "all 6 seeds failed"
    assert {arm: row.verdict for arm, row in rows.items()} == whole | {"repa": "failed"}
    assert (
        confirmed(asked, rows["repa"]).verdict == "failed"
        and not confirmed(asked, rows["repa"]).exploratory
    )


def test_a_metric_that_is_no_number_under_one_seed_misses_that_pair_alone(study):
    asked, arms, cells = study
    cells = with_value(cells, "muon", 2, METRIC, value=math.nan)
    rows = {row.arm: row for row in findings(asked, arms, cells, METRIC)}
    assert (
        rows["muon"].n == 5 and "the pair of seed 2 is missing: no number" in rows["muon"].warnings
    )
    assert rows["repa"].verdict == "worse" and rows["repa"].n == 6
    cells["baseline"][1] = cells["baseline"][1]._replace(metrics={})
    assert {row.arm: row.n for row in findings(asked, arms, cells, METRIC)}["repa"] == 5


def test_a_baseline_that_failed_under_a_seed_takes_that_pair_from_all(study):
    asked, arms, cells = study
    del cells["baseline"][0]
    rows = findings(asked, arms, cells, METRIC, failed={"baseline": {0: "collapsed"}})
    assert {(row.n, row.failed) for row in rows} == {(5, 0)}
    assert all("the pair of seed 0 is missing: the baseline failed" in row.warnings for row in rows)
    del cells["baseline"]
    rows = findings(
        asked, arms, cells, METRIC, failed={"baseline": dict.fromkeys(SEEDS, "collapsed")}
    )
    assert {(row.n, row.verdict) for row in rows} == {(0, "inconclusive")}


def test_pairs_whose_sides_ran_on_unlike_machines_are_counted(study):
    asked, arms, cells = study
    for arm, by_seed in cells.items():
        for seed, cell in by_seed.items():
            processor = "other" if arm == "muon" and seed < 2 else "usual"
            by_seed[seed] = cell._replace(machine={"processor": processor, "fulcrum": str(seed)})
    assert {row.arm: row.unlike for row in findings(asked, arms, cells, METRIC)} == {
        "muon": 2
    } | dict.fromkeys(ARMS[1:], 0)


def test_an_arm_that_still_runs_has_no_effect_yet(study):
    asked, arms, cells = study
    cells["muon"] = {0: cells["muon"][0]}
    assert "muon" not in verdicts(findings(asked, arms, cells, METRIC))


def test_two_seeds_are_enough_for_numbers_and_decide_nothing():
    asked = plan(arms=("muon",), seeds=(0, 1), primary=METRIC)
    (row,) = findings(
        asked,
        arms_of(asked),
        cells_of({"baseline": (0.1, 0.2), "muon": (0.8, 0.7)}, METRIC),
        METRIC,
    )
    assert (
        row.verdict == "inconclusive"
        and "2 pairs cannot reach p" in row.note
        and row.mean == pytest.approx(0.6)
    )


def test_intervals_are_at_the_plans_level_and_ties_at_twice_its_alpha(study):
    asked, arms, cells = study
    wide, narrow = (
        findings(asked.model_copy(update={"alpha": alpha}), arms, cells, METRIC)
        for alpha in (0.05, 0.1)
    )
    for one, other in zip(wide, narrow, strict=True):
        assert one.low < other.low < one.mean and (one.tie_low, one.tie_high) == pytest.approx(
            (other.low, other.high)
        )


def test_a_stopped_baseline_takes_its_arms_with_it(study):
    asked, arms, cells = study
    arms = [arm._replace(against="muon") if arm.name == "repa" else arm for arm in arms]
    assert set(verdicts(findings(asked, arms, cells, METRIC, stopped=["muon"]))) == {
        "ema(every=2)",
        "bf16_storage",
    }


# ---- several metrics


def many(asked, arms, metrics, rng, mean=0.0):
    cells = {arm.name: {seed: CellRecord(arm.name, seed) for seed in asked.seeds} for arm in arms}
    for metric in metrics:
        values = {
            arm.name: (0.0 if arm.is_baseline else mean) + rng.standard_normal(len(asked.seeds))
            for arm in arms
        }
        cells = with_metrics(cells, cells_of(values, metric))
    return cells


METRICS = (
    METRIC,
    "frechet",
    "mmd",
    "validation_loss",
    "colour_accuracy",
    "shape_accuracy",
    "texture_accuracy",
    "size_accuracy",
    "presence_accuracy",
    "extra_objects",
    "mmd_published",
)


def judged_study(asked, arms, cells):
    effects = {metric: effects_on(asked, arms, cells, metric) for metric in METRICS}
    return [confirmed(asked, row) for row in all_findings(asked, arms, cells, effects)]


def test_everything_but_the_primary_metric_is_exploratory():
    asked = plan(arms=("muon",), seeds=tuple(range(8)), primary=METRIC)
    arms = arms_of(asked)
    rows = judged_study(
        asked, arms, many(asked, arms, METRICS, np.random.default_rng(0), mean=20.0)
    )
    assert {row.metric: (row.verdict, row.exploratory) for row in rows} == {
        metric: ("better", False) if metric == METRIC else ("exploratory", True)
        for metric in METRICS
    }
    assert all(row.p_adjusted is not None for row in rows)


@pytest.mark.parametrize("confirm", ["primary", "all"])
def test_with_eleven_metrics_and_nothing_true_no_more_than_alpha_of_studies_have_a_badge(confirm):
    asked = plan(
        arms=("muon", "bf16_storage", "ema(every=2)"),
        seeds=SEEDS,
        primary=METRIC,
        confirm=confirm,
        smallest_effect=1e-6,
        margin_deviations=1e-6,
    )
    arms, rng, wrong, studies = arms_of(asked), np.random.default_rng(1), 0, 100
    for _ in range(studies):
        rows = judged_study(asked, arms, many(asked, arms, METRICS, rng))
        wrong += any(row.verdict in ("better", "worse") for row in rows)
    assert wrong / studies <= 0.05 + 3 * (0.05 * 0.95 / studies) ** 0.5


def test_one_joint_test_over_all_metrics_decides_what_is_large_on_any():
    asked = plan(
        arms=("muon", "bf16_storage"), seeds=tuple(range(8)), primary=METRIC, confirm="all"
    )
    arms = arms_of(asked)
    cells = many(asked, arms, METRICS, np.random.default_rng(3))
    for seed in asked.seeds:
        cells = with_value(cells, "muon", seed, "frechet", value=-50.0 + seed / 10)
    rows = {(row.arm, row.metric): row for row in judged_study(asked, arms, cells)}
    assert rows["muon", "frechet"].verdict == "better" and not any(
        row.exploratory for row in rows.values()
    )
    assert rows["muon", "mmd"].verdict in ("inconclusive", "tie")


def test_an_interaction_and_a_trend_take_the_seeds_that_their_own_sides_have():
    asked = plan(
        arms=("ema(every=2)",), interactions=(("muon", "tread"),), seeds=SEEDS, primary=METRIC
    )
    arms, rng = arms_of(asked), np.random.default_rng(2)
    cells = cells_of(
        {arm.name: noise(rng, 0.9 if " + " in arm.name else 0.5) for arm in arms}, METRIC
    )
    del cells["ema(every=2)"]
    (row,) = interactions(asked, arms, cells, METRIC)
    assert (row.n, row.verdict) == (6, "better together")
    del cells["tread"][0]
    assert interactions(asked, arms, cells, METRIC)[0].n == 5
    lost = with_failed(cells, {"tread": {0: "collapsed"}})
    assert interactions(asked, arms, lost, METRIC)[0].verdict == "inconclusive"

    scales = [
        {"name": name, "settings": [f"model.width={width}"]}
        for name, width in (("s", 32), ("l", 64))
    ]
    for order in (["muon", "repa"], ["repa", "muon"]):
        asked = from_plain(
            {**plan(seeds=SEEDS, primary=METRIC).model_dump(), "arms": order, "scales": scales}
        )
        arms = arms_of(asked)
        cells = cells_of(
            {arm.name: noise(rng, 0.9 if arm.name == "muon [l]" else 0.5) for arm in arms}, METRIC
        )
        del cells["repa [l]"], cells["repa [s]"][2]
        (row,) = trends(asked, arms, cells, METRIC)
        assert (row.arm, row.n, row.verdict) == ("muon", 6, "grows")


# ---- floors


@pytest.mark.parametrize(("mean", "verdict"), [(0.2, "not learned"), (0.6, "tie")])
def test_a_tie_at_the_metrics_floor_is_no_tie(mean, verdict):
    asked = plan(arms=("muon",), seeds=SEEDS, primary=METRIC, smallest_effect=0.05)
    values = tuple(mean + one for one in (0.01, -0.01, 0.0, 0.02, -0.02, 0.0))
    cells = cells_of({"baseline": values, "muon": values[::-1]}, METRIC)
    more = {"floors": {"noise": 0.21, "grey": 0.0}, "ceiling": 0.98}
    for arm, seed in [(arm, seed) for arm in cells for seed in SEEDS]:
        card = cells[arm][seed].metrics[METRIC].card | more
        cells = with_value(cells, arm, seed, METRIC, card=card)
    (row,) = findings(asked, arms_of(asked), cells, METRIC)
    assert row.verdict == verdict
    assert ("train longer" in row.note and "noise) get 0.21" in row.note) == (
        verdict == "not learned"
    )
    shown = shown_metric(METRIC, cells, "baseline")
    assert (shown.floors["noise"], shown.ceiling, shown.agreement) == (0.21, 0.98, "")


def test_two_judges_that_agree_say_how_far():
    first = {"baseline": (0.2, 0.3, 0.4), "muon": (0.6, 0.7, 0.8)}
    cells = cells_of(first, "attribute_f1")
    # the second has not looked
    assert shown_metric("attribute_f1", cells, "baseline").agreement == ""
    second = {arm: [one + 0.05 for one in values] for arm, values in first.items()}
    cells = with_metrics(cells, cells_of(second, "attribute_f1_second"))
    words = shown_metric("attribute_f1", cells, "baseline").agreement
    assert (
        words == "over 6 cells the two judges correlate at 1.00, and their values lie 0.05 apart on"
        " average"
    )
    assert shown_metric("attribute_f1_second", cells, "baseline").agreement == ""


# ---- speed


@pytest.mark.parametrize("confirm", ["primary", "all"])
def test_a_large_study_is_judged_in_two_seconds(confirm, tmp_path, monkeypatch):
    """25 arms, 12 pairs, 14 metrics: from measurements to effects with verdicts, claims and what
    could have been seen."""
    levers = [f"ema(every=2, half_life={0.01 + 0.001 * k:.3f})" for k in range(25)]
    asked = plan(arms=tuple(levers), seeds=tuple(range(12)), primary=METRIC, confirm=confirm)
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    cells = many(asked, layout.arms, SHOWN, np.random.default_rng(4))
    monkeypatch.setattr(result, "collect", lambda *asked: cells)
    monkeypatch.setattr(result, "grids", lambda *asked: None)  # no cell has left its pictures
    begun = time.process_time()
    assembled = result.assemble_result(asked, layout, tmp_path, "")
    assert time.process_time() - begun < 2.0
    assert len(assembled.effects) == 25 * len(SHOWN) and all(
        row.detectable for row in assembled.effects
    )


def test_cells_that_were_not_left_alone_are_told_of():
    from fulcrum.studies.result import disturbed

    well = CellRecord("muon", 0)
    back = CellRecord("muon", 1, skipped=8, rolled_back=1)
    assert disturbed({"baseline": {0: well}, "muon": {0: well}}) == []
    (line,) = disturbed({"baseline": {0: well}, "muon": {0: well, 1: back}})
    assert line.text.startswith(
        "muon, seed 1: 8 of its steps were left out and it was rolled back 1 time"
    )
