"""Kept studies that somebody has edited and sealed again: what does not follow from the cells is
named, always in words."""

import json
import shutil
from pathlib import Path

import pytest

from fulcrum.files.sealed import sealed, write_sealed
from fulcrum.judge.cells import CellRecord
from fulcrum.judge.metrics import not_learned, values_of
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies import verify as kept_verdicts
from fulcrum.studies.kept import read_facts, write_contents
from fulcrum.studies.kept_cells import fault_of_line
from fulcrum.studies.verify import WORDS, differences, migrate, results, verify
from tests.study.small import cells_of, with_value

EVIDENCE = Path(__file__).parents[2] / "docs/evidence"


@pytest.fixture
def ours(tmp_path):
    """Of our own recipe and levers."""
    return shutil.copytree(EVIDENCE / "replication_synthetic", tmp_path / "kept" / "ours")


@pytest.fixture
def emoji(tmp_path):
    """Run with a file of one's own."""
    return shutil.copytree(EVIDENCE / "emoji", tmp_path / "kept" / "emoji")


def edit(path, change):
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def edit_facts(folder, **fields):
    facts = json.loads((folder / "kept.json").read_text())
    write_sealed(folder / "kept.json", {**facts, **fields})
    write_contents(folder)


def edit_lines(folder, change):
    lines = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    for line in lines:
        change(line)
    (folder / "cells.jsonl").write_text("".join(json.dumps(sealed(line)) + "\n" for line in lines))
    write_contents(folder)


def invent(record):
    for row in record["effects"]:
        row |= {"verdict": "better", "low": 0.5, "high": 0.6}


def test_the_verdicts_of_our_own_plans_cannot_be_hidden_behind_a_file_that_nobody_has(ours):
    """ "14 mean differences computed again, all as kept" was said of verdicts that somebody had
    made up."""
    edit(ours / "result.json", invent)
    edit_facts(ours, user_files={"x.py": "0" * 64})
    for judged in (verify, results):
        with pytest.raises(
            BadInput, match=r"run with x\.py, and its plan asks for nothing but our own"
        ):
            judged(ours if judged is verify else ours.parent, CATALOG)


def test_pairs_alone_tell_every_verdict_at_equal_images(emoji):
    checked = verify(emoji, CATALOG)
    assert (checked.effects, checked.others, checked.differences) == (
        33,
        6,
        (),
    ) and not checked.whole
    edit(emoji / "result.json", invent)
    write_contents(emoji)
    told = verify(emoji, CATALOG).differences
    assert 'muon, vgg.lpips.verdict: kept "better", found "tie"' in told
    assert "muon, vgg.lpips.low: kept 0.5, found -0.0107962" in told
    assert any(
        "at equal time: a verdict 'better' at equal time, which no plan sets out to decide" in line
        for line in told
    )
    with pytest.raises(BadInput, match="does not follow from its cells"):  # the page showed it
        results(emoji.parent, CATALOG)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["effects"].pop(0), "muon, vgg.lpips: kept null"),
        (
            lambda record: record["effects"][0].update(margin=0.001),
            "muon, vgg.lpips.margin: kept 0.001, found 0.01",
        ),
        (
            lambda record: record["effects"][0].update(p_adjusted=0.01),
            "p_adjusted: kept 0.01, found 0.4375",
        ),
        (
            lambda record: record["effects"][0].update(unit="time", verdict="tie", margin=1e-9),
            "not lie within the margin",
        ),
        (lambda record: record["effects"][-1].update(mean=1e6), "outside of its interval"),
        (lambda record: record["noise"][0].update(sd=1.0), "noise[0].sd: kept 1"),
        (
            lambda record: record["plan"].update(primary_metric="lite0.kid"),
            'plan.primary_metric: kept "lite0.kid"',
        ),
        (lambda record: record["plan"].update(alpha=0.5), "plan.alpha: kept 0.5, found 0.05"),
    ],
)
def test_what_a_study_says_without_its_files_is_held_against_the_pairs(emoji, change, words):
    edit(emoji / "result.json", change)
    write_contents(emoji)
    assert any(words in line for line in verify(emoji, CATALOG).differences)


def test_two_cells_of_one_seed_are_not_chosen_from(emoji):
    first = (emoji / "cells.jsonl").read_text().splitlines()[0]
    with (emoji / "cells.jsonl").open("a") as lines:
        lines.write(json.dumps(sealed({**json.loads(first), "key": "0" * 16})) + "\n")
    write_contents(emoji)
    with pytest.raises(BadInput, match="two cells of baseline, seed 0"):
        verify(emoji, CATALOG)


@pytest.mark.parametrize("study", ["ours", "emoji"])
def test_a_number_without_end_is_a_difference(study, request):
    """An integer of 400 digits was "this should not happen", and ended the command there."""
    folder = request.getfixturevalue(study)
    edit(folder / "result.json", lambda record: record["effects"][0].update(mean=10**400))
    if study == "ours":
        assert any(
            "effects[0].mean: kept 1000" in line for line in verify(folder, CATALOG).differences
        )
    else:
        with pytest.raises(BadInput, match="not the result of a study"):
            verify(folder, CATALOG)


