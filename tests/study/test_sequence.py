"""Whole studies with sequential seeds: only undecided arms get more cells; one that was stopped
decides the same again."""

import json
from typing import ClassVar

import numpy as np
import pytest

from fulcrum.judge import schema as certainty
from fulcrum.judge.metrics import SHOWN
from fulcrum.judge.sequence import sequence
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import TrainingFailed
from fulcrum.studies import study as study_run
from fulcrum.studies.cell import lay_out, measuring, write_failure
from fulcrum.studies.result import StudyState, assemble_result
from fulcrum.studies.runner import Lane
from fulcrum.studies.study import run
from tests.cells_here import all_here
from tests.study.small import arms_of, cells_of, finish_cell, plan

pytestmark = pytest.mark.long

ARMS = ("short_captions", "bf16_storage", "muon")
METRIC = "attribute_f1"
NOISE = np.random.default_rng(7).standard_normal((16, 4)) * 0.01
SHIFT = {"baseline": 0.0, "short_captions": 0.2, "bf16_storage": 0.0, "muon": -0.012}


def asked(**changes):
    given = {
        "arms": ARMS,
        "seeds": tuple(range(16)),
        "looks": (8, 12, 16),
        "primary": METRIC,
        "smallest_effect": 0.002,
    }
    return plan(**{**given, **changes})


def value(arm, seed):
    return 0.5 + SHIFT[arm] + NOISE[seed, list(SHIFT).index(arm)]


class Given(Lane):
    """Cells whose values are given: no training to wait for."""

    ran: ClassVar[list[tuple[str, int]]] = []
    doomed: ClassVar[str] = ""

    def ask(self, cell):
        self.ran.append((cell.arm, cell.seed))
        how = self.work.measuring.how
        if cell.kind == "trunk":
            (self.work.out / cell.key).mkdir(parents=True)
            facts = dict.fromkeys(("run", "key", "phrase", "weights_sha256"), cell.key)
            result = {**facts, "images": 16, "seconds": 1.0, "images_per_second": 16.0}
            (self.work.out / cell.key / "result.json").write_text(json.dumps(result))
            return {"ok": True}
        if cell.arm == self.doomed:
            (self.work.out / cell.key).mkdir(parents=True)
            why = TrainingFailed("the loss is not finite", "lower it")
            write_failure(self.work.out, cell, how, why, 8, self.work.system)
            return {"ok": False, "outcome": True, "error": "the loss is not finite", "hint": ""}
        finish_cell(self.work.out, cell, how, dict.fromkeys(SHOWN, value(cell.arm, cell.seed)))
        return {"ok": True}


@pytest.fixture
def given(monkeypatch):
    all_here(monkeypatch)
    monkeypatch.setattr(study_run, "Lane", Given)
    monkeypatch.setattr(study_run, "prove_by_steps", lambda *arguments: None)
    monkeypatch.setattr(study_run.StudyRun, "_costs", lambda session: None)
    monkeypatch.setattr(Given, "ran", [])
    return Given


def primary(result):
    return {row.arm: row for row in result.effects if row.metric == METRIC and row.unit == "images"}


def test_only_undecided_arms_get_more_cells(given, tmp_path):
    lines = []
    result, page = run(asked(), CATALOG, tmp_path, "fulcrum study run x.toml", lines.append)
    rows, cells = primary(result), {arm.name: arm for arm in result.arms}
    assert rows["short_captions"].verdict == "better" and rows["short_captions"].n == 8
    assert (
        "decided at 8 of 16 pairs" in rows["short_captions"].note
        and rows["short_captions"].p_adjusted <= 0.05
    )
    assert (
        cells["short_captions"].count("done") == 8 and cells["short_captions"].count("stopped") == 8
    )
    assert rows["bf16_storage"].verdict == "inconclusive" and rows["bf16_storage"].p_adjusted > 0.05
    assert (
        "stopped at 8 of 16 pairs: the chance of an answer by 16 was below 10%"
        in rows["bf16_storage"].note
    )
    assert rows["muon"].verdict == "worse" and "decided at 12 of 16 pairs" in rows["muon"].note
    assert cells["baseline"].count("done") == 12  # it goes on as long as any arm does
    assert (
        result.state == "finished"
        and result.progress.done == result.progress.total == len(given.ran) == 40
    )
    assert all(
        sum(arm == name for name, _ in given.ran) == cells[arm].count("done") for arm in cells
    )
    assert result.plan.looks == (8, 12, 16) and result.plan.spending[-1] == pytest.approx(0.05)
    assert "short_captions needs no more seeds: better, decided at 8 of 16 pairs" in lines
    assert any("4 arms x 8 to 16 seeds = 32 to 64 cells" in line for line in lines)
    # other metrics, on each arm's own pairs
    assert len({row.n for row in result.effects if row.metric == "frechet"}) > 1
    again, _ = run(asked(), CATALOG, tmp_path, "again", lines.append)
    assert again.effects == result.effects and len(given.ran) == result.progress.done


