"""A finished cell whose files were edited, damaged or removed: named, with a way out that leads
on."""

import json
import shutil

import pytest

from fulcrum.files.sealed import write_sealed
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.preview import read_lines, write_curve
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.run import System
from fulcrum.studies.arm_cost import COSTS, read_costs
from fulcrum.studies.cell import finished, lay_out, measuring
from fulcrum.studies.cell_training import run_cell
from fulcrum.studies.result import assemble_result
from tests.cells_here import lighten
from tests.study.small import plan

pytestmark = pytest.mark.long

ASKED = plan(arms=("bf16_storage",), images=16)
HOW = measuring(ASKED).how


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        lighten(patch)
        go_on(out)
    return out


@pytest.fixture
def out(trained, tmp_path, monkeypatch):
    lighten(monkeypatch)
    return shutil.copytree(trained, tmp_path / "runs")


def layout(out):
    return lay_out(ASKED, CATALOG, {}, out)


def folder(out):
    return out / layout(out).cells[0].key


def go_on(out):
    run_cell(layout(out).cells[0], out, System(), measuring(ASKED), lambda text: None)


def judge(out):
    return assemble_result(ASKED, layout(out), out, "x")


def measured(out):
    return json.loads((folder(out) / f"measured-{HOW}.json").read_text())


@pytest.mark.parametrize("name", [f"measured-{HOW}.json", f"pictures-{HOW}.json"])
@pytest.mark.parametrize(
    "value", [{}, {"key": 7}, {"key": [], "metrics": 1, "result": "x", "prompts": {}}]
)
def test_files_that_were_sealed_anew_with_other_fields_are_refused_in_words(out, name, value):
    write_sealed(folder(out) / name, value)
    with pytest.raises(BadInput, match="is not what is kept under this name"):
        judge(out)


def test_costs_that_were_sealed_anew_are_refused_in_words(out):
    arms = layout(out).arms
    for value in (
        {},
        {"arms": []},
        {"arms": {arm.name: 7 for arm in arms}},
        {"arms": {arm.name: {} for arm in arms}},
    ):
        write_sealed(out / COSTS, value)
        with pytest.raises(BadInput, match="costs.json"):
            read_costs(out, arms)


@pytest.mark.parametrize("name", ["curve.jsonl", "record.jsonl"])
def test_lines_edited_by_hand_are_refused(out, name):
    path = folder(out) / name
    assert judge(out).progress.done == 1 and path.stat().st_size
    kept = path.read_text()
    path.write_text(kept.replace('"seconds": ', '"seconds": 1'))
    with pytest.raises(BadInput, match=rf"{name} was changed after the cell was measured") as error:
        judge(out)
    assert "fulcrum runs rm" in error.value.hint
    path.unlink()
    with pytest.raises(BadInput, match=f"{name} was changed"):
        judge(out)
    path.write_text(kept)
    assert judge(out).progress.done == 1


def test_a_cell_measured_before_lines_were_hashed_is_accepted_but_not_what_cannot_be_read(out):
    old = measured(out)
    del old["lines"], old["check"]
    write_sealed(folder(out) / f"measured-{HOW}.json", old)
    curve = folder(out) / "curve.jsonl"
    kept = curve.read_text()
    curve.write_text(kept + '{"images": 99, "sec')  # cut off by a kill
    assert judge(out).progress.done == 1
    for line in (
        "nonsense",
        "[3]",
        '{"images": 8}',
        '{"images": 8, "seconds": "1", "validation_loss": 1}',
        "{half}",
    ):
        curve.write_text(f"{line}\n{kept}")
        with pytest.raises(BadInput, match=r"line 1 of .*curve.jsonl cannot be read"):
            judge(out)


def test_a_cell_that_was_trained_again_to_the_same_weights_is_measured_again(out):
    before = measured(out)
    (folder(out) / "result.json").unlink()  # and goes on from the checkpoint before the last
    shutil.rmtree(newest(folder(out)))
    assert finished(out, layout(out).cells[0], HOW) is None
    go_on(out)
    assert judge(out).progress.done == 1  # its seconds are others, and so are its lines
    assert (
        measured(out)["metrics"] == before["metrics"] and measured(out)["lines"] != before["lines"]
    )


def no_tail(lines):
    return [
        lines[0],
        json.dumps(
            {name: value for name, value in json.loads(lines[1]).items() if name != "check"}
        ),
    ]


