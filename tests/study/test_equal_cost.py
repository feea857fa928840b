"""Equal cost, targets and the front, on curves worked out by hand."""

import pytest

from fulcrum.files.sealed import write_sealed
from fulcrum.judge.effects import effects_on
from fulcrum.judge.equal_cost import at_equal_cost, first_reached, fronts, targets, value_at
from fulcrum.judge.schema import CurvePoint, TimedCost
from fulcrum.levers.catalog import CATALOG
from fulcrum.studies.cell import lay_out, measuring, point_path, unmeasured_on_the_way
from tests.study.small import arms_of, cells_of, finish_cell, plan


def test_curves_are_read_between_their_points():
    curve = [(0.2, 4.0), (0.6, 2.0), (1.0, 1.0)]
    assert (
        value_at(curve, 0.4) == pytest.approx(3.0)
        and value_at(curve, 0.1) is None
        and value_at(curve, 1.0) == 1.0
    )
    assert (
        first_reached(curve, 3.0, "lower") == pytest.approx(0.4)
        and first_reached(curve, 0.5, "lower") is None
    )
    assert (
        first_reached(curve, 5.0, "lower") == 0.2
        and first_reached([(0.5, 0.2), (1.0, 0.6)], 0.4, "higher") == 0.75
    )


def with_curves(values, curves, metric):
    cells = cells_of(values, metric)
    for arm, by_seed in curves.items():
        for seed, line in by_seed.items():
            points = [CurvePoint(images=int(100 * at), values={metric: one}) for at, one in line]
            cells[arm][seed] = cells[arm][seed]._replace(curve=tuple(points), budget=100)
    return cells


def test_a_slower_arm_may_win_at_equal_images_and_lose_at_equal_time():
    asked = plan(arms=("muon",), seeds=(0, 1))
    arms = arms_of(asked)
    curves = {
        "baseline": {s: [(0.25, 4.0), (0.5, 2.0), (1.0, 1.0)] for s in (0, 1)},
        "muon": {s: [(0.25, 4.0), (0.5, 1.9), (1.0, 0.9)] for s in (0, 1)},
    }
    values = {"baseline": (1.0, 1.0), "muon": (0.9, 0.9)}
    cells = with_curves(values, curves, "validation_loss")
    costs = {
        "baseline": TimedCost(flops_ratio=1.0, time_ratio=1.0, parameters_ratio=1.0),
        "muon": TimedCost(flops_ratio=1.1, time_ratio=2.0, parameters_ratio=1.0),
    }
    rows = {row.unit: row for row in at_equal_cost(asked, arms, cells, costs, "validation_loss")}
    assert effects_on(asked, arms, cells, "validation_loss")[0].mean == pytest.approx(-0.1)
    # half the images in the same time: 1.9 against 1.0
    assert rows["time"].mean == pytest.approx(0.9)
    assert rows["time"].note and rows["flops"].mean == pytest.approx(
        0.9 + 1.0 * (1 - 1 / 1.1) / 0.5 - 1.0
    )
    due = {row.unit: row for row in targets(asked, arms, cells, costs, "validation_loss")}
    assert due["images"].ratio == pytest.approx(0.95) and due["time"].ratio == pytest.approx(1.9)
    assert due["images"].reached == due["images"].n == 2


def test_a_target_that_is_not_reached_is_not_a_number():
    asked = plan(arms=("muon",), seeds=(0, 1))
    arms = arms_of(asked)
    curves = {
        "baseline": dict.fromkeys((0, 1), [(0.5, 2.0), (1.0, 1.0)]),
        "muon": dict.fromkeys((0, 1), [(0.5, 3.0), (1.0, 2.0)]),
    }
    values = {"baseline": (1.0, 1.0), "muon": (2.0, 2.0)}
    cells = with_curves(values, curves, "validation_loss")
    (row,) = targets(asked, arms, cells, None, "validation_loss")
    assert (row.reached, row.ratio) == (0, None)


def test_the_front_holds_what_nothing_cheaper_equals():
    arms = arms_of(plan(arms=("muon", "tread", "ema(every=2)")))
    means = {
        "baseline": (0.5, 0.4, 0.6),
        "muon": (0.6, 0.5, 0.7),
        "tread": (0.45, 0.4, 0.5),
        "ema(every=2)": (0.5, 0.4, 0.6),
    }
    costs = {
        "baseline": TimedCost(flops_ratio=1, time_ratio=1, parameters_ratio=1),
        "muon": TimedCost(flops_ratio=1.1, time_ratio=1.2, parameters_ratio=1),
        "tread": TimedCost(flops_ratio=0.8, time_ratio=0.9, parameters_ratio=1),
        "ema(every=2)": TimedCost(flops_ratio=1, time_ratio=1.1, parameters_ratio=1),
    }
    time, flops = fronts(arms, means, costs, "attribute_accuracy")
    assert {point.arm for point in time.points if point.front} == {"baseline", "muon", "tread"}
    assert {point.arm for point in flops.points if point.front} == {
        "baseline",
        "muon",
        "tread",
        "ema(every=2)",
    }


def test_cells_that_another_study_measured_at_their_end_alone_are_counted(tmp_path):
    """Finished cells are shared: a study that asks for points on the way must say that these have
    none."""
    asked = plan(arms=("muon",), evaluations=(0.5, 1.0))
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    assert unmeasured_on_the_way(asked, layout, tmp_path) == ""
    how = measuring(asked).how
    for cell in layout.cells[:3]:
        finish_cell(tmp_path, cell, how, {"attribute_f1": 0.5})
    write_sealed(point_path(tmp_path / layout.cells[0].key, how, 24), {"images": 24, "metrics": {}})
    assert unmeasured_on_the_way(asked, layout, tmp_path).startswith(
        "2 of 3 finished cells were not measured on the way"
    )
    assert unmeasured_on_the_way(plan(arms=("muon",)), layout, tmp_path) == ""
