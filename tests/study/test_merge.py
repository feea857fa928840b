"""fulcrum study merge: cells of one plan from several machines, verified, joined and judged."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from fulcrum.cli import app
from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.judge.cells import unlike
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.studies.cell import finished, lay_out, measuring
from fulcrum.studies.merge import merge
from fulcrum.studies.plan_file import from_plain
from fulcrum.studies.study import run
from fulcrum.training.dist.machine import machine_facts, machine_words
from tests.cells_here import all_here
from tests.study.small import SMALL, failures, plan

pytestmark = pytest.mark.long

ASKED = plan(arms=("bf16_storage",), images=32, evaluations=(0.5, 1.0))
HOW = measuring(ASKED).how


@pytest.fixture(autouse=True)
def here(monkeypatch):
    all_here(monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study that one machine ran."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        all_here(patch)
        run(ASKED, CATALOG, out, "x", lambda text: None)
    return out


def cells(out, asked=ASKED):
    return {(cell.arm, cell.seed): cell for cell in lay_out(asked, CATALOG, {}, out).cells}


def part(whole, out, *places, weights=True):
    """A machine that ran some of the cells."""
    out.mkdir()
    for place in places:
        key = cells(whole)[place].key
        shutil.copytree(
            whole / key,
            out / key,
            ignore=None if weights else shutil.ignore_patterns("checkpoints"),
        )
    return out


def elsewhere(out, place, **facts):
    """Another machine's word for where it ran."""
    path = out / cells(out)[place].key / f"measured-{HOW}.json"
    measured = read_sealed(path, "")
    write_sealed(path, {**measured, "machine": {**measured["machine"], **facts}})


def joined(tmp_path, *folders, **more):
    lines = []
    result, page, facts = merge(
        ASKED, CATALOG, folders, tmp_path / "out", "run the rest", lines.append, **more
    )
    return result, page, facts, lines


ALL = [(arm, seed) for arm in ("baseline", "bf16_storage") for seed in (0, 1)]


def test_two_machines_cells_become_one_finished_study(whole, tmp_path):
    a, b = part(whole, tmp_path / "a", *ALL[:3]), part(whole, tmp_path / "b", *ALL[2:])
    result, page, facts, lines = joined(tmp_path, a, b)
    assert (
        facts.copied == {str(a): 3, str(b): 1}
        and facts.present == 1
        and not facts.left_out
        and not facts.others
    )
    assert (
        result.state == "finished"
        and page.is_file()
        and any("all 4 cells are there" in line for line in lines)
    )
    alone, _, _ = merge(ASKED, CATALOG, [whole], tmp_path / "copy", "x", lambda text: None)
    rows = [[row for row in one.effects if row.unit == "images"] for one in (result, alone)]
    assert rows[0] == rows[1] and result.arms[0].cells[0].curve == alone.arms[0].cells[0].curve
    # nothing is left to train
    again, _ = run(ASKED, CATALOG, tmp_path / "out", "x", lambda text: None)
    assert (
        again.state == "finished"
        and [row for row in again.effects if row.unit == "images"] == rows[0]
    )


def test_costs_come_from_the_machine_that_timed_all_arms(whole, tmp_path):
    result, _, _, _ = joined(tmp_path, whole)
    assert result.arms[1].cost.time_ratio is not None


def test_without_weights_everything_is_judged_as_with_them(whole, tmp_path):
    bare = part(whole, tmp_path / "bare", *ALL, weights=False)
    for place in ALL:  # only what holds numbers and pictures
        folder = bare / cells(whole)[place].key
        for path in folder.iterdir():
            if not path.name.startswith(
                ("measured-", "pictures-", "record.jsonl", "curve.jsonl", "point-")
            ):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    result, _, facts, _ = joined(tmp_path, bare)
    assert sum(facts.copied.values()) == 4 and result.state == "finished" and result.grids.arms
    assert not list((tmp_path / "out").glob("*/checkpoints"))
    assert all(finished(tmp_path / "out", cell, HOW) for cell in cells(tmp_path / "out").values())


def test_weights_come_along_and_can_be_left(whole, tmp_path):
    joined(tmp_path, whole)
    assert len(list((tmp_path / "out").glob("*/checkpoints/*/model.safetensors"))) == 4
    merge(ASKED, CATALOG, [whole], tmp_path / "light", "x", lambda text: None, weights=False)
    assert not list((tmp_path / "light").glob("*/checkpoints"))


def test_what_is_missing_is_named_with_the_command_that_runs_it(whole, tmp_path):
    result, _, _, lines = joined(tmp_path, part(whole, tmp_path / "a", *ALL[:3]))
    assert result.state == "stopped" and result.progress.done == 3
    assert (
        "1 of 4 cells are missing: bf16_storage, seed 1" in lines[-1]
        and "run them with: run the rest" in lines[-1]
    )


