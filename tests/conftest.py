"""What tests share: the smallest run that has every part, and a cache that lives as long as the session."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest  # noqa: E402
import torch  # noqa: E402

from fulcrum.levers.catalog import CATALOG  # noqa: E402
from fulcrum.spec.phrase import parse  # noqa: E402

torch.set_num_threads(1)

TINY = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "budget.images=48",
    "data.source.count=64",
    "data.source.max_objects=2",
    "sample.steps=2",
)


@pytest.fixture(scope="session")
def tiny():
    """Phrase -> run, on the smallest model that still has every part."""

    def make(text="spark", *settings, catalogue=CATALOG):
        return parse(text, catalogue, [*TINY, *settings]).run

    return make


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")
