"""docs/promises.md: every test that proves a promise is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROOFS = sorted(
    set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/promises.md").read_text()))
)


def test_the_page_names_tests() -> None:
    assert len(PROOFS) > 20


@pytest.mark.parametrize("file, name", PROOFS)
def test_a_test_that_proves_a_promise_exists(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    assert f"def {name}(" in text if name else "def test_" in text
