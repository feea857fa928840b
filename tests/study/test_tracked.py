"""A study's trackers: grouped by study, arm and seed; told what is measured too; refused early;
outside the plan's hash."""

import json
import sys

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.run import System
from fulcrum.studies import study as study_run
from fulcrum.studies.cell import Tracked, finished, lay_out, measuring
from fulcrum.studies.cell_training import run_cell
from fulcrum.studies.frozen_plan import changed_since, freeze
from fulcrum.studies.plan_file import load
from fulcrum.studies.runner import Lane, Work, run_all
from fulcrum.studies.study import run
from tests.cells_here import Here, lighten
from tests.fake_wandb import WANDB
from tests.study.small import plan


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        name: [(one.step, one.value) for one in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Shared, for the cache in it."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    lighten(monkeypatch)


def test_trackers_are_outside_the_plan_that_is_frozen(tmp_path):
    watched = plan(track=("tensorboard",))
    assert watched.hash == plan().hash
    assert freeze(watched, tmp_path) == freeze(plan(), tmp_path)  # one folder, either first
    other = freeze(plan(seeds=(0, 1, 2), track=("wandb",)), tmp_path)
    assert changed_since(plan(seeds=(0, 1, 2)), other).endswith(
        "seeds changed; it has a page of its own"
    )


def test_a_plan_names_its_trackers(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(
        'title = "t"\nbaseline = "spark"\narms = ["muon"]\nseeds = [0, 1]\ntrack = ["tensorboard",'
        ' "wandb"]\n'
    )
    assert load(path).track == ("tensorboard", "wandb")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("wandb", "needs the package wandb"), ("tensorbord", "no tracker is called")],
)
def test_a_tracker_that_cannot_be_had_is_refused_before_the_first_cell(
    tmp_path, monkeypatch, name, expected
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda asked: None)
    with pytest.raises(BadInput, match=expected):
        run(plan(track=(name,)), CATALOG, tmp_path, "x", lambda text: None)
    assert not list(tmp_path.iterdir())


def test_a_study_hands_its_trackers_to_every_worker(tmp_path, monkeypatch):
    heard = []

    class Deaf(Lane):
        def ask(self, cell):
            heard.append(self.work.setup())
            return {"key": cell.key, "ok": False, "error": "deaf", "hint": ""}

    monkeypatch.setattr(study_run, "Lane", Deaf)
    monkeypatch.setattr(study_run, "prove_by_steps", lambda *given: None)
    asked = plan(track=("tensorboard",), title="A / study")
    with pytest.raises(RunFailed, match="deaf"):
        run(asked, CATALOG, tmp_path, "x", lambda text: None)
    (study,) = tmp_path.glob("study-*")
    assert {(one["track"], one["group"]) for one in heard} == {
        (("tensorboard",), f"A / study {study.name[6:14]}")
    }


def test_the_real_tensorboard_shows_cells_and_what_was_measured(out):
    pytest.importorskip("tensorboard", reason="pip install 'fulcrum-lab[tensorboard]' to run this")
    asked = plan(arms=("bf16_storage",), evaluations=(0.5, 1.0))
    cells, how = lay_out(asked, CATALOG, {}, out).cells[:2], measuring(asked).how
    work = Work(out, System(), measuring(asked), (), tracked=Tracked(("tensorboard",), "A / study"))
    run_all(cells, work, 1, lambda board: None, lane=Here)
    group = out / "tensorboard" / "A_study"
    # less the run's key
    places = {path.relative_to(group).as_posix().rpartition("-")[0] for path in group.glob("*/*")}
    assert places == {"baseline/seed-0", "bf16_storage/seed-0"}
    for cell in cells:
        events, outcome = (
            scalars(group / cell.arm / f"seed-{cell.seed}-{cell.key[:8]}"),
            finished(out, cell, how),
        )
        assert events["train/loss"][-1][0] == 48
        for name, value in outcome["metrics"].items():
            half, end = events[f"quality/{name}"]
            assert (half[0], end[0]) == (24, 48) and end[1] == pytest.approx(
                value["value"], rel=1e-6
            )


def test_wandb_is_told_by_study_arm_and_seed_and_a_cell_that_is_only_measured_goes_on_there(
    out, tmp_path, monkeypatch
):
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "wandb.py").write_text(WANDB)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    asked = plan(arms=("muon",))
    cell = lay_out(asked, CATALOG, {}, out).cells[1]

    def told():
        run_cell(
            cell,
            out,
            System(),
            measuring(asked),
            lambda text: None,
            tracked=Tracked(("wandb",), "a study"),
        )
        return json.loads((out / "wandb.json").read_text())

    tracked = told()
    assert (tracked["given"]["group"], tracked["given"]["job_type"], tracked["given"]["id"]) == (
        "a study",
        "muon",
        cell.key,
    )
    measured = finished(out, cell, measuring(asked).how)["metrics"]
    last = {"images": 48} | {f"quality/{name}": value["value"] for name, value in measured.items()}
    assert tracked["lines"][-1] == last and "train/loss" in tracked["lines"][0]
    # killed before it was measured
    (out / cell.key / f"measured-{measuring(asked).how}.json").unlink()
    again = told()
    assert again["given"]["id"] == cell.key and again["lines"] == [last]
    sys.modules.pop("wandb", None)
