"""Imports: the ledger adds up, bad samples are named, a killed import goes on, a flipped bit is
found."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fulcrum.data.readers.reader import Given, open_given
from fulcrum.data.stores.finish_import import _splits, import_summary, run_import
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.data.stores.importing import Import, Options, faults, ledger_lines
from fulcrum.data.stores.picture_store import (
    ABOUT,
    CARD,
    FORMAT,
    LEDGER,
    LINES,
    PictureStore,
    read_about,
)
from fulcrum.data.stores.verify import check
from fulcrum.files.paths import Damaged
from fulcrum.files.sealed import SEAL, read_records, sealed
from fulcrum.spec import progress as countdown
from fulcrum.spec.errors import BadInput, RunFailed


def quiet(text):
    pass


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def mixed(make, tmp_path):
    """Good, small, repeated, wide, broken and uncaptioned pictures."""
    folder = make.folder(tmp_path / "given", 10)
    (folder / "same.png").write_bytes(make.picture(3))
    (folder / "same.txt").write_text("the same again")
    (folder / "exact.png").write_bytes(make.picture(50, (16, 16)))
    (folder / "exact.txt").write_text("fits already")
    (folder / "small.png").write_bytes(make.picture(51, (12, 12)))
    (folder / "small.txt").write_text("too small to fit")
    (folder / "dot.png").write_bytes(make.picture(52, (1, 1)))
    (folder / "dot.txt").write_text("a dot")
    (folder / "cut.png").write_bytes(make.picture(53, (40, 40))[:900])
    (folder / "cut.txt").write_text("cut off")
    (folder / "mute.png").write_bytes(make.picture(54))
    return folder


def test_the_share_is_of_what_is_done_not_of_what_was_handed_out(make, tmp_path, monkeypatch):
    """64 samples are decoded ahead: with fewer, the reader has handed out all of them before the
    first is written."""
    monkeypatch.setattr(countdown, "SOONEST", 0.0)  # as if it took long
    lines = []
    folder = make.folder(tmp_path / "given", 20)
    run_import(open_given(str(folder)), tmp_path / "store", Options(size=16), lines.append)
    told = [
        re.match(r"imported (\d+) samples \((\d+)%\)(?:, .+ left)?$", line).groups()
        for line in lines
    ]
    assert told[0] == ("1", "5") and told[-1] == ("20", "100")
    assert all(int(share) == 5 * int(count) for count, share in told)


def test_the_ledger_adds_up_to_what_was_given(make, mixed, tmp_path):
    to = make.imported(mixed, tmp_path / "store", bad="quarantine", shard=4)
    ledger, about = json.loads((to / LEDGER).read_text()), read_about(to)
    assert (ledger["given"], ledger["kept"], ledger["dropped"], ledger["quarantined"]) == (
        16,
        12,
        1,
        3,
    )
    assert (
        ledger["kept"] == about["count"] == len(PictureStore(to)) == sum(about["splits"].values())
    )
    assert ledger["reasons"] == {
        "smaller than wanted": 1,
        "too small": 1,
        "damaged or cut off": 1,
        "no caption": 1,
    }
    changes = ledger["changes"]
    assert (changes["cropped"], changes["resized"], changes["repeated"]) == (11, 0, 1)
    assert ledger["kept_untouched"] == 1
    assert ledger["buckets"]["16x16"]["cropped_away"] == pytest.approx(11 / 12 / 3, abs=1e-3)
    assert faults(ledger, 12) == [] and any(
        "12 + dropped 1 + quarantined 3" in line for line in ledger_lines(ledger)
    )
    assert [
        line["name"] for line in read_records(to / LINES).values if line["outcome"] == "quarantined"
    ] == [
        "cut.png",
        "dot.png",
        "mute.png",
    ]
    assert "reference pictures are too few to measure" in import_summary(to)[1][-1]
    assert check(to)["sound"] and not list(to.glob("part-*"))
    for change in (
        {"given": 17},
        {"kept": 11},
        {"reasons": {}},
        {"buckets": {}},
        {"kept_untouched": 0},
    ):
        assert faults(ledger | change, 12), change
    card = json.loads((to / CARD).read_text())
    assert card["distinct_pictures"] == 11 and card["content"] == about["content"]


def test_by_default_the_first_bad_sample_stops_and_is_named(make, mixed, tmp_path):
    with pytest.raises(BadInput, match="cut.png: damaged") as error:
        make.imported(mixed, tmp_path / "store", shard=4)
    assert "--bad quarantine" in error.value.hint and not (tmp_path / "store").exists()
    to = make.imported(mixed, tmp_path / "store", shard=4, bad="quarantine")  # goes on
    assert tree(to / "shards") == tree(
        make.imported(mixed, tmp_path / "other", shard=4, bad="quarantine") / "shards"
    )


def test_policies_for_small_and_repeated_pictures(make, mixed, tmp_path):
    to = make.imported(mixed, tmp_path / "store", bad="quarantine", enlarge=True, once=True)
    ledger = json.loads((to / LEDGER).read_text())
    assert (
        ledger["changes"]["enlarged"] == 1
        and ledger["reasons"]["repeated"] == 1
        and ledger["kept"] == 12
    )
    assert [
        line["name"] for line in read_records(to / LINES).values if line["outcome"] == "dropped"
    ] == ["same.png"]


def test_buckets_keep_shapes_and_are_booked(make, tmp_path):
    folder = make.folder(tmp_path / "given", 6, (96, 64))
    make.folder(folder, 3, (64, 80), first=6)
    to = make.imported(folder, tmp_path / "store", size=64, buckets=True, hold_out=0.0)
    ledger, store = json.loads((to / LEDGER).read_text()), PictureStore(to)
    assert (
        ledger["kept"] == 9 == sum(one["kept"] for one in ledger["buckets"].values())
        and len(ledger["buckets"]) == 2
    )
    assert store.picture(0).shape != store.picture(8).shape and check(to)["sound"]
    # a square would lose a third
    assert max(one["cropped_away"] for one in ledger["buckets"].values()) < 0.15


def test_a_picture_that_fits_keeps_its_bytes(make, tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.jpg").write_bytes(make.picture(number, (16, 16), "JPEG", quality=80))
        (folder / f"{number}.txt").write_text("x")
    to = make.imported(folder, tmp_path / "store", encoding="jpeg")
    assert PictureStore(to).data(2) == make.picture(2, (16, 16), "JPEG", quality=80)
    assert json.loads((to / LEDGER).read_text())["kept_untouched"] == 4


def test_a_killed_import_goes_on_and_ends_the_same(make, tmp_path):
    folder = make.folder(tmp_path / "given", 60, (120, 100))
    code = (
        "import sys, time; from pathlib import Path; from fulcrum.data.store import importing\nfrom"
        " fulcrum.data.readers.reader import open_given\nfrom fulcrum.data.stores.finish_import"
        " import run_import\nreal = importing.prepare\ndef slow(*a): time.sleep(0.02); return"
        " real(*a)\nimporting.prepare = slow; importing.AHEAD ="
        " 2\nrun_import(open_given(sys.argv[1]), Path(sys.argv[2]), importing.Options(size=16,"
        " shard=8), print)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "killed")],
        stdout=subprocess.DEVNULL,
    )
    partial = tmp_path / "killed.partial"
    for _ in range(400):
        if len(list(partial.glob("part-*.jsonl"))) >= 2:
            break
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    before = len(list(partial.glob("part-*.jsonl")))
    assert 2 <= before < 8 and not (tmp_path / "killed").exists()
    with pytest.raises(BadInput, match="not finished|no imported"):
        FolderSource(tmp_path / "killed")
    lines = []
    for name, say in (("killed", lines.append), ("whole", quiet)):
        run_import(open_given(str(folder)), tmp_path / name, Options(size=16, shard=8), say)
    assert any("going on after" in line for line in lines)
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")


@pytest.mark.parametrize("removed", range(5))  # of lock, description and three parts
def test_an_import_that_was_killed_as_it_tidied_up_is_finished(
    make, tmp_path, monkeypatch, removed
):
    given, options = make.folder(tmp_path / "given", 9), Options(size=16, shard=4)
    whole = run_import(open_given(str(given)), tmp_path / "whole", options, quiet)
    real, gone = Path.unlink, []

    def killed(path, missing_ok=False):
        if path.parent == tmp_path / "store" and path.exists():
            if len(gone) == removed:
                raise KeyboardInterrupt
            gone.append(path)
        real(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", killed)
        run_import(open_given(str(given)), tmp_path / "store", options, quiet)
    assert len(tree(tmp_path / "store")) > len(tree(tmp_path / "whole"))
    with pytest.raises(BadInput, match="holds an imported data set already, with another hold_out"):
        run_import(
            open_given(str(given)), tmp_path / "store", options._replace(hold_out=0.2), quiet
        )
    lines = []
    assert run_import(open_given(str(given)), tmp_path / "store", options, lines.append) == whole
    assert "was imported already" in lines[-1] and tree(tmp_path / "store") == tree(
        tmp_path / "whole"
    )


def test_an_import_that_is_done_is_done_when_it_is_asked_for_again(make, tmp_path):
    """As a script does that was killed after its last rename: nothing is written, and the end is a
    good one."""
    given, to, options, lines = (
        make.folder(tmp_path / "given", 9),
        tmp_path / "store",
        Options(size=16, shard=4),
        [],
    )
    whole = run_import(open_given(str(given)), to, options, quiet)
    before = tree(to)
    assert (
        run_import(open_given(str(given)), to, options, lines.append) == whole
        and tree(to) == before
    )
    assert "was imported already" in lines[-1]
    shard = next((to / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(Damaged, match="expected .* bytes"):
        run_import(open_given(str(given)), to, options, quiet)


def test_an_import_that_another_finished_meanwhile_is_not_done_again(make, tmp_path, monkeypatch):
    """It looked before the other's rename, and got the lock after."""
    given, to, options, lines = (
        make.folder(tmp_path / "given", 9),
        tmp_path / "store",
        Options(size=16, shard=4),
        [],
    )
    whole, real, looks = run_import(open_given(str(given)), to, options, quiet), Path.exists, []

    def too_early(path, **more):
        if path == to and not looks:
            looks.append(path)
            return False
        return real(path, **more)

    monkeypatch.setattr(Path, "exists", too_early)
    assert run_import(open_given(str(given)), to, options, lines.append) == whole and looks
    assert "was imported already" in lines[-1] and sorted(p.name for p in tmp_path.iterdir()) == [
        "given",
        "store",
    ]


