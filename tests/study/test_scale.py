"""A study of ten thousand finished cells is judged in seconds."""

import os

import numpy as np
import pytest

from fulcrum.judge.metrics import SHOWN
from fulcrum.judge.schema import TimedCost
from fulcrum.levers.catalog import CATALOG
from fulcrum.studies.cell import lay_out, measuring
from fulcrum.studies.result import StudyState, assemble_result
from tests.study.small import finish_cell, plan


def processor():
    """Seconds that this process has computed; the system's own are the disk's."""
    return os.times().user


def fill(out, layout, how, seed=0):
    """Finished cells with random values."""
    rng = np.random.default_rng(seed)
    for cell in layout.cells:
        level = 1.0 + 0.1 * rng.standard_normal()
        finish_cell(
            out, cell, how, {name: level + 0.01 * rng.standard_normal() for name in SHOWN}, level
        )


@pytest.mark.slow
def test_ten_thousand_cells_are_judged_in_ten_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)  # only of the files made here
    asked = plan(
        arms=tuple(f"muon(lr_ratio={0.01 * k:.2f})" for k in range(1, 100)), seeds=tuple(range(100))
    )
    begun = processor()
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    laid = processor() - begun
    fill(tmp_path, layout, measuring(asked).how)
    costs = {
        arm.name: TimedCost(
            flops_ratio=1.0, time_ratio=1.02 if arm.changes else 1.0, parameters_ratio=1.0
        )
        for arm in layout.arms
    }
    begun = processor()
    result = assemble_result(
        asked, layout, tmp_path, "fulcrum study run x.toml", StudyState(costs=costs)
    )
    judged = processor() - begun
    assert result.state == "finished" and len(layout.cells) == 10_000
    assert len([row for row in result.effects if row.unit == "images"]) == 99 * len(SHOWN)
    assert laid + judged < 10.0, (
        f"judged in {judged:.1f} s of processor time, laid out in {laid:.1f} s"
    )
    print(f"laid out in {laid:.1f} s, judged in {judged:.1f} s")
