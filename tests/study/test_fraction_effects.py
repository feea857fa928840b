"""A fractional study judged, on numbers that were planted, and shown."""

import numpy as np
import pytest

from fulcrum.judge.effects import few_seeds, fraction_effects, lever_contrasts, lever_costs
from fulcrum.judge.fraction import alias_strings, fraction_table
from fulcrum.judge.page import render
from fulcrum.judge.power import fraction_detectable, one_at_a_time
from fulcrum.judge.schema import ArmCost
from fulcrum.levers.catalog import CATALOG
from fulcrum.studies.arms import wanted
from fulcrum.studies.cell import lay_out
from fulcrum.studies.estimate import estimate
from fulcrum.studies.outline import outline
from fulcrum.studies.runner import room
from fulcrum.studies.study import run
from tests.cells_here import all_here
from tests.study.fractional import FOUR, fraction, levers
from tests.study.small import arms_of, cells_of, with_failed

pytestmark = pytest.mark.long

METRIC = "attribute_accuracy"


def planted(asked, noise, effects=None, pair=None, seed=0):
    """arm -> values by seed: every lever moves the cells that have it, a pair those that have
    both."""
    rng, values = np.random.default_rng(seed), {}
    seeds = rng.standard_normal(len(asked.seeds))  # each moves all cells alike
    for one in wanted(asked):
        has = {lever for lever in asked.stack if lever in one.name.split(" + ")}
        value = 0.5 + sum((effects or {}).get(lever, 0.0) for lever in has)
        value += pair[1] if pair and set(pair[0]) <= has else 0.0
        values[one.name] = value + seeds + noise * rng.standard_normal(len(asked.seeds))
    return values


def judged(asked, values, failed=None, lost=()):
    cells = cells_of(values, METRIC)
    for arm, seed in lost:
        del cells[arm][seed]
    return fraction_effects(asked, arms_of(asked), with_failed(cells, failed or {}), METRIC)


EIGHT = (
    "muon",
    "bf16_storage",
    "short_captions",
    "uniform_time",
    "min_snr",
    "contrastive_flow",
    "repa",
    "tread",
)


@pytest.fixture(scope="module")
def eight():
    return lambda **changes: fraction(stack=EIGHT, primary=METRIC, smallest_effect=0.02, **changes)


@pytest.mark.parametrize("seeds", [2, 4, 6])
def test_planted_levers_are_found_and_the_others_are_not(eight, seeds):
    asked = eight(seeds=tuple(range(seeds)))
    effects = judged(asked, planted(asked, 0.02, {"muon": 0.08, "repa": -0.06}))
    words = {row.arm: row.verdict for row in effects.levers}
    assert words["muon"] == "better" and words["repa"] == "worse" and len(words) == 8
    assert not {word for lever, word in words.items() if lever not in ("muon", "repa")} & {
        "better",
        "worse",
    }
    best = effects.levers[0]
    assert (
        best.arm == "muon"
        and best.mean == pytest.approx(0.08, abs=0.03)
        and best.low < 0.08 < best.high
    )
    assert best.n == seeds and ("normal" in best.note) == (seeds < 6)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_a_headline_of_few_seeds_keeps_what_their_own_test_is_sure_of(eight, seeds):
    """It was cut by what sign flips of so few pairs say: +0.14 with p 2e-5 was told as about +0.055
    of two seeds."""
    asked = eight(seeds=tuple(range(seeds)))
    effects = judged(asked, planted(asked, 0.01, {"muon": 0.14, "repa": -0.01}))
    best = next(row for row in effects.levers if row.arm == "muon")
    assert best.verdict == "better" and 0.95 * best.mean <= best.shrunk <= best.mean
    # one that was picked out just above the bar is told as less than was measured
    for row in effects.levers:
        assert abs(row.shrunk) <= abs(row.mean) and (
            row.verdict in ("better", "worse") or row.shrunk == row.mean
        )


def test_a_contrast_is_the_mean_with_minus_the_mean_without():
    table = fraction_table(levers(4))
    values = np.arange(16.0).reshape(2, 8) ** 2
    by_hand = [[row[on].mean() - row[~on].mean() for on in table.on.T] for row in values]
    assert lever_contrasts(values, table) == pytest.approx(np.array(by_hand))


