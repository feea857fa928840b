"""A patch of the package that no code reads is an error; every other patch works as before."""

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

from fulcrum.files import remote as remote_cache
from tests import patch_guard
from tests.patch_guard import reads_attribute, require_reader, written_patches

SOURCE = """
LIMIT = 1
AT_IMPORT = 2
DEFAULT = 3
WRITTEN = 4
IN_CLASS = 5
IN_LAMBDA = 6
IN_COMPREHENSION = 7
UNREAD = 8
TABLE = [AT_IMPORT * IN_COMPREHENSION for _ in range(IN_COMPREHENSION)]
later = lambda: IN_LAMBDA

class A:
    value = IN_CLASS

def read(given=DEFAULT):
    return [LIMIT for _ in range(given)]

def write():
    global WRITTEN
    WRITTEN = 0
"""
UNREAD = ("AT_IMPORT", "DEFAULT", "WRITTEN", "IN_CLASS", "IN_COMPREHENSION", "UNREAD", "absent")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module of a package that is guarded like fulcrum."""
    (tmp_path / "guarded").mkdir()
    (tmp_path / "guarded/__init__.py").touch()
    (tmp_path / "guarded/part.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(patch_guard, "PACKAGE", "guarded")
    import guarded.part

    yield guarded.part
    patch_guard.names_read_in.cache_clear()
    patch_guard.is_read_elsewhere.cache_clear()
    patch_guard.is_own_module.cache_clear()
    for name in ("guarded", "guarded.part"):
        del sys.modules[name]


@pytest.mark.parametrize("name", UNREAD)
def test_a_patch_that_no_function_reads_is_refused(module, monkeypatch, name: str) -> None:
    told = rf"test_a_patch_that_no_function_reads_is_refused.*guarded\.part\.{name} has no effect"
    with pytest.raises(AssertionError, match=told):
        monkeypatch.setattr(module, name, 0, raising=False)
    with pytest.raises(AssertionError, match=told):
        monkeypatch.setattr(f"guarded.part.{name}", 0, raising=False)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError, match=told):
        patch.setattr(module, name, 0, raising=False)


def test_a_patch_that_a_function_reads_is_made(module, monkeypatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 5)
    assert module.read() == [5, 5, 5]
    monkeypatch.setattr("guarded.part.LIMIT", 6)
    assert module.read() == [6, 6, 6]
    monkeypatch.setattr(module, "IN_LAMBDA", 9)
    assert module.later() == 9


def test_classes_instances_and_other_packages_are_not_asked(module, monkeypatch) -> None:
    monkeypatch.setattr(module.A, "value", 0)
    monkeypatch.setattr("guarded.part.A.value", 1)
    monkeypatch.setattr(module.A(), "other", 2, raising=False)
    monkeypatch.setattr(sys, "nobody_reads_this", 3, raising=False)
    monkeypatch.setattr("sys.nobody_reads_this", 4)
    assert (module.A.value, sys.nobody_reads_this) == (1, 4)
    with pytest.raises(AttributeError):
        monkeypatch.setattr(module.A, "absent", 0)


def test_the_guard_is_on_for_the_package(monkeypatch) -> None:
    with pytest.raises(AssertionError, match=r"fulcrum\..*remote\.absent has no effect"):
        monkeypatch.setattr(remote_cache, "absent", 0, raising=False)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("def f():\n    from a.b import c", True),
        ("from a.b import c\ndef f():\n    return c", False),
        ("from a import b\ndef f():\n    return b.c", True),
        ("from a import b as d\ndef f():\n    return d.c()", True),
        ("import a.b\ndef f():\n    return a.b.c", True),
        ("import a.b as d\nf = lambda: d.c", True),
        ("if __name__ == '__main__':\n    from a.b import c", True),
        ("from a import b\nX = b.c", False),
        ("from x import b\ndef f():\n    return b.c", False),
        ("from a import b\ndef f():\n    b.c = 1", False),
    ],
)
def test_readers_in_other_modules_are_found(text: str, reads: bool) -> None:
    assert reads_attribute(ast.parse(text), "a.b", "c") is reads


def test_every_patch_that_a_test_spells_out_has_a_reader() -> None:
    """Also those of slow tests, and of scripts that run in processes of their own."""
    root = Path(__file__).parent
    sources = {
        path: path.read_text(encoding="utf-8")
        for path in root.rglob("*.py")
        if path.name != Path(__file__).name
    }
    found = {
        patch: path for path, text in sources.items() for patch in written_patches(ast.parse(text))
    }
    assert len(found) > 50, "the search finds too little"
    for (module, name), path in found.items():
        try:
            require_reader(import_module(module), name)
        except AssertionError as error:
            raise AssertionError(f"in {path.relative_to(root)}: {error}") from None


@pytest.mark.parametrize(
    "text",
    [
        "from guarded import part\npart.LIMIT = 2",
        "import guarded.part as p\np.LIMIT = q.OTHER = 2",
        "from guarded import part\nmonkeypatch.setattr(part, 'LIMIT', 2)",
        "import guarded.part\nSCRIPT = 'import sys\\nfrom guarded import part\\npart.LIMIT = 2'",
    ],
)
def test_a_patch_is_found_in_the_source(module, text: str) -> None:
    assert list(written_patches(ast.parse(text))) == [("guarded.part", "LIMIT")]


def test_what_is_no_patch_of_a_module_is_not_found(module) -> None:
    text = (
        "from guarded.part import A\nimport other\nA.value = 1\nother.LIMIT = 2\n'from guarded we"
        " are'"
    )
    assert not list(written_patches(ast.parse(text)))
