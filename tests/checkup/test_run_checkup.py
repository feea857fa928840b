"""fulcrum doctor RUN: damage is named, mended where nothing can be lost, and the run ends as if
nothing had been."""

import json
import os
import shutil
import time

import pytest

from fulcrum.advice.doctor import checkups, treated
from fulcrum.files.paths import set_aside
from fulcrum.files.sealed import write_sealed
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training.run_folder import RunFolder, claim
from fulcrum.training.session import Order, perform


def quiet(text):
    pass


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    order = Order(tiny(), 0, "spark", out, System(), quiet=True)
    return order, perform(order, quiet)


@pytest.fixture
def run(whole, tmp_path):
    order, result = whole
    shutil.copytree(order.out, tmp_path / "runs")
    return tmp_path / "runs" / result["key"]


def examined(path, repair=False):
    """What is wrong at a path, and what became of it."""
    return [
        one
        for checkup in checkups(path, CATALOG, quiet)
        for one in treated(checkup.ailments, repair)
    ]


def sick(path):
    return sorted(one.ailment.place.name for one in examined(path) if one.ill)


def newest(run):
    return sorted(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())[-1]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_sound_folder_of_runs_is_sound(run):
    found = list(checkups(run.parent, CATALOG, quiet))
    assert {one.kind for one in found} == {"run", "cache"} and not any(
        one.ailments for one in found
    )
    about = next(one for one in found if one.kind == "run")
    assert about.sound == ("description", "2 checkpoints", "result", "record")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_last_checkpoint_is_set_aside_and_the_run_ends_with_the_same_weights(
    run, whole, name
):
    order, result = whole
    bad = newest(run)
    flip(bad / name)
    assert sick(run) == sorted([bad.name, "result.json"])
    assert all(one.mended for one in examined(run, repair=True))
    assert (bad.parent / f"damaged-{bad.name}" / name).exists() and (
        run / "damaged-result.json"
    ).exists()
    assert not sick(run)
    again = perform(order._replace(out=run.parent), quiet)
    assert again["weights_sha256"] == result["weights_sha256"]
    assert not sick(run)


def test_without_a_good_checkpoint_nothing_is_touched(run):
    for path in (run / "checkpoints").iterdir():
        flip(path / "model.safetensors")
    before = sorted(path for path in run.rglob("*"))
    outcomes = examined(run, repair=True)
    assert any(
        "no checkpoint is good" in one.ailment.what and "runs rm" in one.ailment.remedy
        for one in outcomes
    )
    assert not any(one.mended for one in outcomes) and before == sorted(
        path for path in run.rglob("*")
    )


def test_bad_lines_of_a_record_go_and_the_file_as_it_was_stays(run):
    good = (run / "record.jsonl").read_bytes()
    (run / "record.jsonl").write_bytes(b"\xff{]\n" + good)
    assert sick(run) == ["record.jsonl"] and not [
        one for one in examined(run, repair=True) if one.ill
    ]
    assert (run / "record.jsonl").read_bytes() == good and (
        run / "damaged-record.jsonl"
    ).read_bytes() == b"\xff{]\n" + good


def test_a_record_that_is_mended_twice_stays_as_it_was_both_times(run, whole):
    """The second mending wrote over what the first had set aside."""
    good = (run / "record.jsonl").read_bytes()
    for bad in (b"{first\n", b"{second\n"):
        (run / "record.jsonl").write_bytes(good + bad)
        assert not [one for one in examined(run, repair=True) if one.ill]
    assert (run / "damaged-record.jsonl").read_bytes() == good + b"{first\n"
    assert (run / "damaged-2-record.jsonl").read_bytes() == good + b"{second\n"
    for _ in range(2):
        shutil.copytree(newest(run), run / "checkpoints" / "000000000008")
        assert set_aside(run / "checkpoints" / "000000000008").parent == run / "checkpoints"
    # what 'runs gc' removes
    assert not sick(run) and len(checkpoint.leftovers(run / "checkpoints")) == 2


def test_a_result_of_other_weights_and_an_edited_description_are_seen(run):
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "weights_sha256": "0" * 64}))
    assert sick(run) == ["result.json"]
    about = json.loads((run / "about.json").read_text())
    about["run"]["optim"]["lr"] = 0.5
    (run / "about.json").write_text(json.dumps(about))
    assert sick(run) == ["about.json", "result.json"]
    assert [one.ailment.place.name for one in examined(run, repair=True) if one.ill] == [
        "about.json"
    ]


def test_what_a_killed_writer_left_goes_and_what_is_written_now_stays(run):
    left, now = (
        run / "checkpoints" / f".000000000099.{pid}-0123abcd.writing"
        for pid in (4194304, os.getpid())
    )
    for path in (left, now):
        path.mkdir()
    os.utime(left, (time.time() - 99,) * 2)
    assert not sick(run)  # in nobody's way
    assert [one.ailment.place.name for one in examined(run, repair=True)] == [left.name]
    assert not left.exists() and now.exists()