@pytest.mark.parametrize("seeds", [2, 6])
def test_a_chosen_pair_is_found_and_an_unchosen_one_shows_in_its_string(eight, seeds):
    chosen, seeds = (("muon", "repa"),), tuple(range(seeds))
    asked = eight(interactions=chosen, seeds=seeds)
    effects = judged(asked, planted(asked, 0.02, pair=(chosen[0], 0.2)))
    (row,) = effects.interactions
    assert (
        {row.a, row.b} == {"muon", "repa"}
        and row.verdict == "better together"
        and row.mean == pytest.approx(0.2, abs=0.06)
    )
    assert all((string.p_adjusted or 0) > 0.05 for string in effects.strings)
    other = ("bf16_storage", "short_captions")
    # what stands with the chosen one could not be told from it
    beside = alias_strings(fraction_table(EIGHT, chosen))[0]
    assert all(set(pair) != set(other) for pair in beside)
    effects = judged(asked, planted(asked, 0.02, pair=(other, 0.2)))
    first, *rest = effects.strings
    assert any(set(pair) == set(other) for pair in first.pairs) and first.mean == pytest.approx(
        0.2, abs=0.06
    )
    assert first.p_adjusted <= 0.05 and all(string.p_adjusted > 0.05 for string in rest)
    assert effects.interactions[0].verdict != "better together"
    # half of the pair's cells have the partner: half its size
    means = {row.arm: row.mean for row in effects.levers}
    assert means["bf16_storage"] == pytest.approx(0.1, abs=0.03) and abs(means["muon"]) < 0.03
    strings = judged(asked, planted(asked, 0.02, pair=(other, -0.2))).strings
    assert strings[0].mean == pytest.approx(-0.2, abs=0.06), (
        "the surest first, also where it is the worst"
    )
    assert [one.p_adjusted for one in strings] == sorted(one.p_adjusted for one in strings)


def test_a_failed_combination_silences_no_lever_and_helps_none(eight):
    asked = eight(seeds=(0, 1, 2, 3))
    values = planted(asked, 0.01, {"muon": 0.08, "tread": -0.08, "repa": 0.05})
    arm = next(
        name
        for name in values
        if {"muon", "tread"} <= set(name.split(" + ")) and "repa" not in name
    )
    effects = judged(
        asked,
        values,
        {arm: dict.fromkeys(range(4), "collapsed")},
        [(arm, seed) for seed in range(4)],
    )
    words = {row.arm: row.verdict for row in effects.levers}
    assert (
        words["muon"] == "inconclusive" and words["tread"] == "worse" and words["repa"] == "better"
    )
    (row,) = (row for row in effects.levers if row.arm == "muon")
    assert "4 of 32 cells with it failed, 0 of 32 without it: survivors alone" in " ".join(
        row.warnings
    )
    assert row.mean == pytest.approx(0.08, abs=0.02)
    waiting = judged(asked, values, {}, [(arm, 3)])  # not failed: that seed waits
    assert {row.n for row in waiting.levers} == {3}


def test_a_lever_with_which_everything_fails_has_failed_and_the_others_are_judged(eight):
    asked = eight(seeds=(0, 1, 2, 3))
    values = planted(asked, 0.01, {"repa": 0.08})
    gone = [name for name in values if "muon" in name.split(" + ")]
    effects = judged(
        asked,
        values,
        {name: dict.fromkeys(range(4), "collapsed") for name in gone},
        [(name, s) for name in gone for s in range(4)],
    )
    assert [(row.arm, row.verdict) for row in effects.failed] == [("muon", "failed")]
    assert {row.arm: row.verdict for row in effects.levers}["repa"] == "better" and len(
        effects.levers
    ) == 7


def test_the_verdict_does_not_hang_on_a_metric_that_one_cell_lacks(eight):
    asked = eight(seeds=(0, 1, 2))
    values = planted(asked, 0.01, {"repa": 0.08})
    values["baseline"][1] = np.nan
    assert {row.arm: row.verdict for row in judged(asked, values).levers}["repa"] == "better"


def test_two_seeds_of_no_effect_err_no_more_often_than_the_plan_says():
    """Noise of any shape, and effects that differ from seed to seed, in which the textbook's
    residual errs in 10-20 %."""
    table, rng, studies = fraction_table(levers(8)), np.random.default_rng(7), 3000
    for name, cells in {
        "normal": rng.standard_normal((studies, 2, 16)),
        "skewed": rng.exponential(1.0, (studies, 2, 16)),
        "heavy": rng.standard_t(3, (studies, 2, 16)),
        "unequal": rng.standard_normal((studies, 2, 16))
        / np.sqrt(rng.gamma(3.0, 1.0, (studies, 1, 16))),
        "of levers": rng.standard_normal((studies, 2, 16))
        + 0.5 * rng.standard_normal((studies, 2, 8)) @ table.signs.T,
    }.items():
        contrasts = cells @ table.signs / 8.0
        errors = (few_seeds(contrasts, contrasts)[0] <= 0.05).any(axis=1).mean()
        assert errors <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / studies), name