def test_pairs_of_unlike_machines_are_marked(whole, tmp_path):
    a, b = part(whole, tmp_path / "a", *ALL[:2]), part(whole, tmp_path / "b", *ALL[2:])
    elsewhere(b, ALL[3], processor="another one", instructions="AVX2")
    result, page, _, _ = joined(tmp_path, a, b)
    row = next(
        row for row in result.effects if row.metric == ASKED.primary and row.unit == "images"
    )
    assert (row.n, row.unlike) == (2, 1)
    assert (
        "another one (AVX2)" in result.arms[1].cells[1].machine
        and "unlike machines" in page.read_text()
    )


def test_cells_that_do_not_say_where_they_ran_are_not_unlike():
    facts = machine_facts(System())
    other, newer = {**facts, "torch": "1.0"}, {**facts, "fulcrum": "99"}
    assert unlike(facts, other) and not unlike(facts, facts) and not unlike(facts, newer)
    assert not unlike(facts, {}) and not unlike({}, {}) and machine_words({}) == ""
    words = machine_words(facts)
    assert facts["processor"] in words and "torch" in words


def test_same_cell_with_other_numbers_is_refused_on_one_kind_of_machine_and_the_first_kept_on_two(
    whole, tmp_path
):
    a, b = part(whole, tmp_path / "a", *ALL), part(whole, tmp_path / "b", ALL[0])
    path = b / cells(whole)[ALL[0]].key / f"measured-{HOW}.json"
    measured = read_sealed(path, "")
    measured["metrics"]["mmd"]["value"] += 0.5
    write_sealed(path, measured)
    with pytest.raises(
        BadInput, match=r"baseline, seed 0 was found with other numbers in .*b.* than in .*a"
    ):
        joined(tmp_path, a, b)
    assert not list((tmp_path / "out").glob("*/measured-*"))
    elsewhere(b, ALL[0], processor="another one")
    result, _, facts, lines = joined(tmp_path, a, b)
    assert result.progress.done == 4 and len(facts.left_out) == 1
    assert any("left out: baseline, seed 0" in line and "which is kept" in line for line in lines)
    copied = tmp_path / "out" / path.parent.name / path.name
    assert (
        read_sealed(copied, "")["metrics"]["mmd"]["value"]
        == measured["metrics"]["mmd"]["value"] - 0.5
    )


def test_nothing_in_out_is_overwritten(whole, tmp_path):
    out = part(whole, tmp_path / "out", ALL[0])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    begun = cells(whole)[ALL[1]].key
    (out / begun).mkdir()
    (out / begun / "record.jsonl").write_text("mine")
    result, _, facts, _ = joined(tmp_path, whole)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert (out / begun / "record.jsonl").read_text() == "mine" and result.progress.done == 3
    assert len(facts.left_out) == 1 and "has begun it itself" in facts.left_out[0]


def spoil_number(folder):
    path = folder / f"measured-{HOW}.json"
    measured = json.loads(path.read_text())
    measured["metrics"]["mmd"]["value"] = 0.0
    path.write_text(json.dumps(measured))


def spoil_weights(folder):
    path = sorted(folder.glob("checkpoints/*/model.safetensors"))[-1]
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def link_pictures(folder):
    path = folder / f"pictures-{HOW}.json"
    path.rename(folder / "elsewhere.json")
    path.symlink_to(folder / "elsewhere.json")


def link_folder(folder):
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (spoil_number, "its checksum does not fit"),
        (
            lambda folder: (folder / "record.jsonl").write_text("{}\n"),
            "was changed after the cell was measured",
        ),
        (lambda folder: (folder / f"pictures-{HOW}.json").write_text("{"), "cannot be read"),
        (spoil_weights, "is damaged"),
        (link_pictures, "it is a link"),
        (link_folder, "is a link, expected the folder of a run"),
        (lambda folder: (folder / f"measured-{HOW}.json").unlink(), "is not finished"),
        (
            lambda folder: (folder / f"measured-{HOW}.json").rename(
                folder / "measured-000000000000.json"
            ),
            "was measured in another way",
        ),
    ],
    ids=[
        "number",
        "lines",
        "pictures",
        "weights",
        "link",
        "linked_folder",
        "unfinished",
        "other_way",
    ],
)
def test_a_cell_that_is_not_sound_is_named_and_left_out_and_the_others_are_joined(
    whole, tmp_path, harm, says
):
    a = part(whole, tmp_path / "a", *ALL)
    key = cells(whole)[ALL[2]].key
    harm(a / key)
    result, _, facts, lines = joined(tmp_path, a)
    assert (
        len(facts.left_out) == 1
        and says in facts.left_out[0]
        and "bf16_storage, seed 0" in facts.left_out[0]
    ), facts
    assert result.progress.done == 3 and not (tmp_path / "out" / key).exists()