def reword(value, path=""):
    """Every sentence of a result in other words."""
    if isinstance(value, dict):
        return {name: reword(one, f"{path}.{name}".lstrip(".")) for name, one in value.items()}
    if isinstance(value, list):
        return [reword(one, path) for one in value]
    return "other words" if path in WORDS else value


def test_sentences_may_be_worded_better(ours):
    record = json.loads((ours / "result.json").read_text())
    reworded = reword(record)
    assert reworded["remarks"] != record["remarks"] and reworded["arms"] != record["arms"]
    (ours / "result.json").write_text(json.dumps(reworded))
    assert verify(ours, CATALOG).differences == ()


def claim(record):
    return next(claim for arm in record["arms"] for claim in arm["claims"])


def warned(record):
    return next(row for row in record["effects"] if row["warnings"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record["codes"].pop(), "codes: kept"),
        (lambda record: record["codes"].append({"code": "compound", "values": {}}), "codes: kept"),
        (
            lambda record: record["codes"][0].update(code="rates-swept"),
            'codes[0].code: kept "rates-swept"',
        ),
        (lambda record: warned(record)["codes"].clear(), ".codes: kept []"),
        (
            lambda record: warned(record)["codes"][0].update(code="other"),
            '.codes[0].code: kept "other"',
        ),
        (
            lambda record: record["metrics"][0]["codes"][0]["values"].update(cells=7),
            "values.cells: kept 7, found 16",
        ),
        (lambda record: claim(record)["codes"].clear(), ".codes: kept []"),
        (
            lambda record: claim(record).update(verdict="contradicted"),
            '.verdict: kept "contradicted"',
        ),
        (
            lambda record: record["effects"][0].update(verdict="tie"),
            'effects[0].verdict: kept "tie"',
        ),
        (lambda record: record["effects"][0].update(mean=0.5), "effects[0].mean: kept 0.5"),
        (
            lambda record: record["arms"][1]["cost"].update(time_ratio=9.0),
            "arms[1].cost.time_ratio: kept 9",
        ),
    ],
)
def test_a_changed_number_verdict_or_code_is_a_difference(ours, change, words):
    edit(ours / "result.json", change)
    assert any(words in line for line in verify(ours, CATALOG).differences)


def without_codes(value):
    if isinstance(value, dict):
        return {name: without_codes(one) for name, one in value.items() if name != "codes"}
    return [without_codes(one) for one in value] if isinstance(value, list) else value


def test_a_result_from_before_there_were_codes_is_read_and_migrated_once(ours):
    files = {path: path.read_bytes() for path in ours.rglob("*") if path.is_file()}
    (ours / "result.json").write_text(
        json.dumps(without_codes(json.loads(files[ours / "result.json"])))
    )
    write_contents(ours)
    before = verify(ours, CATALOG)
    assert before.differences == () and not before.coded and "remarks not checked" in before.words
    assert migrate(ours, CATALOG) and not migrate(ours, CATALOG)
    assert (
        json.loads((ours / "result.json").read_text())["codes"]
        == json.loads(files[ours / "result.json"])["codes"]
    )
    assert verify(ours, CATALOG).coded
    for path, content in files.items():
        assert path.name in ("result.json", "contents.json") or path.read_bytes() == content


def test_only_what_follows_from_its_cells_is_migrated(ours, emoji):
    edit(ours / "result.json", invent)
    with pytest.raises(BadInput, match="does not follow from its cells"):
        migrate(ours, CATALOG)
    with pytest.raises(BadInput, match="run with files of one's own"):
        migrate(emoji, CATALOG)


def test_no_kept_result_holds_a_sentence_that_is_compared():
    """A new field of sentences belongs into WORDS, with a code beside it."""
    named = ("title", "phrase", "name", "baseline", "against", "arm", "a", "b", "pairs", "settings")
    for path in EVIDENCE.glob("*/result.json"):
        for place, text in strings(json.loads(path.read_text())):
            last = place.rpartition(".")[2]
            pinned = ".card." in place or ".diff." in place or "codes." in place or last in named
            assert place in WORDS or pinned or text.count(" ") < 3, (place, text)


def strings(value, path=""):
    if isinstance(value, str):
        yield path, value
    for name, one in value.items() if isinstance(value, dict) else ():
        yield from strings(one, f"{path}.{name}".lstrip("."))
    for one in value if isinstance(value, list) else ():
        yield from strings(one, path)


