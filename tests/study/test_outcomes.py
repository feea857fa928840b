"""Failures as outcomes: a training that comes to nothing is what its cell found; a mishap is run
again."""

import json
import threading
from typing import ClassVar

import pytest
import torch

from fulcrum.files.sealed import read_sealed, sealed
from fulcrum.levers.base import Card, Swap
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.metrics.base import NoValue
from fulcrum.spec import slots
from fulcrum.spec.errors import BadInput, RunFailed, TrainingFailed
from fulcrum.spec.run import System
from fulcrum.studies import cell as evaluation_points
from fulcrum.studies import study as study_run
from fulcrum.studies.arm_cost import costs
from fulcrum.studies.cell import failed, finished, lay_out, measuring
from fulcrum.studies.estimate import estimate
from fulcrum.studies.frozen_plan import freeze
from fulcrum.studies.plan_file import from_plain
from fulcrum.studies.runner import Work, run_all
from fulcrum.studies.study import run
from fulcrum.studies.worker import answer
from fulcrum.training import loop, session
from tests.cells_here import Here, all_here
from tests.study.small import failures, plan

pytestmark = pytest.mark.long


class BurstWeight(slots.WeightFiller):
    """Times above a bound count infinitely: the loss is not finite as soon as one is drawn."""

    kind: ClassVar[str] = "burst"
    above: float = 0.93

    def build(self, ctx):
        return lambda t: torch.where(t > self.above, torch.inf, 2.0)


class Explosive(Swap):
    """Bursts after a while, for real."""

    name: ClassVar[str] = "explosive"
    slot: ClassVar[str] = "flow.weight"
    filler: ClassVar[type] = BurstWeight
    card: ClassVar[Card] = Card(says="a weight that bursts")

    def witness(self, built):
        return True


OWN = CATALOG._replace(
    levers={**CATALOG.levers, "explosive": Explosive}, fillers=(*CATALOG.fillers, BurstWeight)
)


@pytest.fixture(autouse=True)
def here(monkeypatch):
    all_here(monkeypatch)


def asked(**changes):
    return plan(**{"arms": ("short_captions", "bf16_storage"), "images": 32, **changes})


class Doomed(Here):
    """The cells named here fail in the middle of their training, as a loss that is not finite
    does."""

    names: ClassVar[set[tuple[str, int]]] = set()
    ran: ClassVar[list[tuple[str, int]]] = []

    #: cells run side by side, each on its lane's thread
    here: ClassVar[threading.local] = threading.local()

    def ask(self, cell):
        self.ran.append((cell.arm, cell.seed))
        self.here.cell = (cell.arm, cell.seed)
        return super().ask(cell)


@pytest.fixture
def doomed(monkeypatch):
    gradients = loop.gradients

    def burst(built, images, feed=None):
        if images >= 16 and getattr(Doomed.here, "cell", None) in Doomed.names:
            raise TrainingFailed(f"the step at {images} images is not finite", "lower optim.lr")
        return gradients(built, images, feed)

    monkeypatch.setattr(loop, "gradients", burst)
    monkeypatch.setattr(study_run, "Lane", Doomed)
    monkeypatch.setattr(Doomed, "ran", [])

    def choose(*names):
        monkeypatch.setattr(Doomed, "names", set(names))
        return Doomed.ran

    return choose


def test_a_failed_cell_is_what_was_found_and_the_study_ends_well(doomed, tmp_path):
    lines, ran = [], doomed(("short_captions", 1))
    result, page = run(asked(), CATALOG, tmp_path, "x", lines.append)
    how = measuring(asked()).how
    (cell,) = [
        one
        for one in lay_out(asked(), CATALOG, {}, tmp_path).cells
        if one.arm == "short_captions" and one.seed == 1
    ]
    outcome = read_sealed(tmp_path / cell.key / f"failed-{how}.json", "")
    assert (outcome["arm"], outcome["seed"], outcome["key"], outcome["images"]) == (
        "short_captions",
        1,
        cell.key,
        16,
    )
    assert "not finite" in outcome["why"] and outcome["machine"]["torch"]
    assert failures(lay_out(asked(), CATALOG, {}, tmp_path).cells, tmp_path, how) == {
        "short_captions": {1: "the step at 16 images is not finite"}
    }
    shown = {(arm.name, one.seed): one for arm in result.arms for one in arm.cells}
    assert [place for place, one in shown.items() if one.state != "done"] == [("short_captions", 1)]
    assert (
        shown["short_captions", 1].state == "failed"
        and "not finite" in shown["short_captions", 1].failure
    )
    assert all(one.machine for one in shown.values())
    assert (
        result.state == "finished"
        and page.is_file()
        and (result.progress.done, result.progress.failed) == (5, 1)
    )
    assert any("1 of 6 cells failed: short_captions, seed 1" in line for line in lines) and any(
        ", 1 failed," in line for line in lines
    )
    assert len(ran) == 6


