"""The numbered faults of the published study that comments cite stand in docs/published.md."""

import re
from pathlib import Path

from fulcrum.advice.published import FAULTS, explained

ROOT = Path(__file__).parents[1]
TEXTS = [*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("dev/*.md")]
CODE = [
    path
    for folder in ("fulcrum", "tests", "tools", "bench", "examples")
    for path in (ROOT / folder).rglob("*.py")
]


def test_every_fault_that_is_cited_is_told():
    page = ROOT / "docs/published.md"
    listed = re.findall(r"^\| (A\d+) \|", page.read_text(encoding="utf-8"), re.M)
    assert sorted(listed, key=lambda number: int(number[1:])) == [
        f"A{number}" for number in range(1, 22)
    ]
    cited = {
        number: path.relative_to(ROOT)
        for path in {*TEXTS, *CODE} - {page, Path(__file__)}
        for number in re.findall(r"\bA\d{1,2}\b", path.read_text(encoding="utf-8"))
    }
    assert {"A1", "A14", "A15"} <= set(cited), "the search finds nothing"
    assert set(cited) <= set(listed), {
        number: str(cited[number]) for number in set(cited) - set(listed)
    }


def test_the_audit_explains_a_number_with_the_words_of_the_page():
    page = (ROOT / "docs/published.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| (A\d+) \| (.*?) \|", page, re.M)) == FAULTS
    assert explained(["(not a clean arm: A10)", "docs/published.md, A2"]) == [
        f"A2: {FAULTS['A2']}",
        f"A10: {FAULTS['A10']}",
    ]
    assert explained(["A100 and a GPU"]) == []
