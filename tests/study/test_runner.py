"""The runner: whole studies with cells in this process; a lost worker, edited cells, a full disk,
stopped arms."""

import errno
import json
import os
import signal
import threading
import time
from typing import ClassVar

import pytest

from fulcrum.files import sealed
from fulcrum.levers.base import Card, Lever
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.run import System
from fulcrum.studies.cell import finished, lay_out, measuring
from fulcrum.studies.estimate import estimate
from fulcrum.studies.frozen_plan import changed_since, freeze
from fulcrum.studies.plan_file import from_plain
from fulcrum.studies.runner import PROCESS, Lane, Work, room, run_all
from fulcrum.studies.study import run
from tests.cells_here import Here, all_here
from tests.study.small import SMALL, plan

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def here(request, monkeypatch):
    if "processes" not in request.keywords:
        all_here(monkeypatch)


class Frozen(Lever):
    """Learns nothing: surely worse, and more so the longer it lasts."""

    name: ClassVar[str] = "frozen"
    touches: ClassVar[tuple[str, ...]] = ("optim.lr",)
    card: ClassVar[Card] = Card(says="a rate of next to nothing")

    def edit(self, run):
        return put(run, "optim.lr", 1e-7)

    def witness(self, built):
        return True


OWN = CATALOG._replace(levers={**CATALOG.levers, "frozen": Frozen})


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.mark.slow
def test_a_trunk_a_sweep_and_evaluation_points_in_one_study(out):
    asked = from_plain(
        {
            **plan().model_dump(),
            "arms": ["muon"],
            "trunk": "spark",
            "trunk_images": 16,
            "evaluations": [0.5, 1.0],
            "learning_rates": {"sweep": [0.1, 1], "share": 0.5, "seeds": [9]},
        }
    )
    before = estimate(asked, lay_out(asked, CATALOG, {}, out), out, timed=False)
    assert (before.cells, before.finished, before.before) == (
        4,
        0,
        7,
    ) and "not known" in before.noise
    result, _ = run(asked, CATALOG, out, "x", lambda text: None)
    layout = lay_out(asked, CATALOG, {}, out)
    assert result.state == "finished" and all(cell.known for cell in layout.cells)
    assert {cell.run.start.run for cell in layout.cells} == {cell.key for cell in layout.before[:2]}
    assert [sweep.arm for sweep in result.sweeps] == ["baseline", "muon"]
    for arm, sweep in zip(layout.arms, result.sweeps, strict=True):
        best = min(sweep.tries, key=lambda one: one.value)
        assert sweep.chosen == best.rate == arm.run.optim.lr and sweep.images == 2 * 24
    curve = result.arms[1].cells[0].curve
    assert [point.images for point in curve if "frechet" in point.values] == [24, 48]
    timed = [
        row
        for row in result.effects
        if row.metric == "attribute_f1" and row.unit in ("time", "flops")
    ]
    assert (
        timed
        and any("swept" in remark for remark in result.remarks)
        and result.pareto
        and result.time_to_target
    )
    after = estimate(asked, layout, out)
    # two pairs detect nothing
    assert after.finished == 4 and after.seconds == 0 and after.detectable is None
    assert "finished baselines" in after.noise


@pytest.mark.slow
def test_leave_one_out_interactions_and_scales_end_with_a_page(out):
    stacked = plan(arms=(), design="leave_one_out", stack=("muon", "bf16_storage"))
    stack, _ = run(stacked, CATALOG, out, "x", lambda text: None)
    assert [arm.name for arm in stack.arms] == ["baseline", "without muon", "without bf16_storage"]
    assert all(row.claim_verdict is None for row in stack.effects)
    pairs, _ = run(
        plan(arms=(), interactions=(("muon", "bf16_storage"),)),
        CATALOG,
        out,
        "x",
        lambda text: None,
    )
    assert [(row.a, row.b) for row in pairs.interactions if row.metric == "frechet"] == [
        ("muon", "bf16_storage")
    ]
    both = from_plain(
        {
            **plan(arms=("muon",)).model_dump(),
            "scales": [
                {"name": "short", "settings": ["budget.images=24"]},
                {"name": "long", "settings": ["budget.images=48"]},
            ],
        }
    )
    grown, page = run(both, CATALOG, out, "x", lambda text: None)
    assert [row.arm for row in grown.trends if row.metric == "frechet"] == ["muon"]
    assert grown.trends[0].axis.startswith("log2")
    assert [scale.at for scale in grown.scales] == [0.0, 1.0] and page.is_file()


@pytest.mark.slow
def test_a_hopeless_arm_is_stopped_and_counted_as_censored(out):
    asked = from_plain(
        {
            **plan(arms=("frozen", "bf16_storage"), seeds=(0, 1, 2), images=64).model_dump(),
            "primary": "validation_loss",
            "evaluations": [0.25, 0.5, 0.75, 1.0],
            "stop_early": {"successive": 2, "level": 0.9},
            "settings": (*SMALL, "optim.warmup=0.0"),
        }
    )
    lines = []
    result, _ = run(asked, OWN, out, "x", lines.append)
    frozen = next(arm for arm in result.arms if arm.name == "frozen")
    assert {cell.state for cell in frozen.cells} == {"stopped"} and result.state == "finished"
    row = next(row for row in result.effects if row.arm == "frozen")
    assert row.verdict == "inconclusive" and "censored" in row.note and row.low > 0
    assert any("frozen is stopped at" in line for line in lines) and any(
        "censored" in remark for remark in result.remarks
    )
    # the other arm went to its end
    assert {cell.state for cell in result.arms[2].cells} == {"done"}
    again, _ = run(asked, OWN, out, "x", lambda text: None)
    assert again.effects == result.effects  # decided from the same points


