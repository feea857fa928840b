"""fulcrum study keep, verify: a study's numbers in a small folder, judged again from it, gone on
from, rerun."""

import json
import os
import shutil

import pytest
from typer.testing import CliRunner

from fulcrum.cli import app
from fulcrum.files.sealed import read_json, sealed
from fulcrum.levers.catalog import CATALOG, with_files
from fulcrum.spec.errors import BadInput
from fulcrum.studies.cell import finished, lay_out, measuring
from fulcrum.studies.kept import judged_again, keep, read_facts, rerun
from fulcrum.studies.kept_cells import KeptCells, unpack
from fulcrum.studies.merge import merge
from fulcrum.studies.plan_file import load
from fulcrum.studies.study import run
from fulcrum.studies.verify import results, verify
from tests.cells_here import all_here
from tests.study.small import SMALL, finish_cell
from tools.evidence import __main__ as evidence

pytestmark = pytest.mark.long

SETTINGS = json.dumps([*SMALL])
PLAN = f"""
title = "Small"
baseline = "spark"
arms = ["short_captions", "bf16_storage"]
seeds = [0, 1, 2]
images = 48
settings = {SETTINGS}
samples = 64
compile = false
"""


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def finish(out, plan_file, seeds=(0, 1, 2), metric="attribute_f1"):
    asked = load(plan_file)
    for cell in lay_out(asked, CATALOG, {}, out).cells:
        if cell.seed in seeds:
            value = {"baseline": 0.7, "short_captions": 0.2, "bf16_storage": 0.68}[
                cell.arm
            ] + 0.01 * cell.seed
            finish_cell(out, cell, measuring(asked).how, {metric: value})
    return out


@pytest.fixture
def kept(tmp_path, plan_file):
    out = finish(tmp_path / "runs", plan_file)
    keep(plan_file, CATALOG, out, tmp_path / "kept", "x")
    return tmp_path / "kept"


def test_what_is_kept_is_judged_as_the_study_was(tmp_path, plan_file, kept):
    result = judged_again(kept, CATALOG)
    again, _, _ = merge(
        load(plan_file), CATALOG, [tmp_path / "runs"], tmp_path / "out", "x", lambda text: None
    )
    assert (
        result.effects == again.effects
        and result.grids == again.grids
        and result.state == "finished"
    )
    assert [cell.curve for arm in result.arms for cell in arm.cells] == [
        c.curve for a in again.arms for c in a.cells
    ]
    checked = verify(kept, CATALOG)
    assert checked.cells == 9 and checked.effects == len(result.effects) and not checked.differences
    assert results(kept.parent, CATALOG).keys() == {"kept"}


def test_nothing_of_the_machine_and_no_weights_are_kept(tmp_path, kept):
    texts = [path.read_text() for path in kept.rglob("*") if path.is_file()]
    assert len(texts) > 5 and not any(str(tmp_path) in text for text in texts)
    assert not list(kept.rglob("*.safetensors"))
    assert len(list((kept / "pictures").iterdir())) == 3  # one seed of each arm


def test_cells_that_were_finished_since_are_added(tmp_path, plan_file):
    out, folder = finish(tmp_path / "runs", plan_file, seeds=(0, 1)), tmp_path / "kept"
    first, new = keep(plan_file, CATALOG, out, folder, "x")
    assert new == 6 and first.state == "stopped"
    shutil.rmtree(out)  # another machine: it has only what it ran itself
    finish(out, plan_file, seeds=(2,))
    whole, new = keep(plan_file, CATALOG, out, folder, "x")
    assert new == 3 and whole.state == "finished" and verify(folder, CATALOG).cells == 9