def test_a_source_that_changed_meanwhile_is_refused(make, tmp_path):
    folder, partial = make.folder(tmp_path / "given", 9), tmp_path / "store.partial"
    options = Options(size=16, shard=4)
    Import(open_given(str(folder)), partial, options, {"kind": "folder"}, quiet).run()
    with pytest.raises(BadInput, match="other settings"):
        run_import(open_given(str(folder)), tmp_path / "store", options._replace(size=8), quiet)
    (folder / "0001.txt").write_text("another caption")
    with pytest.raises(BadInput, match="source has changed"):
        run_import(open_given(str(folder)), tmp_path / "store", options, quiet)
    (partial / "refused").unlink()
    (partial / "part-00000.jsonl").write_bytes(
        (partial / "part-00000.jsonl").read_bytes() + b"{}\n"
    )
    with pytest.raises(RunFailed, match="changed after"):
        run_import(open_given(str(folder)), tmp_path / "store", options, quiet)


def test_nothing_is_overwritten_and_nothing_kept_is_said(make, store, tmp_path):
    with pytest.raises(BadInput, match="already"):
        make.imported(store.parent / "given", store)
    with pytest.raises(BadInput, match="imported already"):
        open_given(str(store))
    folder = make.folder(tmp_path / "given", 2, (10, 10))
    with pytest.raises(BadInput, match="nothing was kept: 2 smaller than wanted"):
        make.imported(folder, tmp_path / "none")


