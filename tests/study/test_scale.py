"""A study of ten thousand finished cells is judged in seconds."""

import json
import os

import numpy as np
import pytest

from fulcrum.files.sealed import write_sealed
from fulcrum.levers.catalog import CATALOG
from fulcrum.study.judge.result import SHOWN, StudyState, assemble_result
from fulcrum.study.run.arm_cost import TimedCost
from fulcrum.study.run.curve_lines import hashes
from fulcrum.study.run.layout import lay_out, measuring
from tests.study.small import plan

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def processor():
    """Seconds that this process has computed; the system's own are the disk's."""
    return os.times().user


def fill(out, layout, how, seed=0):
    """Finished cells with the files that a real one leaves, but for its weights."""
    rng = np.random.default_rng(seed)
    record = "".join(json.dumps({"images": 80 * k, "loss": 1.0 / k, "seconds": k}) + "\n" for k in range(1, 41))
    for cell in layout.cells:
        folder = out / cell.key
        folder.mkdir(parents=True)
        level = 1.0 + 0.1 * rng.standard_normal()
        metrics = {
            name: {
                "value": level + 0.01 * rng.standard_normal(),
                "low": 0.0,
                "high": 9.0,
                "card": {
                    "metric": name,
                    "better": "higher",
                    "estimator": "as usual",
                    "interval": "as usual",
                    "n": 512,
                    "prompts": "abc",
                },
            }
            for name in SHOWN
        }
        result = {"key": cell.key, "weights_sha256": cell.key, "images": 48, "seconds": 1.0}
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "record.jsonl").write_text(record)
        (folder / "curve.jsonl").write_text(
            "".join(
                json.dumps({"images": 8 * k, "seconds": k, "validation_loss": level / k, "bins": []}) + "\n"
                for k in range(1, 7)
            )
        )
        write_sealed(folder / f"pictures-{how}.json", {"prompts": ["a"], "pictures": [PIXEL]})
        write_sealed(
            folder / f"measured-{how}.json",
            {
                "arm": cell.arm,
                "seed": cell.seed,
                "key": cell.key,
                "result": result,
                "lines": hashes(folder),
                "metrics": metrics,
                "seconds": {"training": 1.0, "evaluation": 1.0},
            },
        )


@pytest.mark.slow
def test_ten_thousand_cells_are_judged_in_ten_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)  # only of the files made here
    asked = plan(arms=tuple(f"muon(lr_ratio={0.01 * k:.2f})" for k in range(1, 100)), seeds=tuple(range(100)))
    begun = processor()
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    laid = processor() - begun
    fill(tmp_path, layout, measuring(asked).how)
    costs = {
        arm.name: TimedCost(flops_ratio=1.0, time_ratio=1.02 if arm.changes else 1.0, parameters_ratio=1.0)
        for arm in layout.arms
    }
    begun = processor()
    result = assemble_result(asked, layout, tmp_path, "fulcrum study run x.toml", StudyState(costs=costs))
    judged = processor() - begun
    assert result.state == "finished" and len(layout.cells) == 10_000
    assert len([row for row in result.effects if row.unit == "images"]) == 99 * len(SHOWN)
    assert laid + judged < 10.0, f"judged in {judged:.1f} s of processor time, laid out in {laid:.1f} s"
    print(f"laid out in {laid:.1f} s, judged in {judged:.1f} s")