def test_a_study_that_was_stopped_decides_the_same_again(given, tmp_path, monkeypatch):
    whole, _ = run(asked(), CATALOG, tmp_path / "whole", "x", str)
    order = list(given.ran)
    for after in (5, 32, 36):
        out = tmp_path / str(after)
        monkeypatch.setattr(given, "ran", [])
        layout = lay_out(asked(), CATALOG, {}, out)
        for cell in layout.cells:
            if (cell.arm, cell.seed) in order[:after]:
                finish_cell(
                    out,
                    cell,
                    measuring(asked()).how,
                    dict.fromkeys(SHOWN, value(cell.arm, cell.seed)),
                )
        between = assemble_result(asked(), layout, out, "x", StudyState(ended=True))
        assert between.state == "stopped" and between.progress.total >= whole.progress.total
        if after >= 32:  # the first look is behind it: one arm has left, another goes on
            stopped, going = (
                certainty.look(primary(between)[arm]) for arm in ("bf16_storage", "muon")
            )
            assert stopped.startswith("stopped at 8 of 16 pairs") and going.endswith(
                "it goes on to 12"
            )
        rest, _ = run(asked(), CATALOG, out, "x", str)
        assert primary(rest) == primary(whole) and sorted(given.ran) == sorted(order[after:])


def test_before_the_first_look_nothing_is_decided(given, tmp_path):
    layout = lay_out(asked(), CATALOG, {}, tmp_path)
    for cell in layout.cells:
        if cell.seed < 7:  # one seed short of the look, and an enormous effect
            finish_cell(
                tmp_path,
                cell,
                measuring(asked()).how,
                dict.fromkeys(SHOWN, value(cell.arm, cell.seed)),
            )
    result = assemble_result(asked(), layout, tmp_path, "x")
    assert {row.verdict for row in primary(result).values()} == {
        "inconclusive"
    } and result.state == "running"
    assert all(
        "the first look is at 8 pairs" in row.note and row.p_adjusted is None
        for row in primary(result).values()
    )


def test_cells_that_another_study_has_finished_change_no_look(given, tmp_path):
    whole, _ = run(asked(), CATALOG, tmp_path / "whole", "x", str)
    out = tmp_path / "more"
    for cell in lay_out(asked(), CATALOG, {}, out).cells:
        finish_cell(
            out, cell, measuring(asked()).how, dict.fromkeys(SHOWN, value(cell.arm, cell.seed))
        )
    trained = len(given.ran)
    result, _ = run(asked(), CATALOG, out, "x", str)
    assert primary(result) == primary(whole) and len(given.ran) == trained
    assert result.progress.done == whole.progress.done


def test_an_arm_whose_every_seed_failed_ends_at_the_first_look(given, tmp_path, monkeypatch):
    monkeypatch.setattr(given, "doomed", "muon")
    result, _ = run(asked(), CATALOG, tmp_path, "x", str)
    assert (
        primary(result)["muon"].verdict == "failed"
        and primary(result)["short_captions"].verdict == "better"
    )
    assert sum(arm == "muon" for arm, _ in given.ran) == 8 and result.state == "finished"


def test_an_arm_that_others_are_held_against_goes_on_with_them():
    arms = arms_of(asked())
    arms = [arm._replace(against="short_captions") if arm.name == "muon" else arm for arm in arms]
    values = {arm: [value(arm, seed) for seed in range(8)] for arm in SHIFT}
    values["muon"] = [
        values["short_captions"][seed] + 0.012 * NOISE[seed, 1] / 0.01 + 0.008 for seed in range(8)
    ]
    stands = sequence(asked(), arms, cells_of(values, METRIC))
    assert stands.answers["short_captions"].left == "decided" and not stands.answers["muon"].left
    assert stands.needed["short_captions"].now == stands.needed["muon"].now == 12
    assert stands.answers["short_captions"].look.pairs == 8 and stands.needs("short_captions", 11)


def test_no_trunk_is_trained_before_its_seed_is_needed(given, tmp_path):
    run(asked(trunk="spark", trunk_images=16), CATALOG, tmp_path, "x", str)
    assert [seed for arm, seed in given.ran if arm == "trunk"] == list(range(12))


def test_seeds_added_by_hand_to_a_finished_study_are_said_on_the_page_and_in_the_terminal(
    given, tmp_path
):
    def judged(seeds, **changes):
        lines = []
        fixed = asked(seeds=tuple(range(seeds)), looks=(), title=f"{seeds} seeds", **changes)
        result, _ = run(fixed, CATALOG, tmp_path, "x", lines.append)
        return [line for line in (*result.remarks, *lines) if "judged before" in line]

    assert judged(6) == []
    page, terminal = judged(8)
    assert page == terminal and "judged before, on 6 of these seeds" in page
    page, terminal = judged(10)
    assert (
        "judged before, on 6 and 8 of these seeds" in page and "in 8% of studies, not in 5%" in page
    )
    assert judged(10, samples=128) == [] and judged(6) == []  # another question, or nothing added
    (remark, _) = [*run(asked(), CATALOG, tmp_path, "x", str)[0].remarks, ""][:2]
    assert "The levels of this plan's looks do not know of that" in remark
