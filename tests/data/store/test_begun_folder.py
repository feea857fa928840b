"""DEST.partial is where a command works: what somebody else put there is neither lost nor mixed
into a store."""

import json

import numpy as np
import pytest

from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.derived_store import FilterRules, derive, filter_store
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.importing import Options
from fulcrum.data.stores.picture_store import read_about
from fulcrum.data.stores.verify import check
from fulcrum.networks.captioning.captioners import SHIPPED
from fulcrum.networks.captioning.recaption import Recaption, Wish
from fulcrum.spec.errors import BadInput

LARGE = FilterRules(least_side=10)  # every picture stays


def quiet(text):
    pass


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def given(make, tmp_path):
    return make.folder(tmp_path / "given", 9)


@pytest.fixture
def parent(given, tmp_path):
    run_import(open_given(str(given)), tmp_path / "parent", Options(size=16, shard=4), quiet)
    return tmp_path / "parent"


def imports(given, parent, to):
    run_import(open_given(str(given)), to, Options(size=16, shard=4), quiet)


def filters(given, parent, to):
    filter_store(parent, to, LARGE, None, quiet, {})


def captions(given, parent, to):
    go = Recaption(Wish(parent, to, "/no/such/folder", "recap", (SHIPPED["short"],)), quiet)
    go.finished(go.ask)


def captions_a_part(given, parent, to):
    Recaption(Wish(parent, to, "world", "recap", (SHIPPED["short"],)), quiet).ask(0, 2)


def refused_import(given, parent, to):
    (given / "0000.txt").write_text("")
    imports(given, parent, to)


def refused_filter(given, parent, to):
    filter_store(parent, to, FilterRules(least_side=4000, held_out=True), None, quiet, {})


COMMANDS = [imports, filters, captions, captions_a_part, refused_import, refused_filter]
FOREIGN = {
    "notes": {"notes.txt": "precious"},
    "a shard": {"notes.txt": "precious", "shards/mine.tar": "mine"},
    "a lock": {"lock": "the combination of my bicycle"},
    "marks of another": {
        "import.json": "{}",
        "filter.json": "[1]",
        "caption.json": '{"width": 3}',
        "text.md": "mine",
    },
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_was_there_is_not_touched(given, parent, tmp_path, command, files):
    for name, text in files.items():
        (tmp_path / "x.partial" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x.partial" / name).write_text(text)
    before = tree(tmp_path / "x.partial")
    with pytest.raises(
        BadInput,
        match=r"x\.partial holds '.*' and is not the beginning of this (import|filter|captioning)",
    ):
        command(given, parent, tmp_path / "x")
    assert tree(tmp_path / "x.partial") == before and not (tmp_path / "x").exists()


@pytest.mark.parametrize("command", [imports, filters, refused_import, refused_filter])
def test_unfinished_captions_are_not_given_up_for_another_command(given, parent, tmp_path, command):
    answers = tmp_path / "x.partial" / "answers" / "00000.jsonl"
    answers.parent.mkdir(parents=True)
    answers.write_text("{}\n")
    (tmp_path / "x.partial" / "caption.json").write_text('{"captioner": {}}')
    with pytest.raises(BadInput, match="is not the beginning of this"):
        command(given, parent, tmp_path / "x")
    assert answers.read_text() == "{}\n"


@pytest.mark.parametrize(
    "left", [(), ("lock",), ("lock", "shards/"), (".import.json.12-0123abcd.writing", "lock")]
)
@pytest.mark.parametrize("command", [imports, filters])
def test_what_was_killed_before_its_first_word_goes_on(given, parent, tmp_path, command, left):
    (tmp_path / "x.partial").mkdir()
    for name in left:
        (tmp_path / "x.partial" / name).mkdir() if name.endswith("/") else (
            tmp_path / "x.partial" / name
        ).touch()
    command(given, parent, tmp_path / "x")
    assert check(tmp_path / "x")["sound"] and not (tmp_path / "x.partial").exists()


def test_a_killed_filter_goes_on(given, parent, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(made, final):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("fulcrum.data.stores.derived_store.rename_folder", killed)
        filters(given, parent, tmp_path / "x")
    partial = tmp_path / "x.partial"
    assert json.loads((partial / "filter.json").read_text())["filter"]["least_side"] == 10
    filters(given, parent, tmp_path / "x")
    filters(given, parent, tmp_path / "whole")
    assert tree(tmp_path / "x") == tree(tmp_path / "whole") and not partial.exists()


def test_a_target_that_appears_meanwhile_is_told_and_nothing_is_left(
    given, parent, tmp_path, monkeypatch
):
    def derived(*asked):
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "mine.txt").write_text("mine")
        return derive(*asked)

    monkeypatch.setattr("fulcrum.data.stores.derived_store.derive", derived)
    with pytest.raises(BadInput, match=r"x appeared while .* was written"):
        filters(given, parent, tmp_path / "x")
    assert tree(tmp_path / "x") == {"mine.txt": b"mine"} and not (tmp_path / "x.partial").exists()


def test_a_filter_that_is_done_is_done_when_it_is_asked_for_again(given, parent, tmp_path):
    filters(given, parent, tmp_path / "x")
    before, lines = tree(tmp_path / "x"), []
    (tmp_path / "x" / "lock").touch()  # it was killed as it tidied up
    about = filter_store(parent, tmp_path / "x", LARGE, None, lines.append, {})
    assert (
        about == read_about(tmp_path / "x")
        and tree(tmp_path / "x") == before
        and "already" in lines[-1]
    )
    for rules, scores, by in (
        (FilterRules(least_side=11), None, {}),
        (FilterRules(drop=0.1), np.ones(9), {"scorer": "a"}),
    ):
        with pytest.raises(BadInput, match="holds a data set already"):
            filter_store(parent, tmp_path / "x", rules, scores, quiet, by)