def test_a_run_in_use_is_left_alone(run):
    bad = newest(run)
    flip(bad / "model.safetensors")
    with claim(RunFolder(run)):
        outcomes = examined(run, repair=True)
    assert all("another process" in one.failed and one.ill for one in outcomes) and bad.exists()


def test_files_of_a_study_are_set_aside_when_their_seal_is_broken(run):
    from fulcrum.files.sealed import write_sealed

    write_sealed(run / "measured-x.json", {"metrics": {}, "lines": {}})
    write_sealed(run / "pictures-x.json", {"pictures": []})
    assert not sick(run)
    (run / "pictures-x.json").write_text((run / "pictures-x.json").read_text().replace("[]", "[1]"))
    assert sick(run) == ["pictures-x.json"]
    examined(run, repair=True)
    assert (run / "damaged-pictures-x.json").exists() and not sick(run)


def test_a_damaged_cache_entry_is_dropped_and_encoded_again(run, whole):
    order, result = whole
    cache = run.parent / "cache"
    rows = next(path for path in cache.rglob("*.bin") if path.name != "chunks.bin")
    flip(rows)
    assert sick(cache) == [rows.parent.name]
    assert [one.mended for one in examined(cache, repair=True)] == ["dropped"]
    assert not rows.parent.exists() and not sick(cache)
    shutil.rmtree(run)
    assert (
        perform(order._replace(out=run.parent), quiet)["weights_sha256"] == result["weights_sha256"]
    )
    assert rows.exists() and not sick(cache)


@pytest.mark.parametrize("name", ["header.json", "chunks.bin"])
def test_a_cache_entry_without_its_index_is_damaged(run, name):
    entry = next(path.parent for path in (run.parent / "cache").rglob(name))
    (entry / name).unlink()
    assert sick(run.parent / "cache") == [entry.name]


def test_a_cache_entry_under_another_name_is_damaged(run):
    entry = next(path.parent for path in (run.parent / "cache").rglob("header.json"))
    other = entry.with_name(entry.name[:-4] + "0000")
    entry.rename(other)
    assert sick(run.parent / "cache") == [other.name]


def test_a_large_array_is_verified_to_its_last_chunk(tmp_path, monkeypatch):
    """A read looks at two chunks of an array above a GiB; a checkup looks at all."""
    import numpy as np

    from fulcrum.files import array_store as stored_array
    from fulcrum.files.array_store import ArrayStore, require_sound
    from fulcrum.files.paths import Damaged

    monkeypatch.setattr(stored_array, "SPOTTED", 1)
    monkeypatch.setattr(stored_array, "KEPT", 1)
    monkeypatch.setattr(stored_array.secrets, "randbelow", lambda most: 0)
    ArrayStore(tmp_path).get(
        "rows", {}, range(8), lambda number: {"rows": np.full((4, 3), number, np.float32)}
    )
    (entry,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert require_sound(entry) == 8 * 4 * 3 * 4
    data = bytearray((entry / "rows.00000.bin").read_bytes())
    data[-1] ^= 1
    (entry / "rows.00000.bin").write_bytes(data)
    with pytest.raises(Damaged, match="do not have their checksum"):
        require_sound(entry)


def test_what_is_not_ours_is_refused(tmp_path):
    (tmp_path / "thesis").mkdir()
    with pytest.raises(BadInput, match="nothing that fulcrum wrote"):
        list(checkups(tmp_path, CATALOG, quiet))
    with pytest.raises(BadInput, match="is not there"):
        list(checkups(tmp_path / "nowhere", CATALOG, quiet))


@pytest.mark.parametrize(
    "field, value",
    [
        ("seed", None),
        ("seed", [1]),
        ("seed", float("inf")),
        ("reads", [1]),
        ("reads", None),
        ("user_files", [1]),
    ],
)
def test_a_description_with_other_things_in_its_fields_is_an_ailment(run, field, value):
    """about.json has no checksum: a flipped bit in the name of a field must not stop the doctor."""
    about = json.loads((run / "about.json").read_text())
    (run / "about.json").write_text(json.dumps({**about, field: value}))
    assert sick(run) == ["about.json"]
    del about["seed"]
    (run / "about.json").write_text(json.dumps(about))
    assert sick(run) == ["about.json"]


def test_a_description_that_is_nested_too_deep_or_of_strange_parts_is_told(run):
    about = json.loads((run / "about.json").read_text())
    for value in ({"kind": {"kind": 5}}, {"kind": [1]}):
        about["run"]["average"] = value
        (run / "about.json").write_text(json.dumps(about))
        assert any(
            "is not known here" in note
            for one in checkups(run, CATALOG, quiet)
            for note in one.notes
        )
    (run / "about.json").write_text('{"run": {"x": ' + "[" * 900 + "]" * 900 + "}}")
    assert any(
        "nested too deep" in note for one in checkups(run, CATALOG, quiet) for note in one.notes
    )


@pytest.mark.parametrize("lines", [None, [1], "x"])
def test_hashes_of_lines_that_are_none_are_an_ailment(run, lines):
    write_sealed(run / "measured-x.json", {"key": run.name, "lines": lines})
    assert sick(run) == ["curve.jsonl"]
