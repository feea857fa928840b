"""A fault for every promise: its text stands in the code once, and (slow) the test that is named notices it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mutants.promise_mutants import PROMISES, PromiseMutant

ROOT = Path(__file__).parents[2]
WITHOUT: dict[str, str] = {}  # proofs on docs/promises.md that no single fault of one text can break, and why


@pytest.mark.parametrize("one", PROMISES, ids=lambda one: one.fault)
def test_the_text_of_a_fault_is_in_the_code_once_and_its_test_exists(one: PromiseMutant) -> None:
    changed = one.applied((ROOT / one.file).read_text())
    compile(changed, one.file, "exec", dont_inherit=True)
    file, _, name = one.test.partition("::")
    assert re.search(rf"^def {name}\(" if name else r"^def test_", (ROOT / file).read_text(), re.MULTILINE)


def test_a_text_that_is_gone_or_stands_twice_is_told() -> None:
    one = PROMISES[0]
    for text in ("", one.before * 2):
        with pytest.raises(ValueError, match="expected once"):
            one.applied(text)


def test_every_promise_of_the_page_has_a_fault() -> None:
    page = (ROOT / "docs/promises.md").read_text().splitlines()
    rows = [line for line in page if "`tests/" in line and line.startswith("|")]
    assert len(rows) > 15
    covered = {one.test.partition("::")[0] for one in PROMISES} | set(WITHOUT)
    proofs = {row.split("|")[1].strip(): set(re.findall(r"`(tests/[\w/]+\.py)", row)) for row in rows}
    assert not [promise for promise, files in proofs.items() if not files & covered]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "mutants", "promises", "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    lines = map(json.loads, done.stdout.splitlines())
    return {line["fault"]: line for line in lines}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("one", PROMISES, ids=lambda one: one.fault)
def test_a_broken_promise_is_noticed(one: PromiseMutant, outcomes: dict[str, dict[str, object]]) -> None:
    outcome = outcomes[one.fault]
    assert outcome["sound"], f"{one.test} fails without the fault"
    assert outcome["noticed"], f"{one.test}: {outcome['by'] or 'nothing failed'}"