# ---- what can go wrong


@pytest.fixture(scope="module")
def done(out):
    asked = plan(arms=("bf16_storage",))
    with pytest.MonkeyPatch.context() as patch:
        all_here(patch)
        run(asked, CATALOG, out, "x", lambda text: None)
    return asked, lay_out(asked, CATALOG, {}, out).cells


def test_a_number_edited_by_hand_is_found(done, out):
    asked, cells = done
    path = out / cells[1].key / f"measured-{measuring(asked).how}.json"
    kept = path.read_text()
    content = json.loads(kept)
    content["metrics"]["frechet"]["value"] /= 2
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match="changed after it was written"):
        run(asked, CATALOG, out, "x", lambda text: None)
    path.write_text((out / cells[0].key / path.name).read_text())
    with pytest.raises(BadInput, match="belongs to the cell"):
        run(asked, CATALOG, out, "x", lambda text: None)
    path.write_text(kept)
    (out / cells[1].key / "result.json").write_text(
        (out / cells[1].key / "result.json")
        .read_text()
        .replace(content["result"]["weights_sha256"], "0" * 64)
    )
    with pytest.raises(BadInput, match="other weights"):
        finished(out, cells[1], measuring(asked).how)
    (out / cells[1].key / "result.json").write_text(json.dumps(content["result"]))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (
            lambda proof: proof["fingerprints"][0].update(found="0" * 16),
            "changed after it was written",
        ),
        (
            lambda proof: (
                proof["fingerprints"][0].update(arm="muon"),
                proof.update(check=sealed.seal(proof)),
            ),
            "proves muon",
        ),
    ],
    ids=["edited", "of_other_arms"],
)
def test_the_proof_of_a_finished_study_edited_by_hand_is_found_and_made_again(
    done, out, harm, says
):
    asked, _ = done
    folder = freeze(asked, out)
    path, page = folder / "proof.json", (folder / "report.html").read_text()
    kept, proof = json.loads(path.read_text()), json.loads(path.read_text())
    harm(proof)
    path.write_text(json.dumps(proof))
    with pytest.raises(BadInput, match=says) as error:
        run(asked, CATALOG, out, "x", lambda text: None)
    assert "remove the file" in error.value.hint and (folder / "report.html").read_text() == page
    path.unlink()
    run(asked, CATALOG, out, "x", lambda text: None)
    assert json.loads(path.read_text()) == kept


def test_a_full_disk_is_said_and_nothing_finished_is_lost(done, out, monkeypatch, tmp_path):
    def full(path, value):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sealed, "write_json", full)
    with pytest.raises(RunFailed) as error:
        run(plan(arms=("bf16_storage",), samples=65), CATALOG, out, "x", lambda text: None)
    assert "No space left" in str(error.value) and "make room" in str(error.value)
    monkeypatch.undo()
    asked, cells = done
    assert all(finished(out, cell, measuring(asked).how) for cell in cells)


def test_a_changed_plan_is_a_new_plan_that_says_what_changed(done, out):
    asked, _ = done
    more = plan(arms=("bf16_storage",), seeds=(0, 1, 2), title="Small")
    assert "seeds" in changed_since(more, freeze(more, out))
    lines = []
    run(more, CATALOG, out, "x", lines.append)
    assert any("4 of its 6 cells are finished already" in line for line in lines), lines


def test_a_failed_cell_names_its_arm_and_keeps_the_others(tmp_path, monkeypatch):
    asked = plan(arms=("bf16_storage",), settings=(*SMALL, "data.source.count=64"))
    layout = lay_out(asked, CATALOG, {}, tmp_path)

    class Half(Here):
        def ask(self, cell):
            bad = {"key": cell.key, "ok": False, "error": "no luck", "hint": "h"}
            return super().ask(cell) if cell.arm == "baseline" else bad

    work = Work(tmp_path, System(), measuring(asked), ())
    with pytest.raises(RunFailed, match="2 of 4 cells failed: bf16_storage, seed 0: no luck"):
        run_all(layout.cells, work, 1, lambda board: None, lane=Half)
    assert (
        sum(finished(tmp_path, cell, work.measuring.how) is not None for cell in layout.cells) == 2
    )


@pytest.mark.processes
@pytest.mark.slow
def test_a_lost_worker_is_replaced_and_its_cell_goes_on(out, done):
    """A real worker process, killed with -9 while it trains."""
    asked = plan(arms=("bf16_storage",), seeds=(7, 8), images=400)
    cells = lay_out(asked, CATALOG, {}, out).cells[:1]
    lanes = []

    class Watched(Lane):
        def __init__(self, *given):
            super().__init__(*given)
            lanes.append(self)

    def kill_once():
        while not list(out.glob(f"{cells[0].key}/checkpoints/0*")):
            time.sleep(0.02)
        os.kill(lanes[0].process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_once, daemon=True)
    killer.start()
    board = run_all(
        cells, Work(out, System(), measuring(asked), ()), 1, lambda board: None, lane=Watched
    )
    assert board.lost == 1 and finished(out, cells[0], measuring(asked).how)


def test_lanes_fit_cores_and_memory(tiny):
    runs = [tiny()]
    assert room(runs, threads=2, cores=8, memory=1e12).lanes == 4
    assert room(runs, threads=1, cores=8, memory=3.5 * PROCESS).lanes == 3
    assert room(runs, threads=4, cores=2, memory=1e6).lanes == 1  # never none
