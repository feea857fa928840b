"""A plan in words: how many arms its power is reckoned for, at which level, and what a sequential
plan may come to."""

import math

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.studies.cell import lay_out, measuring
from fulcrum.studies.estimate import estimate
from fulcrum.studies.outline import outline
from fulcrum.studies.plan import StopEarly
from fulcrum.studies.runner import Room
from tests.study.small import SMALL, finish_cell, plan

ROOM = Room(1, 1, 1e9, 1e8)


def words(out, **changes):
    asked = plan(**changes)
    layout = lay_out(asked, CATALOG, {}, out)
    return outline(asked, layout, estimate(asked, layout, out, timed=False), ROOM)


@pytest.mark.parametrize(("alpha", "arms"), [(0.05, ("muon",)), (0.1, ("muon", "bf16_storage"))])
def test_power_is_told_with_the_arms_and_the_level_that_it_is_reckoned_for(tmp_path, alpha, arms):
    counted = "1 arm" if len(arms) == 1 else f"{len(arms)} arms"
    text = words(tmp_path, seeds=tuple(range(7)), arms=arms, alpha=alpha)
    assert f"with 7 pairs and {counted} judged together at {alpha:g}, a true difference of" in text


def test_what_every_cell_has_is_told(tmp_path):
    assert (
        "trained on world(count=64, max_objects=2), captions read by world_text; set for every arm:"
        " model.width=32" in words(tmp_path)
    )


def test_what_the_time_leaves_out_is_told(tmp_path):
    """Timed steps know nothing of encoding and measuring, which are most of a short study; finished
    cells do."""
    asked = plan()
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    known = estimate(asked, layout, tmp_path, timed=False)
    steps = outline(
        asked, layout, known._replace(seconds=37.0, by="a few eager steps of 2 arms"), ROOM
    )
    assert "about 37 s of training and drawing left" in steps and "measuring come on top" in steps
    cells = outline(
        asked, layout, known._replace(seconds=37.0, by="2 arms with finished cells"), ROOM
    )
    assert "about 37 s left" in cells and "come on top" not in cells


def test_what_rate_a_late_stage_had_is_told(tmp_path):
    assert "50% of the steps have a mean learning rate of" in words(
        tmp_path, arms=("rate_stage(start=0.5)",)
    )


def test_arms_that_no_early_stop_can_end_are_told(tmp_path):
    """The rate of spark decays over the last half: of four evaluations two lie there before the
    end."""
    quarters, never = (0.25, 0.5, 0.75, 1.0), "stop_early can never end"
    assert f"{never} an arm: fewer than 3 of `evaluations`" in words(
        tmp_path, stop_early=StopEarly(), evaluations=quarters
    )
    for changes in (
        {"stop_early": StopEarly(successive=2), "evaluations": quarters},
        {"stop_early": StopEarly(), "evaluations": (0.5, 0.7, 0.9, 1.0)},
        {
            "stop_early": StopEarly(),
            "evaluations": quarters,
            "settings": (*SMALL, "optim.decay=0.0"),
        },
        {"evaluations": quarters},
    ):
        assert never not in words(tmp_path, **changes)
    late = {
        "arms": ("muon", "rate_stage(start=0.8)"),
        "stop_early": StopEarly(),
        "evaluations": (0.5, 0.7, 0.9, 1.0),
    }
    assert f"{never} rate_stage(start=0.8): " in words(tmp_path, **late)


def test_a_sequential_plan_tells_its_looks_and_the_most_it_can_cost(tmp_path):
    text = words(tmp_path, seeds=tuple(range(16)), looks=(8, 12, 16))
    assert (
        "= 24 to 48 cells" in text
        and "  at most " in text
        and "judged together at 0.05, looked at once" in text
    )
    assert (
        "8 pairs (error spent: 0.031), 12 pairs (error spent: 0.041), 16 pairs (error spent: 0.050)"
        in text
    )
    assert "undecided" not in words(tmp_path) and "at most" not in words(tmp_path)


def test_more_arms_need_larger_effects_with_many_pairs_too(tmp_path):
    """Student's formula, asked from 13 pairs on, knew nothing of the other arms: 80 % promised, a
    third kept."""

    def scatters(count):
        asked = plan(
            seeds=tuple(range(16)),
            arms=tuple(f"muon(lr_ratio={0.01 * number:.2f})" for number in range(1, count + 1)),
        )
        return estimate(
            asked, lay_out(asked, CATALOG, {}, tmp_path), tmp_path, timed=False
        ).scatters

    assert scatters(25) > 1.2 * scatters(1)
    text = words(
        tmp_path,
        seeds=tuple(range(16)),
        arms=tuple(f"muon(lr_ratio=0.{number})" for number in range(1, 10)),
    )
    assert "with 16 pairs and 9 arms judged together at 0.05" in text


def test_a_plan_that_confirms_every_metric_is_reckoned_for_all_of_them(tmp_path):
    """Power was promised as if the arms were judged on the primary metric alone: 1.8 scatters where
    2.3 is true."""
    asked = {"seeds": tuple(range(6)), "arms": ("muon",)}
    text = words(tmp_path, confirm="all", **asked)
    assert (
        "with 6 pairs and 1 arm on 14 metrics judged together at 0.05, a true difference of 2.3"
        " times" in text
    )
    assert (
        "with 6 pairs and 1 arm judged together at 0.05, a true difference of 1.8 times"
        in words(tmp_path, **asked)
    )


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_baseline_without_a_number_under_one_seed_does_not_end_a_plan(tmp_path, strange):
    asked = plan(seeds=tuple(range(6)), arms=("muon",))
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    for cell in (one for one in layout.cells if one.arm == "baseline"):
        value = strange if cell.seed == 2 else 0.5 + 0.01 * cell.seed
        finish_cell(tmp_path, cell, measuring(asked).how, {asked.primary: value})
    assert "from 5 finished baselines that scatter by" in words(
        tmp_path, seeds=tuple(range(6)), arms=("muon",)
    )
