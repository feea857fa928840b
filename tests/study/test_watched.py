"""Somebody watches a study: the page from the beginning, how far cells are, what is said, and what
a stop leaves."""

import json
import re
import statistics
from types import SimpleNamespace

import pytest

from fulcrum.cli import main
from fulcrum.judge.page import read, render
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies import study as study_rounds
from fulcrum.studies import study as study_run
from fulcrum.studies.arm_cost import NAME as TIMINGS
from fulcrum.studies.cell import lay_out
from fulcrum.studies.result import StudyState, assemble_result
from fulcrum.studies.runner import Board, CellTimes, TimeLeft, _stand, line, standing
from fulcrum.training.cost_record import count_training
from tests.study.small import plan

GO_ON = "fulcrum study run small.toml --out here"


def record(folder, images, each=0.5, cut=""):
    """A record up to `images`, in steps of 8, the first of which took a minute longer; `cut` is a
    half-written line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "images": seen,
                    "loss": 1.0,
                    "seconds": 60 + each * seen,
                    "parts": {"flow": 0.1 + seen},
                }
            )
            + "\n"
            for seen in range(8, images + 1, 8)
        )
        + cut
    )


def work(cell):
    """FLOPs of all the training of a cell."""
    return count_training(cell.run).training() * cell.run.budget.images


def test_an_unfinished_cell_is_as_far_as_its_record(tmp_path):
    asked = plan()
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    board, (first, second) = Board(layout.cells), layout.cells[:2]
    board.mark(first, "running")
    board.mark(second, "running")
    record(tmp_path / first.key, 24, cut='{"images": 32, "lo')
    result = assemble_result(asked, layout, tmp_path, GO_ON, StudyState(board))
    assert [arm.cells[0].images for arm in result.arms] == [24, 0, 0]
    assert re.findall(r"running \d+ %", render(result)) == ["running 50 %", "running 0 %"]


def test_time_left_comes_from_the_speed_of_the_last_lines_until_cells_have_ended(tmp_path):
    cells = lay_out(plan(images=4800), CATALOG, {}, tmp_path).cells
    board, two, eight = Board(cells), TimeLeft(tmp_path, 2), TimeLeft(tmp_path, 8)
    assert two.tell(board, standing(board, tmp_path), 0.0) is None
    for cell in cells[:2]:
        board.mark(cell, "running")
    record(tmp_path / cells[0].key, 2400, cut='{"images": 24')
    going = standing(board, tmp_path)
    assert [stand.images for stand in going] == [2400, 0] and going[0].whole == pytest.approx(
        0.5 * 4800
    )
    cells_left = (sum(map(work, cells)) - 0.5 * work(cells[0])) / work(cells[0])
    assert two.reckon(board, going) == pytest.approx(2400 * cells_left / 2)
    shown = line(board, going, two.tell(board, going, 75.0), 75.0)
    assert shown == (
        f"0 of 6 cells done after 1 min 15 s; running: {cells[0].arm}/0 50%, "
        f"{cells[1].arm}/0 starting (encoding, compiling); "
        "about 1 h 42 min of training left"
    )
    board.seconds[cells[2].key] = 10.0  # a cell that ended counts with its measuring
    by_cell = 10 * (sum(map(work, cells)) - 0.5 * work(cells[0])) / work(cells[2])
    assert two.reckon(board, going) == pytest.approx(by_cell / 2)
    assert eight.reckon(board, going) == pytest.approx(by_cell / 6)  # no more lanes than cells
    assert str(standing(board, tmp_path, until=0.25)[0]).endswith("measuring")


# Seconds of cells, as a study on a busy machine had them: by the clock, of the first step, of
# training.
CELLS = [
    (289, 214, 40),
    (93, 35, 33),
    (38, 0, 16),
    (37, 0, 16),
    (37, 0, 15),
    (24, 0, 11),
    (29, 0, 12),
    (25, 0, 11),
] + [(26, 0, 11)] * 4


def test_the_time_left_of_a_study_does_not_jump_when_its_first_cells_were_slow(tmp_path):
    """Told from medians of whole cells, that study said 56, 33, 13, 9, 4 minutes one after the
    other."""
    cells = lay_out(plan(seeds=tuple(range(4))), CATALOG, {}, tmp_path).cells
    assert len(cells) == len(CELLS)
    board, times, now, told, before = Board(cells), TimeLeft(tmp_path, 1), 0.0, [], []
    for cell, (whole, first, training) in zip(cells, CELLS, strict=True):
        now += whole
        (tmp_path / cell.key).mkdir()
        parts = {"first step": first, "steps": first + training}
        (tmp_path / cell.key / "timings.json").write_text(
            json.dumps({"begun": 0, "ended": whole, "parts": parts})
        )
        board.mark(cell, "done")
        board.seconds[cell.key] = float(whole)
        if waiting := board.count("waiting"):
            before.append((now, statistics.median(board.seconds.values()) * waiting))
            told.append((now, times.tell(board, [], now)))

    def worst(lines):
        pairs = zip(lines, lines[1:], strict=False)
        return max(
            abs(left - (last - (at - then))) / last
            for (then, last), (at, left) in pairs
            if last > 120
        )

    assert worst(before) > 0.5 and worst(told) < 0.3
    truth = [now - at for at, _ in told]
    assert before[0][1] > 8 * truth[0] and all(
        left < 2.5 * rest for (_, left), rest in zip(told, truth, strict=True)
    )


def test_an_arm_that_takes_longer_is_reckoned_by_its_own_cells(tmp_path):
    cells = lay_out(plan(), CATALOG, {}, tmp_path).cells
    board, times = Board(cells), TimeLeft(tmp_path, 1)
    arms = list(dict.fromkeys(cell.arm for cell in cells))
    for number, arm in enumerate(arms):
        first = next(cell for cell in cells if cell.arm == arm)
        board.mark(first, "done")
        board.seconds[first.key] = 10.0 * (number + 1)
    left = [cell.arm for cell in cells if board.state[cell.key] == "waiting"]
    assert times.reckon(board, []) == pytest.approx(
        sum(10.0 * (arms.index(arm) + 1) for arm in left)
    )


def test_an_arm_that_nobody_has_timed_is_reckoned_by_its_flops(tmp_path):
    """A study at 16, 64 and 256 tokens said that 25 minutes were left while its longest cells had
    not begun."""
    scales = (
        {"name": "few", "at": 4, "settings": ("data.size=32",)},
        {"name": "many", "at": 6, "settings": ("data.size=64",)},
    )
    cells = lay_out(plan(scales=scales), CATALOG, {}, tmp_path).cells
    board, times = Board(cells), TimeLeft(tmp_path, 1)
    few = next(cell for cell in cells if cell.run.data.size == 32)
    board.mark(few, "done")
    board.seconds[few.key] = 10.0
    left = [cell for cell in cells if cell is not few]
    expected = 10.0 * sum(map(work, left)) / work(few)
    assert times.reckon(board, []) == pytest.approx(expected) and expected > 1.5 * 10 * len(left)
    begun = TimeLeft(tmp_path, 1)
    board = Board(cells)
    board.mark(few, "running")
    record(tmp_path / few.key, few.run.budget.images // 2)
    going = standing(board, tmp_path)
    expected = going[0].whole * (sum(map(work, left)) / work(few) + 0.5)
    assert begun.reckon(board, going) == pytest.approx(expected)


def test_a_stopped_study_says_so_and_how_to_go_on(tmp_path, monkeypatch):
    lines, pages = [], []
    prove = study_run.prove_by_steps

    def watched(layout, plan, folder, *more):
        pages.append(read(folder / "report.json"))
        prove(layout, plan, folder, *more)

    def interrupted(cells, work, lanes, tick, lane):
        board, now = Board(cells), [1000.0]
        monkeypatch.setattr(study_rounds, "time", SimpleNamespace(monotonic=lambda: now[0]))
        board.mark(cells[0], "running")
        for now[0] in (1001.0, 1004.0, 1007.0, 1015.0, 1022.0):
            record(tmp_path / cells[0].key, 8 * int(now[0] - 1000) // 4)
            tick(board)
        pages.append(read(next(tmp_path.glob("study-*/report.json"))))
        raise KeyboardInterrupt

    monkeypatch.setattr(study_run, "prove_by_steps", watched)
    monkeypatch.setattr(study_rounds, "run_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study_run.run(plan(), CATALOG, tmp_path, GO_ON, lines.append)
    page = next(tmp_path.glob("study-*/report.html"))
    last, text = read(page.with_suffix(".json")), page.read_text()
    assert [one.state for one in pages] == ["running", "running"] and pages[0].progress.done == 0
    assert pages[1].arms[0].cells[0].state == "running" and pages[1].progress.seconds_left
    assert (
        last.state == "stopped"
        and last.arms[0].cells[0].state == "waiting"
        and last.arms[0].cells[0].images == 40
    )
    assert (
        GO_ON in text
        and "stopped before its end" in text
        and "renews itself" not in text
        and "<script" not in text
    )
    assert "waiting 83 %" in text
    assert any(one.startswith("encoding") for one in lines), lines
    assert len(lines) == len(set(lines)), "a note was said twice"
    # at once, and some twenty seconds later
    assert sum("0 of 6 cells done" in one for one in lines) == 2, lines


def test_a_study_that_is_refused_does_not_seem_to_run(tmp_path, monkeypatch):
    def refused(*_):
        raise BadInput("an ablation of nothing", "leave it out")

    monkeypatch.setattr(study_run, "prove_by_steps", refused)
    with pytest.raises(BadInput, match="ablation of nothing"):
        study_run.run(plan(), CATALOG, tmp_path, GO_ON, lambda text: None)
    assert read(next(tmp_path.glob("study-*/report.json"))).state == "stopped"


def test_watching_waits_for_the_page_of_a_study_that_has_begun(tmp_path, monkeypatch, capsys):
    folder, served = tmp_path / "study-0", []
    folder.mkdir()
    (folder / "plan.json").write_text("{}")
    monkeypatch.setattr("fulcrum.judge.serve.serve", lambda folder, *_: served.append(folder))
    monkeypatch.setattr(
        "fulcrum.cli.study.time.sleep", lambda seconds: (folder / "report.html").write_text("here")
    )
    for words in ([], [str(folder)]):
        (folder / "report.html").unlink(missing_ok=True)
        with pytest.raises(SystemExit) as end:
            main(["report", *words, "--watch", "--out", str(tmp_path)])
        assert (
            end.value.code == 0
            and served.pop() == folder
            and "waiting for it" in capsys.readouterr().err
        )
    with pytest.raises(SystemExit) as end:
        main(["report", "--watch", "--out", str(tmp_path / "other")])
    assert end.value.code == 2


def test_the_command_on_the_page_goes_on_with_the_same_study(tmp_path, monkeypatch):
    commands = []

    def noted(plan, catalogue, out, command, *more, **named):
        commands.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr(study_run, "run", noted)
    path = tmp_path / "a plan.toml"
    path.write_text('title = "x"\nbaseline = "spark"\narms = ["muon"]\nseeds = [1, 2]\n')
    for words, ends in (
        ([], ""),
        (["--out", "there", "--threads", "1", "--quiet"], " --out there --threads 1"),
    ):
        with pytest.raises(SystemExit):
            main(["study", "run", str(path), *words])
        assert commands.pop() == f"fulcrum study run '{path}'{ends}"


@pytest.mark.parametrize(
    "text, images",
    [
        ('{"imagec": 1, "seconds": 1}', 0),  # one bit of a name
        ('{"images": "x", "seconds": 1}', 0),
        ('{"images": 16, "seconds": null}', 0),
        ('{"images": %s, "seconds": 1}' % ("9" * 400), 0),
        ('{"images": 1e999, "seconds": 1}', 0),
        ('{"images": 16, "seconds": 1}\n{"images": 32, "seconds": NaN}', 16),
    ],
)
def test_a_record_with_other_things_in_it_does_not_stop_the_study(tmp_path, text, images):
    (tmp_path / "record.jsonl").write_text(text + "\n")
    assert _stand(None, tmp_path / "record.jsonl", 100).images == images


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"parts": {"first step": 1, "steps": 1}, "ended": %s, "begun": 0.5}' % ("9" * 400),
        "[]",
    ],
)
def test_timings_with_other_things_in_them_are_as_if_not_there(tmp_path, text):
    (tmp_path / TIMINGS).write_text(text)
    assert CellTimes.read(tmp_path, 7.0) == (7.0, 7.0)