@pytest.mark.parametrize(
    "harm",
    [
        lambda lines: [lines[0].replace('"seconds": ', '"seconds": 1'), lines[1]],
        lambda lines: lines[1:],
        lambda lines: [lines[1], lines[0]],
        no_tail,
    ],
    ids=["edited", "first_removed", "swapped", "check_removed"],
)
def test_a_curve_edited_before_the_cell_was_measured_is_refused(out, harm):
    cell = folder(out)
    (cell / f"measured-{HOW}.json").unlink()  # killed between training and measuring
    path, kept = cell / "curve.jsonl", (cell / "curve.jsonl").read_text()
    path.write_text("\n".join(harm(kept.splitlines())) + "\n")
    for act in (judge, go_on):
        with pytest.raises(
            BadInput, match=r"line [12] of .*curve.jsonl was changed after it was written"
        ) as error:
            act(out)
        assert "put it back as it was" in error.value.hint
    path.write_text(kept)
    go_on(out)
    assert judge(out).progress.done == 1


def test_a_curve_edited_while_the_cell_was_stopped_is_refused_and_another_cells_too(out):
    cell = folder(out)
    for name in (f"measured-{HOW}.json", "result.json"):
        (cell / name).unlink()
    shutil.rmtree(newest(cell))  # it goes on from the checkpoint before the last
    path, kept = cell / "curve.jsonl", (cell / "curve.jsonl").read_text()
    lines = [json.loads(line) for line in kept.splitlines()]
    (out / "another").mkdir()
    write_curve(out / "another", lines)  # sound where it is
    assert read_lines(out / "another" / "curve.jsonl")
    for text in (
        kept.replace('"validation_loss": ', '"validation_loss": 1'),
        (out / "another/curve.jsonl").read_text(),
    ):
        path.write_text(text)
        with pytest.raises(BadInput, match=r"line 1 of .*curve.jsonl was changed"):
            go_on(out)
    path.write_text(
        "".join(
            json.dumps({**line, "check": None}).replace(', "check": null', "") + "\n"
            for line in lines
        )
        + '{"images": 99, "sec'
    )  # of an earlier version, cut off by a kill
    go_on(out)
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["images"] for line in again] == [line["images"] for line in lines] and all(
        line["check"] for line in again
    )


def test_the_way_out_of_damaged_pictures_leads_on(out):
    path, before = folder(out) / f"pictures-{HOW}.json", judge(out)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(BadInput, match=r"pictures-.* cannot be read") as error:
        judge(out)
    assert "remove the file and run the study again" in error.value.hint
    path.unlink()
    assert judge(out).progress.done == 0
    go_on(out)
    assert judge(out).grids == before.grids and judge(out).progress.done == 1


def test_pictures_removed_do_not_wash_lines_clean(out):
    (folder(out) / f"pictures-{HOW}.json").unlink()
    (folder(out) / "curve.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"curve.jsonl was changed"):
        go_on(out)


def newest(cell):
    return sorted((cell / "checkpoints").iterdir())[-1]


def spoil(cell):
    weights = newest(cell) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])


@pytest.mark.parametrize(
    ("harm", "says", "hint"),
    [
        (spoil, "is damaged", "fulcrum runs rm"),
        (lambda cell: shutil.rmtree(newest(cell)), "does not hold the weights", "fulcrum runs rm"),
        (
            lambda cell: shutil.rmtree(cell / "checkpoints"),
            "its checkpoints are gone",
            "fulcrum runs rm",
        ),
        (
            lambda cell: (shutil.rmtree(cell), cell.write_text("a file")),
            "is not the folder of a run",
            "move it away",
        ),
    ],
    ids=["damaged", "removed", "all_gone", "a_file"],
)
def test_a_cell_that_cannot_be_measured_again_says_to_train_it_again(out, harm, says, hint):
    cell = folder(out)
    (cell / f"measured-{HOW}.json").unlink()
    harm(cell)
    assert finished(out, layout(out).cells[0], HOW) is None
    with pytest.raises(FulcrumError) as error:
        go_on(out)
    assert says in error.value.message and hint in error.value.hint, str(error.value)


def test_a_result_that_was_cut_off_is_named(out):
    path = folder(out) / "result.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(BadInput, match=r"result.json cannot be read") as error:
        judge(out)
    assert "fulcrum runs rm" in error.value.hint