def metrics(value):
    return lambda line: line["outcome"].update(
        metrics={name: [value, *rest[1:]] for name, rest in line["outcome"]["metrics"].items()}
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (metrics("x"), "expected a number, found 'x'"),
        (metrics(10**400), r"expected a number up to 1e\+300"),
        (metrics(-1.7e308), r"expected a number up to 1e\+300"),
        (metrics(float("nan")), "expected a finite number"),
        (metrics(True), "expected a number, found True"),
        (lambda line: line["outcome"].update(metrics={}), "outcome.metrics: has too few"),
        (lambda line: line["outcome"].update(metrics={"mmd": []}), "outcome.metrics.mmd"),
        (lambda line: line["outcome"].update(machine=5), "outcome.machine"),
        (lambda line: line["outcome"].update(machine={"threads": "1"}), "outcome.machine"),
        (lambda line: line.update(outcome=[]), "outcome: should be"),
        (lambda line: line.pop("outcome"), "expected `outcome`"),
        (lambda line: line.pop("result"), "expected `result`"),
        (
            lambda line: line.update(curve=[[1, 1.0, 10**400]]),
            r"curve\.0\.2: expected a number up to",
        ),
        (lambda line: line.update(curve=[[10**400, 1.0, 1.0]]), r"curve\.0\.0"),
        (lambda line: line.update(points={"-5": {}}), r"points\.-5"),
        (lambda line: line.pop("arm"), "arm: field required"),
        (lambda line: line.update(arm=["x"]), "arm: should be a valid string"),
        (lambda line: line.update(seed="0"), "seed: should be a valid integer"),
        (lambda line: line.pop("kind"), "kind: field required"),
    ],
)
@pytest.mark.parametrize("study", ["ours", "emoji"])
def test_a_sealed_line_with_other_things_in_it_is_told_as_that_line(study, request, change, words):
    folder = request.getfixturevalue(study)
    edit_lines(folder, change)
    with pytest.raises(
        BadInput, match=rf"line 1 of .*cells\.jsonl is not what a study keeps: .*{words}"
    ):
        verify(folder, CATALOG)


def test_every_line_that_was_kept_is_let_through():
    lines = [
        json.loads(line)
        for path in EVIDENCE.glob("*/cells.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(lines) > 1000 and not [fault for line in lines if (fault := fault_of_line(line))]
    diverged = lines[0] | {"curve": [[8, 1.0, float("nan")], [16, 2.0, float("inf")]]}
    assert not fault_of_line(diverged) and not fault_of_line(
        {"arm": "trunk", "seed": 0, "kind": "trunk", **_ended()}
    )
    assert not fault_of_line(
        {"arm": "a", "seed": 0, "kind": "arm", "outcome": {"why": "it diverged", "images": 8}}
    )


def _ended():
    return {"result": {"weights_sha256": "0" * 64, "images": 48}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"made": {}}, "does not say how the study was made: version: field required"),
        ({"how": "../../outside"}, "does not say how cells were measured"),
        ({"user_files": {"x.py": 5}}, "names files of one's own"),
    ],
)
def test_sealed_facts_of_another_kind_are_refused_in_words(ours, fields, words):
    edit_facts(ours, **fields)
    with pytest.raises(BadInput, match=words):
        verify(ours, CATALOG)
    with pytest.raises(BadInput, match=words):
        read_facts(ours)


def test_pictures_that_are_a_text_are_refused_in_words(ours):
    picture, *_ = sorted((ours / "pictures").iterdir())
    write_sealed(picture, {"prompts": 5, "pictures": "x"})
    write_contents(ours)
    with pytest.raises(BadInput, match="prompts: should be a valid list"):
        verify(ours, CATALOG)


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), OverflowError("x"), AttributeError("x"), IndexError("x"), RecursionError("x")],
)
def test_whatever_judging_meets_ends_in_one_sentence_with_the_study(ours, monkeypatch, error):
    def fail(*given):
        raise error

    monkeypatch.setattr(kept_verdicts, "judged_again", fail)
    for judged in (verify, results):
        with pytest.raises(
            BadInput,
            match=rf"ours could not be judged: {type(error).__name__} .* in test_kept_verdicts",
        ):
            judged(ours if judged is verify else ours.parent, CATALOG)


def test_a_cell_without_a_metric_is_missing_for_that_metric_alone():
    measured = cells_of({"baseline": [0.5, 0.6, 0.7]}, "attribute_f1")
    measured["baseline"][0] = CellRecord("baseline", 0)
    assert not_learned(measured, "baseline", "attribute_f1", 0.95) is None
    # its square is no float
    measured = with_value(measured, "baseline", 1, "attribute_f1", value=1.7e308)
    assert values_of(measured, "baseline", "attribute_f1") == {2: 0.7}


def test_a_study_that_lost_all_but_its_list_is_still_told(ours, emoji):
    for name in ("cells.jsonl", "kept.json"):
        (ours / name).unlink()
    with pytest.raises(BadInput, match=r"ours has lost its cells\.jsonl"):
        results(ours.parent, CATALOG)


def test_rounding_of_another_machine_is_no_difference():
    assert not list(differences({"a": [1.0, "x"]}, {"a": [1.0 + 1e-9, "x"]}))
    assert list(differences({"a": 1.0}, {"a": 1.001})) and list(
        differences({"a": 1}, {"a": 1, "b": 2})
    )
    assert list(differences([1, 2], [1])) and list(differences(True, 1.5))
