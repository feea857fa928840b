"""What tests of studies share: the smallest plan, and cells with given values."""

import json
from pathlib import Path

from fulcrum.files.sealed import write_sealed
from fulcrum.judge.cells import CellRecord, MetricValue, failed_seeds
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.preview import hashes
from fulcrum.studies.arms import prove
from fulcrum.studies.judging import judged_arms
from fulcrum.studies.plan import Plan
from fulcrum.studies.result import collect

PIXEL = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5Erk"
    "Jggg=="
)

SMALL = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "data.source.count=64",
    "sample.steps=2",
    "optim.lr=3e-3",
)


def plan(**changes):
    given = {
        "title": "Small",
        "baseline": "spark",
        "arms": ("short_captions", "bf16_storage"),
        "seeds": (0, 1),
        "images": 48,
        "settings": SMALL,
        "samples": 64,
        "compile": False,
        **changes,
    }
    return Plan(**given)


def arms_of(asked):
    """The arms of a plan as the judge reads them."""
    return judged_arms(asked, prove(asked, CATALOG))


def without_times(report):
    """The report's JSON without what a clock decided."""
    report["made"] = report["pareto"] = None
    report["progress"]["seconds_left"] = None
    report["effects"] = [row for row in report["effects"] if row["unit"] != "time"]
    report["time_to_target"] = [row for row in report["time_to_target"] if row["unit"] != "time"]
    for arm in report["arms"]:
        arm["cost"].pop("time_ratio")
        for cell in arm["cells"]:
            for point in cell["curve"]:
                point["seconds"] = None
    return report


def descendants(of):
    """Process ids of a process's children and theirs: a test kills only what it has started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    processes, more = set(), {of}
    while more:
        more = {one for one, parent in parents.items() if parent in more}
        processes |= more
    return processes


def told(pid):
    """The words that a process was started with."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def cells_of(values, metric, better="higher"):
    """arm -> values by seed, as finished cells that hold one metric."""
    card = {"metric": metric, "better": better, "estimator": "", "interval": "", "n": 64}
    return {
        arm: {
            seed: CellRecord(arm, seed, {metric: MetricValue(float(value), card)})
            for seed, value in enumerate(per_seed)
        }
        for arm, per_seed in values.items()
    }


def with_metrics(cells, more):
    """The cells with the metrics of others of the same arms and seeds besides their own."""
    return {
        arm: {
            seed: cell._replace(metrics={**cell.metrics, **more[arm][seed].metrics})
            for seed, cell in by_seed.items()
        }
        for arm, by_seed in cells.items()
    }


def with_value(cells, arm, seed, metric, **changes):
    """The cells with another value or card of one metric on one cell."""
    cell = cells[arm][seed]
    metrics = {**cell.metrics, metric: cell.metrics[metric]._replace(**changes)}
    return cells | {arm: cells[arm] | {seed: cell._replace(metrics=metrics)}}


def failures(cells, out, how):
    """arm -> seed -> why, of the cells that failed."""
    found = {}
    for arm, by_seed in collect(cells, out, how).items():
        for seed in failed_seeds({arm: by_seed}, arm):
            found.setdefault(arm, {})[seed] = by_seed[seed].failure
    return found


def with_failed(cells, failed):
    """The cells and those that failed: arm -> seed -> why."""
    lost = {
        arm: {seed: CellRecord(arm, seed, failure=why) for seed, why in by_seed.items()}
        for arm, by_seed in failed.items()
    }
    return {arm: {**cells.get(arm, {}), **lost.get(arm, {})} for arm in {**cells, **lost}}


def finish_cell(out, cell, how, values, level=1.0):
    """The files that a finished cell leaves, but for its weights, with these values of the
    metrics."""
    folder = out / cell.key
    folder.mkdir(parents=True, exist_ok=True)
    card = {
        "better": "higher",
        "estimator": "as usual",
        "interval": "as usual",
        "n": 512,
        "prompts": "abc",
    }
    metrics = {
        name: {"value": float(value), "low": 0.0, "high": 9.0, "card": {"metric": name, **card}}
        for name, value in values.items()
    }
    result = {
        "run": str(folder),
        "key": cell.key,
        "phrase": cell.phrase,
        "weights_sha256": cell.key,
        "images": 48,
    }
    result |= {"seconds": 1.0, "images_per_second": 48.0}
    losses = [{"images": 80 * k, "loss": 1.0 / k, "seconds": k} for k in range(1, 41)]
    held_out = [
        {"images": 8 * k, "seconds": k, "validation_loss": level / k, "bins": []}
        for k in range(1, 7)
    ]
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "record.jsonl").write_text("".join(json.dumps(line) + "\n" for line in losses))
    (folder / "curve.jsonl").write_text("".join(json.dumps(line) + "\n" for line in held_out))
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