def test_a_failed_cell_is_joined_as_what_it_found(whole, tmp_path):
    a, b = part(whole, tmp_path / "a", *ALL[:3]), tmp_path / "b"
    cell = cells(whole)[ALL[3]]
    write_sealed_failure(b / cell.key, cell)
    result, _, _, _ = joined(tmp_path, a, b)
    assert result.state == "finished" and (result.progress.done, result.progress.failed) == (3, 1)
    assert failures(cells(tmp_path / "out").values(), tmp_path / "out", HOW) == {
        "bf16_storage": {1: "not finite"}
    }


def write_sealed_failure(folder, cell):
    folder.mkdir(parents=True)
    facts = {
        "arm": cell.arm,
        "seed": cell.seed,
        "key": cell.key,
        "why": "not finite",
        "hint": "",
        "images": 16,
    }
    write_sealed(folder / f"failed-{HOW}.json", {**facts, "machine": machine_facts(System())})


def test_runs_of_other_plans_and_versions_are_counted(whole, tmp_path):
    a = part(whole, tmp_path / "a", *ALL)
    for name, science in (("0" * 16, None), ("1" * 16, 0)):
        shutil.copytree(a / cells(whole)[ALL[0]].key, a / name)
        if science is not None:
            path = a / name / "about.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "science": science}))
    _, _, facts, lines = joined(tmp_path, a)
    assert (facts.others, facts.older) == (2, 1)
    assert any(
        "2 runs are not of this plan; 1 of them are this plan's by another version" in line
        for line in lines
    )


def test_a_folder_without_a_cell_of_the_plan_is_refused_with_the_reason(whole, tmp_path):
    other = plan(arms=("bf16_storage",), images=32, samples=65)
    with pytest.raises(
        BadInput, match="no finished cell of this plan.*measured in another way"
    ) as error:
        merge(other, CATALOG, [whole], tmp_path / "out", "x", lambda text: None)
    assert "only measured anew" in error.value.hint and not list(
        (tmp_path / "out").glob("study-*/report.html")
    )


def test_trunks_and_rates_come_first(tmp_path):
    asked = from_plain(
        {
            **plan(arms=("bf16_storage",), images=16).model_dump(),
            "trunk": "spark",
            "trunk_images": 8,
            "learning_rates": {"sweep": [0.5, 1], "share": 0.5, "seeds": [9]},
        }
    )
    run(asked, CATALOG, tmp_path / "a", "x", lambda text: None)
    result, _, facts = merge(
        asked, CATALOG, [tmp_path / "a"], tmp_path / "out", "x", lambda text: None
    )
    assert (
        result.state == "finished"
        and len(result.sweeps) == 2
        and sum(facts.copied.values()) == 4 + 3 + 4
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path, whole: path / "nowhere", "is no folder"),
        (lambda path, whole: path, "holds no runs"),
        (
            lambda path, whole: next(whole.glob("study-*")),
            "holds no runs\n  name the folder that it lies in",
        ),
        (lambda path, whole: path / "out", "is the folder that cells are joined into"),
    ],
)
def test_a_folder_that_is_none_of_runs_is_refused(whole, tmp_path, make, says):
    (tmp_path / "out").mkdir()
    with pytest.raises(BadInput) as error:
        merge(ASKED, CATALOG, [make(tmp_path, whole)], tmp_path / "out", "x", lambda text: None)
    assert says in str(error.value)


def test_the_command_says_what_it_joined_and_where_the_page_is(whole, tmp_path):
    path = tmp_path / "plan.toml"
    settings = ", ".join(f'"{one}"' for one in SMALL)
    path.write_text(
        'title = "Small"\nbaseline = "spark"\narms = ["bf16_storage"]\nseeds = [0, 1]\nimages ='
        f" 32\nsamples = 64\ncompile = false\nevaluations = [0.5, 1.0]\nsettings = [{settings}]\n"
    )
    asked = ["study", "merge", str(path), str(whole), "--out", str(tmp_path / "out"), "--json"]
    answer = CliRunner().invoke(app, asked)
    assert answer.exit_code == 0, answer.output
    facts = json.loads(answer.stdout.splitlines()[-1])
    assert (
        facts["copied"] == {str(whole): 4}
        and facts["cells"]["done"] == 4
        and (tmp_path / "out").is_dir()
    )