def test_another_machine_goes_on_from_it(tmp_path, plan_file, kept):
    result, _, joined = merge(
        load(plan_file), CATALOG, [kept], tmp_path / "fresh", "x", lambda text: None
    )
    assert joined.copied == {str(kept): 9} and result.state == "finished"
    asked = load(plan_file)
    cells = lay_out(asked, CATALOG, {}, tmp_path / "fresh").cells
    assert all(finished(tmp_path / "fresh", cell, measuring(asked).how) for cell in cells)
    # cells without pictures take none away
    again, new = keep(plan_file, CATALOG, tmp_path / "fresh", kept, "x")
    assert (
        new == 0 and again.grids == judged_again(kept, CATALOG).grids and again.grids.arms[0].images
    )


def test_other_numbers_of_a_kept_cell_are_refused(tmp_path, plan_file, kept):
    other = finish(tmp_path / "other", plan_file)
    cell = lay_out(load(plan_file), CATALOG, {}, other).cells[0]
    finish_cell(other, cell, measuring(load(plan_file)).how, {"attribute_f1": 0.1})
    with pytest.raises(BadInput, match="kept with other numbers"):
        keep(plan_file, CATALOG, other, kept, "x")


def test_another_plan_is_refused(tmp_path, plan_file, kept):
    plan_file.write_text(PLAN.replace("images = 48", "images = 40"))
    with pytest.raises(BadInput, match="keeps another plan"):
        keep(plan_file, CATALOG, tmp_path / "runs", kept, "x")


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("cells.jsonl", lambda text: text.replace("0.7", "0.9", 1), "was changed"),
        ("cells.jsonl", lambda text: "{\n" + text, "line 1"),
        ("cards.json", lambda text: text.replace('"n": 512', '"n": 1024', 1), "was changed"),
        ("kept.json", lambda text: text.replace('"science"', '"silence"'), "checksum"),
        ("kept.json", lambda text: "[" * 100_000, "cannot be read"),
    ],
)
def test_what_was_edited_is_named(kept, name, change, words):
    text = (kept / name).read_text()
    (kept / name).write_text(change(text))
    assert change(text) != text
    with pytest.raises(BadInput, match=words):
        verify(kept, CATALOG)


OWN_RECIPE = """
import fulcrum.levers.recipes as base
from fulcrum.spec.run import RunSpec
from tools.evidence import __main__ as evidence

def mine() -> RunSpec:
    return base.spark()
"""


def test_a_study_of_a_recipe_of_ones_own_is_verified_and_shown_without_it(tmp_path, plan_file):
    """A kept study whose recipe came with --with made `study verify docs/evidence` fail for whoever
    has no such file."""
    recipe, out, folder = tmp_path / "own.py", tmp_path / "runs", tmp_path / "all" / "emoji"
    recipe.write_text(OWN_RECIPE)
    known, hashes = with_files([recipe])
    plan_file.write_text(PLAN.replace('baseline = "spark"', 'baseline = "mine"'))
    asked = load(plan_file)
    for cell in lay_out(asked, known, hashes, out).cells:
        value = {"baseline": 0.7, "short_captions": 0.2, "bf16_storage": 0.68}[
            cell.arm
        ] + 0.01 * cell.seed
        finish_cell(out, cell, measuring(asked).how, {"attribute_f1": value})
    result, _ = keep(plan_file, known, out, folder, "x", hashes)
    checked = verify(folder, CATALOG)
    assert (
        not checked.whole
        and checked.cells == 9
        and checked.effects == len(result.effects)
        and not checked.differences
    )
    whole = verify(folder, known, {**hashes, "another": "0" * 64})
    assert whole.whole and whole.effects == len(result.effects) and not whole.differences
    with pytest.raises(BadInput, match="other files of one's own"):
        verify(folder, known, dict.fromkeys(hashes, "0" * 64))
    shown = results(folder.parent, CATALOG)["emoji"]
    assert [(row.arm, row.mean, row.verdict) for row in shown.effects] == [
        (row.arm, row.mean, row.verdict) for row in result.effects
    ]
    answer = CliRunner().invoke(app, ["study", "verify", str(folder.parent)])
    assert (
        answer.exit_code == 0
        and f"{len(result.effects)} effects judged again from their pairs" in answer.stdout
    )
    assert (
        "not checked without its --with FILE: that the plan asks for these cells" in answer.stdout
    )
    assert evidence.main([str(folder.parent)]) == 0
    record = read_json(folder / "result.json", "")
    record["effects"][0]["mean"] += 0.001
    (folder / "result.json").write_text(json.dumps(record))
    file, mean = verify(folder, CATALOG).differences
    assert file == "result.json was changed" and mean.startswith(
        f"{record['effects'][0]['arm']}, attribute_f1.mean: kept "
    )
    # nothing else can vouch for it
    with pytest.raises(BadInput, match="not as it was kept: result.json was changed"):
        results(folder.parent, CATALOG)
    record["effects"][0] |= {"n": 60, "mean": -5.0}
    (folder / "result.json").write_text(json.dumps(record))
    assert any(
        "attribute_f1.n: kept 60, found 3" in line for line in verify(folder, CATALOG).differences
    )
    (folder / "result.json").write_text("{}")
    with pytest.raises(BadInput, match="not the result of a study"):
        verify(folder, CATALOG)