@pytest.mark.parametrize(
    "name",
    [
        "store.json",
        "samples.bin",
        "captions.bin",
        "caption_ends.bin",
        "names.bin",
        "shards/*",
        "ledger.json",
    ],
)
def test_one_flipped_bit_is_found(make, store, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    assert check(copy)["sound"]
    path = sorted(copy.glob(name))[0]
    place = (
        PictureStore(copy).rows[2]["offset"] + 40
        if name == "shards/*"
        else path.stat().st_size // 2
    )
    data = bytearray(path.read_bytes())
    data[int(place)] ^= 1
    path.write_bytes(data)
    if name == "store.json":
        with pytest.raises(Damaged, match="changed after|cannot be read"):
            check(copy)
        return
    report = check(copy)
    assert not report["sound"] and path.name.split(".")[0] in " ".join(report["faults"])
    if name == "shards/*":
        bad = PictureStore(copy).name(2)
        assert any(bad in fault for fault in report["faults"]), (
            "the picture is named, not only its shard"
        )
        with pytest.raises(Damaged, match=f"{bad}.*a bit has changed"):
            PictureStore(copy).picture(2)
        assert PictureStore(copy).picture(1).shape == (3, 16, 16), "the others can still be read"
    elif name.endswith(".bin"):
        with pytest.raises(Damaged, match="a bit has changed"):
            FolderSource(copy)


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "a list"])
def test_a_card_that_is_not_as_written_is_found(store, tmp_path, damage):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    assert check(copy)["sound"]
    text = (copy / CARD).read_text()
    (copy / CARD).write_text(
        {
            "changed": text.replace('"count": 40', '"count": 41'),
            "cut": text[: len(text) // 2],
            "a list": "[]",
            "gone": "",
        }[damage]
    )
    if damage == "gone":
        (copy / CARD).unlink()
    report = check(copy)
    assert not report["sound"] and len(report["faults"]) == 1 and "card.json" in report["faults"][0]


@pytest.mark.parametrize("field", ["format", "shards", "tables", "content"])
def test_a_store_that_does_not_state_what_it_must_is_refused(store, tmp_path, field):
    copy = shutil.copytree(store, tmp_path / "copy")
    about = {name: value for name, value in read_about(copy).items() if name != field}
    (copy / ABOUT).write_text(json.dumps(sealed(about, SEAL)))
    with pytest.raises((Damaged, BadInput), match=f"does not state '{field}'|has format None"):
        PictureStore(copy)


@pytest.mark.parametrize("text", [b"[" * 200_000, b"\xff\xfe", b"[]", b""])
def test_a_store_that_cannot_be_parsed_is_damaged(store, tmp_path, text):
    copy = shutil.copytree(store, tmp_path / "copy")
    (copy / ABOUT).write_bytes(text)
    with pytest.raises(Damaged, match="store.json"):
        check(copy)


@pytest.mark.parametrize(
    "name", ["lock", "samples.bin", "ledger.jsonl", "shards/00000.writing", "store.json"]
)
def test_a_link_in_an_unfinished_import_empties_nothing(make, tmp_path, name):
    mine = tmp_path / "thesis.txt"
    mine.write_text("mine")
    link = tmp_path / "store.partial" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    folder = make.folder(tmp_path / "given", 3)
    begun = {
        "format": FORMAT,
        "options": Options(size=16, hold_out=0.1).decides(),
        "kind": "folder",
    }
    (tmp_path / "store.partial" / "import.json").write_text(json.dumps(begun))
    if name == "lock":
        with pytest.raises(BadInput, match="it is a link"):
            make.imported(folder, tmp_path / "store")
    else:
        assert check(make.imported(folder, tmp_path / "store"))["sound"]
    assert mine.read_text() == "mine"


def test_a_missing_or_cut_shard_is_found(store, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    first, second, _ = sorted((copy / "shards").iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:2000])
    text = " ".join(check(copy)["faults"])
    assert f"{first.name}: expected" in text and "no file" in text and "cut off" in text


def test_shards_are_ordinary_webdataset_tars(make, store, tmp_path):
    again = {given.name.split(":")[1]: given for given in open_given(str(store / "shards"))}
    opened = PictureStore(store)
    assert len(again) == len(opened) == 40
    first = next(iter(again.values()))
    assert first.data == opened.data(0) and first.captions == opened.captions(0)


def test_splits_hold_whole_groups_and_depend_on_content_only():
    groups = np.repeat(np.random.default_rng(0).integers(0, 2**63, 200, dtype=np.uint64), 3)
    splits = _splits(groups, [""] * 600, 0.1)
    assert [(splits == n).sum() for n in (1, 2)] == [60, 60]
    assert all(len(set(splits[groups == group])) == 1 for group in np.unique(groups))
    shuffled = np.random.default_rng(1).permutation(600)
    assert np.array_equal(_splits(groups[shuffled], [""] * 600, 0.1), splits[shuffled])
    assert not _splits(groups, [""] * 600, 0.0).any()
    assert _splits(groups[:3], [""] * 3, 0.4).tolist() == [0, 0, 0], "something is left to train on"
    assert _splits(groups[:3], ["", "reference", "validation"], 0.4).tolist() == [0, 2, 1]


def test_an_import_holds_few_samples_in_memory(tmp_path, make):
    """The reader is never far ahead of the writer."""
    data, ahead = make.picture(0, (16, 16)), []

    class Endless:
        kind = "test"

        def __iter__(self):
            for number in range(400):
                ahead.append(number)
                yield Given(f"{number}", data, {"long": ["x"]})

        def share(self):
            return len(ahead) / 400

    job = Import(Endless(), tmp_path, Options(size=16, shard=1000), {}, quiet)
    for number, _ in enumerate(job._prepared(iter(Endless()))):
        assert len(ahead) - number <= 65
