"""examples/notebook.ipynb: its very cells, in a small world; what each shows is what a notebook
would show."""

import ast
import json
import re
from pathlib import Path

import pytest

from tests.cells_here import all_here

ROOT = Path(__file__).parents[2]
SMALL = [
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "budget.images=16",
    "data.source.count=64",
]
SMALL += ["sample.steps=2"]


def shown(cell, names):
    """Run a cell; what its last line is worth, or None."""
    body = ast.parse(cell)
    last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
    exec(compile(body, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def test_the_notebook_runs(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    from fulcrum.measure import evaluation as run_evaluation

    monkeypatch.setattr(run_evaluation, "REFERENCE", 512)
    monkeypatch.setattr(run_evaluation, "VALIDATION", 128)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    all_here(monkeypatch)
    notebook = json.loads((ROOT / "examples/notebook.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    small = [
        cell.replace('settings = ["budget.images=9600"]', f"settings = {SMALL}") for cell in cells
    ]
    small = [
        re.sub(r'(samples"?[:=] ?)128', r"\g<1>64", cell).replace(
            '"samples": 64,', '"samples": 64, "compile": False,'
        )
        for cell in small
    ]
    assert sum(a != b for a, b in zip(cells, small, strict=True)) == 3, (
        "the notebook is not made small"
    )
    names = {}
    values = [shown(cell, names) for cell in small]
    run, pictures, measured, frame, study, effects = (
        value for value in values if value is not None
    )
    assert run.key in run._repr_html_() and pictures._repr_png_().startswith(b"\x89PNG")
    assert "mmd" in measured._repr_html_() and frame[0] == "lower" and len(frame[1])
    assert "Does Muon help?" in study._repr_html_() and study.page.is_file()
    assert set(effects["n"]) == {2} and "attribute_f1" in set(effects["metric"])