def test_a_file_that_a_plan_does_not_need_is_not_kept_as_needed(tmp_path, plan_file):
    """It would vouch for the parts of a study that are not looked at without it."""
    recipe, out = tmp_path / "own.py", finish(tmp_path / "runs", plan_file)
    recipe.write_text(OWN_RECIPE)
    known, hashes = with_files([recipe])
    keep(plan_file, known, out, tmp_path / "kept", "x", hashes)
    assert (
        hashes
        and read_facts(tmp_path / "kept")["user_files"] == {}
        and verify(tmp_path / "kept", CATALOG).whole
    )


def give_other_pictures(kept):
    picture, *_ = sorted((kept / "pictures").iterdir())
    picture.write_text(json.dumps(sealed({"prompts": ["another arm's"], "pictures": []})))


def add_a_cell(kept):
    line = json.loads((kept / "cells.jsonl").read_text().splitlines()[0])
    other = sealed(
        {**{name: value for name, value in line.items() if name != "check"}, "key": "0" * 16}
    )
    with (kept / "cells.jsonl").open("a") as lines:
        lines.write(json.dumps(other) + "\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (give_other_pictures, "json was changed"),
        (lambda kept: shutil.rmtree(kept / "pictures"), "json is missing"),
        (lambda kept: (kept / "plan.toml").unlink(), "plan.toml is missing"),
        (lambda kept: (kept / "costs.json").write_text("{}"), "costs.json was put there since"),
        (add_a_cell, "cells.jsonl was changed"),
        (lambda kept: (kept / "contents.json").unlink(), "contents.json is missing"),
        (lambda kept: (kept / "cells.jsonl").unlink(), "has lost its cells.jsonl"),
        (
            lambda kept: (kept / "result.json extra").touch(),
            "result.json extra was put there since",
        ),
        (lambda kept: os.mkfifo(kept / "pictures" / "pipe.json"), "pipe.json is no plain file"),
    ],
)
def test_files_that_are_not_as_they_were_kept_are_named(kept, damage, words):
    """All of these were "all as kept", and the page showed them; a study without cells was passed
    over in a folder."""
    damage(kept)
    for judged in (verify, results):
        with pytest.raises(BadInput, match=words):
            judged(kept if judged is verify else kept.parent, CATALOG)


def test_a_key_that_leaves_the_folder_is_refused(kept):
    lines = (kept / "cells.jsonl").read_text().splitlines()
    first = {name: value for name, value in json.loads(lines[0]).items() if name != "check"}
    (kept / "cells.jsonl").write_text(json.dumps(sealed({**first, "key": "../../outside"})) + "\n")
    with pytest.raises(BadInput, match="of no run"):
        judged_again(kept, CATALOG)


