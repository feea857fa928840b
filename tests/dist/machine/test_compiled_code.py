"""Whether this machine can compile, and where compiled code is kept."""

import os
import shutil
import stat
import sys
import sysconfig
from pathlib import Path

import pytest

from fulcrum.training.dist.compiled_code import FOLDER, VECTORS, compiles_here, is_compiler_error

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


def test_without_a_compiler_it_says_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    able, heard = asked()
    assert not able and len(heard) == 1
    assert "no C++ compiler was found (g++)" in heard[0] and "slower" in heard[0]
    assert FOLDER not in os.environ


def test_a_compiler_that_torch_would_not_call_does_not_count(tmp_path, monkeypatch):
    other = tmp_path / "clang++"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asked()[0] == (sys.platform == "darwin")


@needs_compiler
def test_without_the_headers_of_python_it_says_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    able, heard = asked()
    assert not able and len(heard) == 1 and "python3-dev" in heard[0]


@needs_compiler
def test_code_is_kept_in_the_cache_of_the_user(tmp_path, monkeypatch):
    assert asked() == (True, [])
    folder = Path(os.environ[FOLDER])
    assert folder.parent == tmp_path / "home" / "fulcrum" / "compiled"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert asked() == (True, [])  # as a process that was started by this one
    assert Path(os.environ[FOLDER]) == folder
    monkeypatch.delenv(FOLDER)
    assert asked() == (True, [])  # as the next command
    assert Path(os.environ[FOLDER]) == folder


@needs_compiler
def test_code_goes_below_the_folder_that_a_user_names(tmp_path, monkeypatch):
    named = tmp_path / "named"
    monkeypatch.setenv(FOLDER, str(named))
    assert asked() == (True, [])
    assert Path(os.environ[FOLDER]).parent == named


@needs_compiler
def test_another_torch_or_cpu_has_a_folder_of_its_own(monkeypatch):
    folders = set()
    for module, value in (("torch.__version__", "2.0.0"), ("platform.machine", lambda: "vax")):
        monkeypatch.delenv(FOLDER, raising=False)
        assert asked() == (True, [])
        folders.add(os.environ[FOLDER])
        monkeypatch.setattr(module, value)
    monkeypatch.delenv(FOLDER)
    assert asked() == (True, [])
    assert len(folders | {os.environ[FOLDER]}) == 3


@needs_compiler
def test_where_nothing_can_be_kept_torch_keeps_it_elsewhere(tmp_path):
    """A file where a folder belongs: what root, whom no mode stops, cannot write to either."""
    (tmp_path / "home").write_text("")
    able, heard = asked()
    assert able and len(heard) == 1 and "compiled code cannot be kept in" in heard[0]
    assert FOLDER not in os.environ


def test_a_compiler_error_is_told_from_others():
    made = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    assert is_compiler_error(made()) and not is_compiler_error(RuntimeError())
