"""fulcrum doctor PATH over stores of pictures and studies, and what the command says and ends
with."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fulcrum.advice.doctor import checkups
from fulcrum.cli import main
from fulcrum.levers.catalog import CATALOG

EVIDENCE = Path(__file__).parents[2] / "docs/evidence/late"


def fulcrum(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code, capsys.readouterr()


def what(path):
    return [
        (one.place.name, one.what)
        for checkup in checkups(path, CATALOG, lambda text: None)
        for one in checkup.ailments
    ]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"picture {number}")
    with pytest.raises(SystemExit) as end:
        main(
            ["data", "import", str(folder), str(folder.parent / "store"), "--size", "32", "--quiet"]
        )
    assert end.value.code == 0
    return folder.parent / "store"


def test_a_store_is_verified_picture_by_picture(stored, tmp_path, capsys):
    store = shutil.copytree(stored, tmp_path / "store")
    code, said = fulcrum(capsys, "doctor", store)
    assert code == 0 and "data store, sound; verified: 4 pictures" in said.out
    shard = next((store / "shards").iterdir())
    data = bytearray(shard.read_bytes())
    data[700] ^= 1
    shard.write_bytes(data)
    code, said = fulcrum(capsys, "doctor", store, "--repair")
    assert code == 1 and "a bit has changed" in said.out and "import the pictures anew" in said.out
    (store / "store.json").write_text("{")
    assert what(store)[0][0] == "store"


def test_a_run_is_named_by_the_first_letters_of_its_key(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "0123456789abcdef").mkdir(parents=True)
    (tmp_path / "runs" / "0123456789abcdef" / "about.json").write_text("{}")
    code, said = fulcrum(capsys, "doctor", "0123")
    assert code == 1 and "0123456789abcdef" in said.out
    code, said = fulcrum(capsys, "doctor", "fedc")
    assert code == 2 and "no run under runs whose key begins with 'fedc'" in said.err
    code, said = fulcrum(capsys, "doctor", "elsewhere")
    assert code == 2 and "elsewhere is not there" in said.err


def test_a_kept_study_is_judged_again(tmp_path):
    kept = shutil.copytree(EVIDENCE, tmp_path / "late")
    (found,) = checkups(kept, CATALOG, lambda text: None)
    assert found.kind == "kept study" and not found.ailments and "judged again" in found.sound[0]
    lines = (kept / "cells.jsonl").read_text().splitlines(keepends=True)
    (kept / "cells.jsonl").write_text("".join([lines[0].replace("0.", "1.", 1), *lines[1:]]))
    assert "was changed after it was written" in what(kept)[0][1]
    (kept / "cells.jsonl").write_text("".join(lines))
    result = json.loads((kept / "result.json").read_text())
    result["effects"][0]["mean"] = 123.0
    (kept / "result.json").write_text(json.dumps(result))
    assert "does not follow from the cells" in what(kept)[0][1]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda kept: _edit(
                kept / "result.json", lambda row: row.update(verdict="worse", mean=-9.0)
            ),
            "verdict: kept",
        ),
        (lambda kept: shutil.copy(*sorted((kept / "pictures").iterdir())[:2]), "json was changed"),
        (lambda kept: (kept / "costs.json").write_text("{}"), "costs.json was changed"),
        (lambda kept: (kept / "contents.json").unlink(), "contents.json is missing"),
        (
            lambda kept: _edit(kept / "result.json", lambda row: row.update(mean=10**400)),
            "not the result of a study",
        ),
    ],
)
def test_a_kept_study_of_ones_own_files_is_verified_as_the_command_does(tmp_path, damage, words):
    """All of these were sound."""
    kept = shutil.copytree(EVIDENCE.parent / "emoji", tmp_path / "emoji")
    (found,) = checkups(kept, CATALOG, lambda text: None)
    assert (
        not found.ailments
        and "33 effects judged again from their pairs" in found.sound[0]
        and "--with" in found.notes[0]
    )
    damage(kept)
    assert any(words in one for _, one in what(kept))


def _edit(path, change):
    result = json.loads(path.read_text())
    change(result["effects"][0])
    path.write_text(json.dumps(result))


def test_every_kept_study_of_a_folder_is_told_whatever_is_wrong_with_another(tmp_path, capsys):
    """One without cells was passed over, and behind one with a number of 400 digits none was looked
    at."""
    for name in ("a", "b", "c"):
        shutil.copytree(EVIDENCE.parent / "replication_synthetic", tmp_path / name)
    (tmp_path / "a" / "cells.jsonl").unlink()
    _edit(tmp_path / "b" / "result.json", lambda row: row.update(mean=10**400))
    code, said = fulcrum(capsys, "doctor", tmp_path)
    assert (
        code == 1
        and "a: kept study, damaged" in said.out
        and "has lost its cells.jsonl" in said.out
    )
    assert "b: kept study, damaged" in said.out and "c: kept study, sound" in said.out
    assert "has lost its cells.jsonl" in what(tmp_path / "a")[0][1]


def test_the_files_of_a_study_that_are_written_again_are_set_aside(tmp_path, capsys):
    from fulcrum.files.sealed import write_sealed

    study = tmp_path / "study-0123456789abcdef"
    study.mkdir()
    write_sealed(study / "costs.json", {"arms": {}})
    assert fulcrum(capsys, "doctor", study)[0] == 0
    (study / "costs.json").write_text((study / "costs.json").read_text().replace("{}", '{"a": 1}'))
    (study / "plan.json").write_text('{"title": 3}')
    code, said = fulcrum(capsys, "doctor", study, "--json")
    (answer,) = json.loads(said.out)
    assert code == 1 and {Path(one["place"]).name for one in answer["ailments"]} == {
        "costs.json",
        "plan.json",
    }
    code, said = fulcrum(capsys, "doctor", tmp_path, "--repair")
    assert (
        code == 0 and "study, mended" in said.out and "start the study's command again" in said.out
    )
    assert (study / "damaged-plan.json").exists() and fulcrum(capsys, "doctor", study)[0] == 0


def test_words_that_do_not_belong_together_are_refused(tmp_path, capsys):
    assert fulcrum(capsys, "doctor", tmp_path, "--laws")[0] == 2
    code, said = fulcrum(capsys, "doctor", "--repair")
    assert code == 2 and "needs a path" in said.err