def test_folders_of_an_editor_are_none_of_its_files(kept):
    (kept / ".ipynb_checkpoints").mkdir()
    (kept / ".ipynb_checkpoints" / "plan-checkpoint.toml").write_text("")
    assert verify(kept, CATALOG).differences == ()


def test_a_list_that_is_missing_says_how_to_make_it(kept):
    (kept / "contents.json").unlink()
    with pytest.raises(BadInput) as refused:
        verify(kept, CATALOG)
    assert "contents.json is missing" in str(refused.value) and "fulcrum study keep" in str(
        refused.value.hint
    )


def test_a_file_that_no_study_was_run_with_is_not_ignored(kept, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(OWN_RECIPE)
    said = CliRunner().invoke(app, ["study", "verify", str(kept), "--with", str(other)])
    assert said.exit_code != 0 and "no study here was run with other.py" in str(said.exception)


def test_a_verdict_that_was_edited_is_found(kept):
    record = read_json(kept / "result.json", "")
    record["effects"][0]["verdict"] = "splendid"
    record["effects"][1]["mean"] += 0.001
    (kept / "result.json").write_text(json.dumps(record))
    answer = CliRunner().invoke(app, ["study", "verify", str(kept)])
    assert answer.exit_code != 0 and "2 differ" in answer.output and "splendid" in answer.output


def test_a_card_that_is_worded_better_later_is_no_difference(kept):
    record = read_json(kept / "result.json", "")
    record["arms"][1]["says"] = "as it was worded in those days"
    (kept / "result.json").write_text(json.dumps(record))
    assert CliRunner().invoke(app, ["study", "verify", str(kept)]).exit_code == 0
    record["arms"][1]["phrase"] = "spark + splendid"
    (kept / "result.json").write_text(json.dumps(record))
    assert "splendid" in CliRunner().invoke(app, ["study", "verify", str(kept)]).output


def test_a_folder_without_a_study_is_refused(tmp_path):
    answer = CliRunner().invoke(app, ["study", "verify", str(tmp_path)])
    assert isinstance(answer.exception, BadInput) and "keeps no study" in str(answer.exception)


def test_real_cells_are_kept_trained_anew_and_equal(tmp_path, plan_file, monkeypatch):
    all_here(monkeypatch)
    text = (
        PLAN.replace("[0, 1, 2]", "[0, 1]")
        .replace('"short_captions", ', "")
        .replace("images = 48", "images = 32")
    )
    plan_file.write_text(
        text + "learning_rates = { sweep = [0.5, 1], share = 0.5 }\nevaluations = [0.5, 1.0]\n"
    )
    out = tmp_path / "runs"
    result, _ = run(load(plan_file), CATALOG, out, "x", lambda text: None)
    again, new = keep(plan_file, CATALOG, out, tmp_path / "kept", "x")
    assert new == 8  # four cells, and four tries of rates
    assert [row for row in again.effects if row.unit == "images"] == [
        row for row in result.effects if row.unit == "images"
    ]
    assert again.sweeps == result.sweeps and again.arms[1].cost == result.arms[1].cost
    (cell, kept, trained), *_ = rerun(
        tmp_path / "kept", CATALOG, 1, lambda text: None, compile_blocks=False
    )
    assert kept == trained and cell.known


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": [1]},
        {"result": []},
        {"outcome": {"metrics": {"a": [1]}}},
        {"outcome": {"metrics": {}}, "curve": 5},
        {},
    ],
)
def test_a_cell_with_other_things_in_it_is_refused_in_words(tmp_path, fields):
    """With a checksum that fits: whoever writes a line can seal it."""
    line = {"key": "0" * 16, "arm": "a", "seed": 0, **({"kind": "arm"} if fields else {}), **fields}
    with pytest.raises(BadInput, match="is not what a study keeps"):
        unpack(KeptCells({line["key"]: line}, {}, {}), "how", tmp_path)
