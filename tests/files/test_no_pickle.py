"""Nothing that the package reads may run code: no pickle, by whatever name; of others' torch files
the tensors alone."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "fulcrum"
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def unpickles(tree: ast.AST) -> list[int]:
    """Lines that import a module of the kind, call torch.load for more than tensors, or allow numpy
    to."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {
                (node.module or "").split(".")[0],
                *(name.name for name in node.names if node.module == "torch"),
            }
        elif isinstance(node, ast.Call):
            whole = ast.unparse(node.func)
            allowed = any(
                one.arg == "allow_pickle" and ast.unparse(one.value) != "False"
                for one in node.keywords
            )
            tensors_only = any(
                one.arg == "weights_only" and ast.unparse(one.value) == "True"
                for one in node.keywords
            )
            names = {"pickle"} if (whole == "torch.load" and not tensors_only) or allowed else set()
        else:
            continue
        if names & {
            *MODULES,
            "load" if isinstance(node, ast.ImportFrom) and node.module == "torch" else "pickle",
        }:
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load(x)",
        "np.load(x, allow_pickle=True)",
        "from torch import load",
        "import dill as d",
    ],
)
def test_it_is_seen(source: str) -> None:
    assert unpickles(ast.parse(source))


def test_nothing_of_ours_unpickles() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 100, "the search finds too little"
    assert not {
        str(path): lines
        for path in files
        if (lines := unpickles(ast.parse(path.read_text(encoding="utf-8"))))
    }
