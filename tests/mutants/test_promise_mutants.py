"""A fault for every promise: its text stands in the code once, and (slow) the test that is named
notices it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mutants.promise_mutants import PROMISES, PromiseMutant, package_texts

ROOT = Path(__file__).parents[2]
# proofs on docs/promises.md that no single fault of one text can break, and why
WITHOUT: dict[str, str] = {}


@pytest.mark.parametrize("one", PROMISES, ids=lambda one: one.fault)
def test_the_text_of_a_fault_is_in_the_code_once_and_its_test_exists(one: PromiseMutant) -> None:
    texts = package_texts(ROOT)
    place, changed = one.applied(texts)
    assert changed != texts[place]
    compile(changed, place, "exec", dont_inherit=True)
    file, _, name = one.test.partition("::")
    assert re.search(
        rf"^def {name}\(" if name else r"^def test_", (ROOT / file).read_text(), re.MULTILINE
    )


def test_a_text_that_is_gone_or_found_twice_is_an_error() -> None:
    one = PROMISES[0]
    for texts in ({}, {one.file: one.before * 2}, {"a.py": one.before, "b.py": one.before}):
        with pytest.raises(ValueError, match="expected once"):
            one.applied(texts)


FAULT = PromiseMutant(
    "wrong", "fulcrum/old.py", "    x = call(one, [two], three=3)\n", "    x = 0\n", ""
)
LAYOUTS = (
    "def f():\n    x = call(one, [two], three=3)\n",
    "def f():\n    x = call(one, [two], three=3)  # a comment\n",
    (
        "def f():\n    x = call(\n        one,\n        [\n            two,\n        ],\n       "
        " three=3,\n    )\n"
    ),
)
OTHERS = (
    "    x = call(one, [two], three=3).y\n",
    "    y = x = call(one, [two], three=3)\n",
    "    x = call(one, [two], three=34)\n",
    "    x = call(one[two], three=3)\n",
)


@pytest.mark.parametrize("text", LAYOUTS)
@pytest.mark.parametrize("file", ["fulcrum/old.py", "fulcrum/moved/new.py"])
def test_a_text_is_found_in_another_file_and_in_another_layout(text: str, file: str) -> None:
    place, changed = FAULT.applied({"fulcrum/other.py": "pass\n", file: text})
    assert place == file
    assert changed.split("#")[0].rstrip() == "def f():\n    x = 0"


def test_the_named_file_is_searched_first() -> None:
    place, _ = FAULT.applied({"fulcrum/a.py": FAULT.before, "fulcrum/old.py": FAULT.before})
    assert place == "fulcrum/old.py"


@pytest.mark.parametrize("text", OTHERS)
def test_a_text_that_only_resembles_it_is_not_taken(text: str) -> None:
    with pytest.raises(ValueError, match="found 0 times"):
        FAULT.applied({"fulcrum/old.py": text})


def test_every_promise_of_the_page_has_a_fault() -> None:
    page = (ROOT / "docs/promises.md").read_text().splitlines()
    rows = [line for line in page if "`tests/" in line and line.startswith("|")]
    assert len(rows) > 15
    covered = {one.test.partition("::")[0] for one in PROMISES} | set(WITHOUT)
    proofs = {
        row.split("|")[1].strip(): set(re.findall(r"`(tests/[\w/]+\.py)", row)) for row in rows
    }
    assert not [promise for promise, files in proofs.items() if not files & covered]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "mutants", "promises", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = map(json.loads, done.stdout.splitlines())
    return {line["fault"]: line for line in lines}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("one", PROMISES, ids=lambda one: one.fault)
def test_a_broken_promise_is_noticed(
    one: PromiseMutant, outcomes: dict[str, dict[str, object]]
) -> None:
    outcome = outcomes[one.fault]
    assert outcome["sound"], f"{one.test} fails without the fault"
    assert outcome["noticed"], f"{one.test}: {outcome['by'] or 'nothing failed'}"