def test_a_failed_cell_is_run_again_only_when_asked(doomed, tmp_path):
    ran = doomed(("short_captions", 1))
    first, _ = run(asked(), CATALOG, tmp_path, "x", lambda text: None)
    ran.clear()
    doomed()  # it would end well now
    again, _ = run(asked(), CATALOG, tmp_path, "x", lambda text: None)
    assert not ran and again.progress == first.progress
    assert estimate(asked(), lay_out(asked(), CATALOG, {}, tmp_path), tmp_path).seconds == 0
    anew, _ = run(asked(), CATALOG, tmp_path, "x", lambda text: None, retry_failed=True)
    assert ran == [("short_captions", 1)] and anew.progress.done == 6 and anew.progress.failed == 0
    assert not list(tmp_path.glob("*/failed-*"))


def test_a_study_without_a_baseline_has_no_answer_and_says_so(doomed, tmp_path):
    doomed(("baseline", 0), ("baseline", 1), ("bf16_storage", 0))
    with pytest.raises(
        RunFailed, match="no cell of the baseline was finished.*3 of 6 cells failed"
    ) as error:
        run(asked(), CATALOG, tmp_path, "x", lambda text: None)
    assert "optim.lr" in error.value.hint
    page = json.loads((freeze(asked(), tmp_path) / "report.json").read_text())
    assert page["state"] == "finished" and page["progress"]["failed"] == 3


def test_an_outcome_that_was_damaged_is_set_aside_and_the_cell_runs_again(doomed, tmp_path):
    ran = doomed(("short_captions", 1))
    run(asked(), CATALOG, tmp_path, "x", lambda text: None)
    (path,) = tmp_path.glob("*/failed-*.json")
    outcome = json.loads(path.read_text())
    no_reason = json.dumps(
        sealed({name: outcome[name] for name in outcome if name not in ("why", "check")})
    )
    for harm in ('{"why": "edi', json.dumps({**outcome, "why": "no reason"}), "[]", no_reason):
        path.write_text(harm)
        ran.clear()
        run(asked(), CATALOG, tmp_path, "x", lambda text: None)
        assert (
            ran == [("short_captions", 1)]
            and path.is_file()
            and path.with_name(f"damaged-{path.name}").is_file()
        )


def test_a_finished_cell_has_not_failed(doomed, tmp_path):
    doomed(("short_captions", 1))
    run(asked(), CATALOG, tmp_path, "x", lambda text: None)
    how, cells = measuring(asked()).how, lay_out(asked(), CATALOG, {}, tmp_path).cells
    cell = next(one for one in cells if one.arm == "short_captions" and one.seed == 1)
    work = Work(tmp_path, System(), measuring(asked()), ())
    assert answer(json.loads(json.dumps(work.asked(cell))), work.setup(), CATALOG)["ok"]
    assert finished(tmp_path, cell, how) and failed(tmp_path, cell, how) is None


def test_what_is_no_fault_of_the_training_is_still_an_error_that_runs_again(tmp_path, monkeypatch):
    def broken(*step):
        raise KeyError("a bug of a user's lever")

    monkeypatch.setattr(loop, "gradients", broken)
    with pytest.raises(RunFailed, match="4 of 4 cells failed.*a bug"):
        work = Work(tmp_path, System(), measuring(asked()), ())
        run_all(
            lay_out(asked(arms=("bf16_storage",)), CATALOG, {}, tmp_path).cells,
            work,
            1,
            lambda board: None,
            lane=Here,
        )
    assert not list(tmp_path.glob("*/failed-*"))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (BadInput("no teacher fits", "choose another"), "was refused: no teacher fits"),
        (FloatingPointError("underflow"), "failed: FloatingPointError: underflow"),
    ],
)
def test_a_part_that_refuses_at_run_time_is_an_outcome(tmp_path, monkeypatch, error, says):
    cell = lay_out(asked(), CATALOG, {}, tmp_path).cells[0]
    work = Work(tmp_path, System(), measuring(asked()), ())
    built = session.assemble

    def refusing(*given):
        parts = built(*given)

        class Refusing(type(parts.step)):
            steps = 0

            def forward(self, *given):
                self.steps += 1
                if self.steps > 1:  # at the first, what was asked for would be wrong
                    raise error
                return super().forward(*given)

        parts.step.__class__ = Refusing
        return parts

    monkeypatch.setattr(session, "assemble", refusing)
    reply = answer(json.loads(json.dumps(work.asked(cell))), work.setup(), CATALOG)
    assert not reply["ok"] and reply["outcome"] and says in reply["error"]
    assert says in failed(tmp_path, cell, work.measuring.how)["why"]


