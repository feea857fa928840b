"""Where compiled code is kept, and what a machine that cannot compile, or must not trust what it
finds, says."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fulcrum.training.dist import compiled_code
from fulcrum.training.dist.compiled_code import (
    FOLDER,
    LABEL,
    VECTORS,
    compiles_here,
    is_compiler_error,
)

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name in (FOLDER, VECTORS, "CXX"):
        monkeypatch.setenv(name, "")  # so that what the code under test sets is taken back
        monkeypatch.delenv(name)


def asked() -> tuple[bool, list[str]]:
    heard: list[str] = []
    return compiles_here(heard.append), heard


def compiler_in(folder: Path, script: str) -> Path:
    path = folder / "fake-g++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_without_a_compiler_it_says_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    able, heard = asked()
    assert not able and len(heard) == 1
    assert "no C++ compiler was found (g++)" in heard[0] and "slower" in heard[0]
    assert FOLDER not in os.environ


def test_a_compiler_that_torch_would_not_call_does_not_count(tmp_path, monkeypatch):
    compiler_in(tmp_path, "exit 0").rename(tmp_path / "clang++")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asked()[0] == (sys.platform == "darwin")


def test_a_compiler_that_builds_nothing_says_one_sentence_each_time(monkeypatch):
    monkeypatch.setenv("CXX", "/bin/false")
    for _ in range(2):  # it may be mended meanwhile: a failure is not remembered
        able, heard = asked()
        assert not able and len(heard) == 1 and "/bin/false cannot build a program" in heard[0]


@needs_compiler
def test_a_good_compiler_is_tried_once_and_its_folder_is_found_again(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    monkeypatch.setenv("CXX", str(compiler_in(tmp_path, f'echo . >> {calls}; exec g++ "$@"')))
    assert asked() == (True, [])
    folder, tries = Path(os.environ[FOLDER]), len(calls.read_text().splitlines())
    assert folder.parent == tmp_path / "home" / "fulcrum" / "compiled"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert tries >= 1
    assert asked() == (True, [])  # as a process that was started by this one
    monkeypatch.delenv(FOLDER)
    assert asked() == (True, [])  # as the next command
    assert Path(os.environ[FOLDER]) == folder and len(calls.read_text().splitlines()) == tries


@needs_compiler
def test_code_goes_below_the_folder_that_a_user_names(tmp_path, monkeypatch):
    named = tmp_path / "named"
    (named / "ab").mkdir(parents=True)
    monkeypatch.setenv(FOLDER, str(named))
    assert asked() == (True, [])
    assert Path(os.environ[FOLDER]).parent == named and (named / "ab").is_dir()


@needs_compiler
@pytest.mark.parametrize(
    ("fact", "value"), [("torch", "2.0.0"), ("capability", "DEFAULT"), ("cpu", ["flags: sse"])]
)
def test_code_of_another_torch_or_cpu_is_set_aside(fact, value):
    assert asked() == (True, [])
    folder = Path(os.environ[FOLDER])
    label = json.loads((folder / LABEL).read_text())
    (folder / LABEL).write_text(json.dumps({**label, fact: value}))
    (folder / "code.so").write_bytes(b"made elsewhere")
    able, heard = asked()
    assert able and len(heard) == 1 and f"made with another {fact}" in heard[0]
    assert Path(os.environ[FOLDER]) == folder and not (folder / "code.so").exists()
    assert (folder.with_name(f"damaged-{folder.name}") / "code.so").exists()
    assert asked() == (True, [])


@needs_compiler
def test_code_without_a_label_is_set_aside():
    assert asked()[0]
    folder = Path(os.environ[FOLDER])
    (folder / LABEL).write_text("no JSON")
    (folder / "code.so").write_bytes(b"from somewhere")
    assert "it is set aside" in asked()[1][0] and not (folder / "code.so").exists()


@needs_compiler
def test_a_folder_that_others_may_write_to_is_not_used():
    assert asked()[0]
    folder = Path(os.environ[FOLDER])
    folder.chmod(0o777)
    able, heard = asked()
    assert able and len(heard) == 1 and "others may write there" in heard[0]
    assert Path(os.environ[FOLDER]) != folder


@needs_compiler
def test_where_nothing_can_be_kept_it_compiles_for_one_command(tmp_path):
    """A file where a folder belongs: what root, whom no mode stops, cannot write to either."""
    (tmp_path / "home").write_text("")
    program = (
        "import os; from fulcrum.training.dist.compiled_code import *;"
        "print(compiles_here(print)); print(os.environ[FOLDER], os.path.isdir(os.environ[FOLDER]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    sentence, able, place = done.stdout.splitlines()
    assert "compiled code cannot be kept in" in sentence and "slower" in sentence
    folder, there = place.split()
    assert able == there == "True"
    assert not Path(folder).exists(), "what was compiled for one command goes with it"


def test_a_compiler_error_is_told_from_others():
    made = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    assert is_compiler_error(made()) and not is_compiler_error(RuntimeError())
    assert compiled_code.SLOWER.endswith("slower")
