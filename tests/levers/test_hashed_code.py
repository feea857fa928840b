"""The code that runs under a key is the code that was hashed for it, also in a worker and after an
edit."""

import hashlib
import importlib.util
import os
import py_compile
from pathlib import Path

import pytest

from fulcrum.levers.catalog import foreign_code, read_phrase, require_unchanged, with_files
from fulcrum.measure.user_metrics import load as load_metrics
from fulcrum.spec.edit import key
from fulcrum.spec.errors import BadInput
from fulcrum.studies.worker import answer

LEVER = """
from typing import ClassVar
from fulcrum import Card, Lever, put
from fulcrum.training.flow.fillers import UniformTime

class OwnTime(UniformTime):
    kind: ClassVar[str] = "own_time"

class Own(Lever):
    name: ClassVar[str] = "own"
    touches: ClassVar[tuple[str, ...]] = ("flow.time",)
    card: ClassVar[Card] = Card(says="draws times of its own")

    def edit(self, run):
        return put(run, "flow.time", OwnTime())

    def witness(self, built):
        return TRUE
"""
METRIC = """
from typing import ClassVar
from fulcrum.measure.user_metrics import OwnExtractor

class Mean(OwnExtractor):
    name: ClassVar[str] = "mean"
    width: ClassVar[int] = 3
    resize: ClassVar[str] = "none"

    def features(self, images):
        return images.float().mean((2, 3)) * 1.0
"""
LONG_AGO = (1_000_000_000, 1_000_000_000)


def written(path: Path, text: str) -> str:
    """Write a file with the time that all its versions have; its hash."""
    path.write_text(text)
    os.utime(path, LONG_AGO)
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_planted_pyc_runs_neither_as_lever_nor_as_extractor(tmp_path: Path) -> None:
    lever, metric = tmp_path / "own.py", tmp_path / "metric.py"
    for path, text, other in (
        (lever, LEVER.replace("TRUE", "True"), "draws times of mine"),
        (metric, METRIC, "* 2.0"),
    ):
        written(path, text.replace("draws times of its own", other).replace("* 1.0", other))
        py_compile.compile(str(path), cfile=importlib.util.cache_from_source(str(path)))
        written(path, text)
    known, hashes = with_files([lever])
    assert known.levers["own"].card.says == "draws times of its own"
    assert list(hashes.values()) == [hashlib.sha256(lever.read_bytes()).hexdigest()]
    import torch

    features = load_metrics([metric]).extractors["mean"].features
    assert features(torch.full((1, 3, 2, 2), 7, dtype=torch.uint8)).tolist() == [[7.0, 7.0, 7.0]]


def test_an_edit_after_loading_does_not_change_the_hash_of_what_runs(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    ran = written(path, LEVER.replace("TRUE", "True"))
    phrase, hashes = read_phrase("spark + own", [path])
    written(path, LEVER.replace("TRUE", "None"))
    assert foreign_code(phrase.run) == hashes == {next(iter(hashes)): ran}
    assert key(phrase.run, 0, foreign_code(phrase.run)) == key(phrase.run, 0, hashes)


def test_a_worker_does_not_run_an_edited_file_under_the_key_of_the_former(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    written(path, LEVER.replace("TRUE", "True"))
    before, hashes = with_files([path])
    require_unchanged(before, hashes)
    written(path, LEVER.replace("TRUE", "None"))
    edited, _ = with_files([path])  # both are loaded now, as in a Ray worker that is kept
    with pytest.raises(BadInput, match=r"own\.py has changed since"):
        require_unchanged(edited, hashes)
    reply = answer({"user_files": hashes, "key": "k"}, {"system": {"processes": 1}}, edited)
    assert (
        reply is not None
        and not reply["ok"]
        and "own.py has changed" in reply["error"]
        and reply["hint"]
    )