def test_pictures_that_cannot_be_measured_are_an_outcome(tmp_path, monkeypatch):
    def flat(*given, **more):
        raise NoValue("Fréchet distance is not finite (nan)", "look at the features")

    monkeypatch.setattr(evaluation_points, "measure", flat)
    cell = lay_out(asked(), CATALOG, {}, tmp_path).cells[0]
    work = Work(tmp_path, System(), measuring(asked()), ())
    reply = answer(json.loads(json.dumps(work.asked(cell))), work.setup(), CATALOG)
    assert (
        reply["outcome"]
        and "its pictures cannot be measured: Fréchet distance is not finite" in reply["error"]
    )


def test_a_trunk_that_fails_is_an_error_that_says_what_hangs_on_it(tmp_path, monkeypatch):
    def burst(*step):
        raise TrainingFailed("the step at 8 images is not finite", "lower optim.lr")

    trunked = asked(arms=("bf16_storage",), trunk="spark", trunk_images=16)
    trunk = lay_out(trunked, CATALOG, {}, tmp_path).before[0]
    monkeypatch.setattr(loop, "gradients", burst)
    with pytest.raises(RunFailed, match="trunk, seed 0: the step at 8 images") as error:
        run_all(
            [trunk],
            Work(tmp_path, System(), measuring(trunked), ()),
            1,
            lambda board: None,
            lane=Here,
        )
    assert "every arm of seed 0 begins from it" in error.value.hint


@pytest.mark.slow
def test_the_early_stop_takes_the_pairs_that_are_left(doomed, tmp_path):
    doomed(("bf16_storage", 0), ("baseline", 2))
    stopping = from_plain(
        {
            **asked(seeds=(0, 1, 2), images=64).model_dump(),
            "evaluations": [0.125, 0.5, 1.0],
            "stop_early": {"successive": 2, "level": 0.9},
        }
    )
    result, _ = run(stopping, CATALOG, tmp_path, "x", lambda text: None)
    assert result.state == "finished" and result.progress.failed == 2


@pytest.mark.slow
def test_a_real_burst_is_proven_timed_and_counted(tmp_path, monkeypatch):
    """Nothing is planted here: a time is drawn whose loss is not finite."""

    class Own(Here):
        def ask(self, cell):
            return answer(json.loads(json.dumps(self.work.asked(cell))), self.work.setup(), OWN)

    monkeypatch.setattr(study_run, "Lane", Own)
    bursting = asked(arms=("explosive",), images=160)
    result, _ = run(bursting, OWN, tmp_path, "x", lambda text: None)
    arm = result.arms[1]
    assert {cell.state for cell in arm.cells} == {"failed"} and all(
        "not finite" in cell.failure for cell in arm.cells
    )
    assert arm.cost.time_ratio and result.arms[0].count("done") == 2


def test_an_arm_that_fails_at_once_is_refused_before_anything_runs(tmp_path):
    at_once = asked(arms=("explosive(above=0.0)",))
    with pytest.raises(BadInput, match="the arm 'explosive.above=0.0.' fails in its first steps"):
        run(at_once, OWN, tmp_path, "x", lambda text: None)
    assert not list(tmp_path.glob("*/result.json"))


def test_steps_are_timed_of_an_arm_that_bursts_while_it_is_timed(tmp_path):
    layout = lay_out(asked(arms=("explosive",), images=160), OWN, {}, tmp_path)
    timed = costs(layout.arms, tmp_path / "cache", 1, rounds=6)
    assert timed["explosive"].time_ratio > 0
