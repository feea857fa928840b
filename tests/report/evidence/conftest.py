"""The studies of two recipes, and the page that is made of them."""

import runpy
from pathlib import Path

import pytest

from tools.evidence.page import files

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
Row, result = (FAKE[name] for name in ("Row", "result"))


@pytest.fixture(scope="module")
def studies():
    pocket = (Row("muon", 0.08, 0.01), Row("repa", -0.03, 0.01), Row("ema", 0.0, 0.005, "tie"))
    return {"replication": result(), "replication_pocket": result(pocket, baseline="pocket")}


@pytest.fixture(scope="module")
def page(studies):
    return str(files(studies)["README.md"])
