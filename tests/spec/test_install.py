"""What a hint tells to install: it must be the Python that runs, and the clone where there is
one."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from fulcrum.spec import errors as module
from fulcrum.spec.errors import install, install_extra

ROOT = Path(module.__file__).parents[2]


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """An environment at bin/python that is not activated: another pip, or none, is on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(module.shutil, "which", lambda name: "/elsewhere/bin/pip")
    return tmp_path


def test_an_environment_that_is_not_activated_names_its_python(bare, monkeypatch):
    assert install("s3fs") == "bin/python -m pip install s3fs"
    monkeypatch.setattr(module.shutil, "which", lambda name: str(bare / "bin" / name))
    assert install("s3fs") == "pip install s3fs"


def test_a_clone_is_installed_from_where_it_lies(bare, monkeypatch):
    clone = bare / "a clone"
    clone.mkdir()
    (clone / "pyproject.toml").touch()
    monkeypatch.setattr(module, "HOME", clone)
    assert install_extra("ray") == "bin/python -m pip install -e 'a clone[ray]'"
    monkeypatch.chdir(clone)
    assert shlex.split(install_extra("ray"))[-2:] == ["-e", ".[ray]"]
    monkeypatch.chdir("/")
    assert shlex.split(install_extra("ray"))[-1] == f"{str(clone)[1:]}[ray]"


def test_a_copy_among_the_installed_packages_is_asked_for_by_name(bare, monkeypatch):
    monkeypatch.setattr(module, "HOME", bare)
    assert install_extra("ray") == "bin/python -m pip install 'fulcrum-lab[ray]'"


def test_every_hint_asks_here_and_names_a_group_that_there_is():
    import tomllib

    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    code = {
        path: path.read_text()
        for path in (ROOT / "fulcrum").rglob("*.py")
        if path != Path(module.__file__)
    }
    assert not [
        path for path, text in code.items() if re.search(r"pip install|fulcrum-lab\[", text)
    ]
    asked = {
        name for text in code.values() for name in re.findall(r"install_extra\([\"'](\w+)", text)
    }
    assert {"datasets", "diffusers", "ray"} <= asked <= set(groups)
