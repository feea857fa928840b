"""Class names of the package are unique, and no file or folder has a name without meaning."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "fulcrum").rglob("*.py"))
VAGUE = {"util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"}


def test_a_class_name_is_defined_once():
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 100, "the search finds too little"
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_no_file_or_folder_is_called_by_a_word_without_meaning():
    words = {part for path in FILES for part in (*path.relative_to(ROOT).parent.parts, path.stem)}
    assert not {name for name in words if VAGUE & set(name.split("_"))}


def test_tests_share_only_within_their_folder():
    wrong = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        own = ".".join(path.relative_to(ROOT).parent.parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            wrong += [
                f"{path.relative_to(ROOT)}: {name}" for name in modules if _elsewhere(name, own)
            ]
    assert not wrong


def _elsewhere(module: str, own: str) -> bool:
    """Is it a module of the tests that lies in another of their folders? What all share lies at
    their root."""
    folder = (
        module.rpartition(".")[0] if (ROOT / f"{module.replace('.', '/')}.py").is_file() else module
    )
    return module.split(".")[0] == "tests" and folder not in ("tests", own)
