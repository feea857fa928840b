"""The conclusion in three sentences: whom it names, whom it leaves out, and its place in the
README."""

import runpy
from pathlib import Path

import pytest

from fulcrum.judge.schema import StudyResult
from fulcrum.spec.errors import BadInput
from tools.evidence import page as conclusion
from tools.evidence.page import files

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
Row, result, study = (FAKE[name] for name in ("Row", "result", "study"))


@pytest.fixture(scope="module")
def studies():
    pocket = (Row("muon", 0.08, 0.01), Row("repa", -0.03, 0.01), Row("ema", 0.0, 0.005, "tie"))
    return {"replication": result(), "replication_pocket": result(pocket, baseline="pocket")}


def test_the_conclusion_has_three_sentences_with_their_pairs(studies):
    moved, claims, still_open = conclusion.conclusion(studies)
    assert moved.startswith(
        "Of 13 training decisions, changed one at a time on spark over 8 to 16 paired seeds ("
    )
    assert (
        "at equal images Muon (+0.124 [+0.112, +0.136], 8 pairs, 1.29× the time)" in moved
        and "Short captions (−0.690 [" in moved
    )
    assert "4 replicated, 1 opposite here and 2 undecided; 3 more are not comparable" in claims
    assert still_open.startswith("On pocket 1 of 2 decided ones go the same way; 2 of the 13")
    assert "2 of the 13" in still_open and "2 stayed undecided" in still_open


def test_an_arm_that_is_judged_by_other_prompts_is_named_in_no_conclusion():
    made = study((Row("muon", 0.1), Row("short_captions(prompts=matched)", -0.3, label="Matched")))
    assert (
        "Matched (" in conclusion.conclusion({"replication": StudyResult.model_validate(made)})[0]
    )
    made["arms"][2]["diff"] = [{"path": "sample.prompts.style", "before": "long", "after": "short"}]
    studies = {"replication": StudyResult.model_validate(made)}
    assert (
        "Matched" not in conclusion.conclusion(studies)[0]
        and "no decision" not in conclusion.conclusion(studies)[0]
    )
    page = str(files(studies)["README.md"])
    assert "| [Matched](../levers/short_captions.md) | spark, judged by other prompts |" in page


def test_a_decision_in_other_circumstances_says_so_and_is_named_in_no_conclusion():
    made = study((Row("caption_filter", 0.3, label="Caption filter"),))
    made["plan"]["settings"] = ["data.source.mislabelled=0.2"]
    studies = {
        "replication": result((Row("muon", 0.1),)),
        "replication_mislabels": StudyResult.model_validate(made),
    }
    assert (
        "Muon (" in conclusion.conclusion(studies)[0]
        and "filter" not in conclusion.conclusion(studies)[0]
    )
    page = str(files(studies)["README.md"])
    assert "| [Caption filter](../levers/caption_filter.md) | spark with mislabelled=0.2 |" in page
    made["arms"][1]["diff"] = [{"path": "data.source.mislabelled", "before": "0.2", "after": "0.0"}]
    studies["replication_mislabels"] = StudyResult.model_validate(made)
    assert "filter" not in conclusion.conclusion(studies)[0], (
        "what it is held against is still no plain recipe"
    )


def test_a_decision_with_rates_of_its_own_is_counted_and_named_once():
    made = study((Row("muon", 0.1),))
    sweep = {"arm": "muon", "metric": "validation_loss", "tries": [], "chosen": 0.01, "images": 10}
    made["sweeps"] = [sweep | {"better": "lower"}]
    for arm in made["arms"]:
        for cell in arm["cells"]:
            cell["key"] = f"searched-{cell['key']}"
    both = {
        "replication": result((Row("muon", 0.12), Row("repa", 0.05), Row("ema", 0.0, 0.005, "tie")))
    }
    both["replication_rates"] = StudyResult.model_validate(made)
    moved, _, still_open = conclusion.conclusion(both)
    assert moved.startswith("Of 3 training decisions") and "1 of the 3" in still_open
    assert "Muon (+0.120" in moved and "Repa (" in moved and "own rates" not in moved, (
        "at the rate of all others"
    )
    assert str(files(both)["README.md"]).count("| [Muon]") == 1
    assert "own rates is better: attribute accuracy +0.100" in str(files(both)["README.md"]), (
        "in the answer"
    )
    assert "3 training decisions" in str(files(both)["ranking.svg"])


def test_the_opening_goes_between_its_marks_and_nowhere_else(studies):
    text = conclusion.opening(studies, "docs/evidence")
    readme = f"# Project\n\n{conclusion.BEGIN}\nold\n{conclusion.END}\n\nrest\n"
    made = conclusion.replaced(readme, text)
    assert (
        made.startswith("# Project\n\n<!-- evidence")
        and made.endswith("-->\n\nrest\n")
        and "old" not in made
    )
    assert 'src="docs/evidence/ranking.svg"' in made and conclusion.replaced(made, text) == made
    with pytest.raises(BadInput, match="expected one"):
        conclusion.replaced("# no marks", text)