def test_two_seeds_of_sixteen_combinations_answer_for_eight_levers():
    """What 32 cells, one lever at a time, cannot: three seeds decide nothing."""
    table, rng = fraction_table(levers(8)), np.random.default_rng(8)
    cells = (
        rng.standard_normal((2000, 2, 16))
        + rng.standard_normal((2000, 2, 1))
        + 2.0 * table.on[:, 0]
    )
    contrasts = cells @ table.signs / 8.0
    assert (few_seeds(contrasts, contrasts)[0][:, 0] <= 0.05).mean() > 0.8


def test_a_lever_costs_what_it_costs_over_all_combinations():
    asked = fraction()
    arms = arms_of(asked)
    costs = {
        arm.name: ArmCost(time_ratio=2.0 if "muon" in arm.name else 1.0, flops_ratio=1.0)
        for arm in arms
    }
    spent = lever_costs(asked, arms, costs)
    assert spent["muon"].time_ratio == pytest.approx(2.0) and spent[
        "bf16_storage"
    ].time_ratio == pytest.approx(1.0)
    assert spent["muon"].memory_ratio is None


def test_a_fraction_is_run_judged_and_shown(tmp_path, monkeypatch):
    all_here(monkeypatch)
    asked = fraction(interactions=(("muon", "short_captions"),), primary=METRIC)
    result, page = run(asked, CATALOG, tmp_path, "fulcrum study run small.toml", print)
    assert result.state == "finished" and [arm.name for arm in result.arms] == ["baseline", *FOUR]
    assert len(result.combinations) == 7 and all(len(arm.cells) == 2 for arm in result.trained)
    primary = [row for row in result.effects if row.metric == METRIC]
    assert {row.arm for row in primary} == set(FOUR) and all(
        row.n == 2 and not row.exploratory for row in primary
    )
    assert len(result.fraction.strings) == 2 and len(result.interactions) >= 1
    assert all(arm.cost.time_ratio for arm in result.arms[1:])
    shown = page.read_text()
    for words in (
        "8 of 16 combinations, each under 2 seeds",
        "Combinations",
        "taken to be normal",
        "Muon × Short captions",
    ):
        assert words in shown, words
    assert "cannot decide anything" not in shown and "compound" not in shown
    assert render(type(result).model_validate_json(page.with_suffix(".json").read_text())) == shown
    again, _ = run(asked, CATALOG, tmp_path, "again", print)
    assert [row.model_dump() for row in again.effects] == [
        row.model_dump() for row in result.effects
    ]


def test_a_fraction_in_words_says_what_stands_together_and_what_it_can_see(tmp_path, eight):
    asked = eight(interactions=(("muon", "repa"),), seeds=(0, 1, 2, 3))
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    text = outline(
        asked, layout, estimate(asked, layout, tmp_path, timed=False), room([layout.arms[0].run], 1)
    )
    for words in (
        "16 combinations x 4 paired seeds = 64 cells",
        "16 of 256 combinations, x where a lever is on",
        "muon              . x . x",
        "The chosen pair muon × repa stands with",
        "those in a line cannot be told apart",
        "one lever at a time, as many cells (64) are 7 seeds of each, and see only effects",
        "4 seeds decide by normal theory",
    ):
        assert words in text, words
    assert "compound" not in text and "cannot reach significance" not in text


def test_more_seeds_and_combinations_see_more_and_more_than_one_at_a_time(eight):
    sizes = [fraction_detectable(eight(seeds=tuple(range(seeds)))) for seeds in (2, 3, 5)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] < 2.5
    assert fraction_detectable(eight(seeds=(0, 1, 2), combinations=32)) < sizes[1]
    # 32 cells on nine arms: three seeds decide nothing
    assert one_at_a_time(eight(seeds=(0, 1))) == (3, None)
    seeds, visible = one_at_a_time(eight(seeds=(0, 1, 2, 3)))
    assert seeds == 7 and visible > 1.3 * fraction_detectable(eight(seeds=(0, 1, 2, 3)))
