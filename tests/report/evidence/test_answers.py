"""The answers to the articles' claims follow what the kept studies found."""

import runpy
from pathlib import Path

import pytest

from fulcrum.judge import sentences as claim_sentences
from fulcrum.judge.schema import StudyResult
from tools.evidence import answers as article_answers
from tools.evidence import decisions as claim_rows
from tools.evidence.page import files

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
TABLE, Row, result, study = (FAKE[name] for name in ("TABLE", "Row", "result", "study"))


@pytest.fixture(scope="module")
def studies():
    pocket = (Row("muon", 0.08, 0.01), Row("repa", -0.03, 0.01), Row("ema", 0.0, 0.005, "tie"))
    return {"replication": result(), "replication_pocket": result(pocket, baseline="pocket")}


def answer(studies, question):
    return next(one for one in article_answers.answers(studies) if one.question == question)


def test_answers_follow_the_findings(studies):
    assert answer(studies, "Captions first?").word == "Yes, here"
    assert "Short captions are worse" in answer(studies, "Captions first?").text
    assert (
        answer(studies, "The tokenizer second?").word
        == "It helps, and is not the largest gain here"
    )
    assert answer(studies, "Is Muon a free gain?").word == "Better, not free"
    assert answer(studies, "Precision, a silent tax?").word == "Undecided"
    assert answer(studies, "Alignment as burn-in?").word == "Undecided"
    assert answer(studies, "Routing only at many tokens?").word == "Half an answer"
    assert answer(studies, "Real or synthetic pictures?").word == "Not run yet"
    assert all(
        "pairs" in one.text for one in article_answers.answers(studies) if one.word != "Not run yet"
    )


def test_an_answer_tells_what_became_of_it_elsewhere(studies):
    text = answer(studies, "Is Muon a free gain?").text
    assert text.endswith(
        "Again on pocket (attribute accuracy, higher is better): Muon +0.080 [+0.070, +0.090],"
        " better, 8 pairs."
    )
    assert "Again on" not in answer(studies, "Captions first?").text, "they were not asked there"


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (Row("short_captions", 0.1, 0.01), "No, opposite here"),
        (Row("short_captions", -0.05, 0.01), "No, not here"),
        (Row("short_captions", -0.13, 0.01), "It leads, but the intervals meet"),
        (Row("short_captions", -0.01, 0.03, "inconclusive"), "Undecided"),
        (Row("short_captions", 0.001, 0.01, "tie"), "No difference here"),
    ],
)
def test_captions_are_first_only_where_they_are(row, word):
    rows = (*(one for one in TABLE if one.name != "short_captions"), row)
    assert answer({"replication": result(rows)}, "Captions first?").word == word


@pytest.mark.parametrize(
    ("verdicts", "word"),
    [
        (("better", "inconclusive"), "Yes, here"),
        (("worse", "inconclusive"), "Undecided"),
        (("worse", "worse"), "No, not here"),
        (("worse", "tie"), "No, not here"),
        (("tie", "tie"), "No difference that matters here"),
    ],
)
def test_burn_in_is_answered_by_what_holds_it_against_alignment_that_stays_on(verdicts, word):
    apart = (Row("repa", 0.02, 0.01), Row("repa(until=0.5)", 0.06, 0.01, label="REPA(until=0.5)"))
    studies = {"replication": result(apart)}
    # two intervals apart are no verdict of a plan
    assert answer(studies, "Alignment as burn-in?").word == "Undecided"
    means = {"better": 0.05, "worse": -0.05, "tie": 0.0, "inconclusive": 0.02}
    rows = [
        Row(
            f"repa(until={share}) instead of repa",
            means[verdict],
            0.01,
            verdict,
            label=f"REPA(until={share})",
        )
        for share, verdict in zip((0.25, 0.5), verdicts, strict=True)
    ]
    late = study((Row("repa", 0.02, 0.01), *rows))
    late["arms"] = [
        arm | {"against": "repa"} if "instead" in arm["name"] else arm for arm in late["arms"]
    ]
    studies["late"] = StudyResult.model_validate(late)
    said = answer(studies, "Alignment as burn-in?")
    assert said.word == word and said.text.startswith("Held against REPA that stays on: ")


def scaled(verdicts):
    """TREAD at two numbers of tokens, with these verdicts."""
    made = study((Row("tread", 0.05, time=0.7, label="TREAD"),))
    arms, effects = made["arms"], made["effects"]
    both = [
        {
            **arm,
            "name": f"{arm['name']} [{scale}]",
            "label": f"{arm['label']} [{scale}]",
            "scale": scale,
            "against": f"baseline [{scale}]",
        }
        for scale in verdicts
        for arm in arms
    ]
    found = [
        {
            **row,
            "arm": f"{row['arm']} [{scale}]",
            "verdict": verdict,
            "mean": mean,
            "low": mean - 0.01,
            "high": mean + 0.01,
        }
        for scale, (verdict, mean) in verdicts.items()
        for row in effects
        if row["metric"] == "attribute_accuracy"
    ]
    made |= {
        "arms": both,
        "effects": found,
        "grids": None,
        "scales": [{"name": scale, "at": 4.0 + place} for place, scale in enumerate(verdicts)],
        "trends": [
            {
                "arm": "tread",
                "metric": "attribute_accuracy",
                "slope": 0.05,
                "low": 0.04,
                "high": 0.06,
                "n": 6,
                "verdict": "crossing",
            }
        ],
    }
    return StudyResult.model_validate(made)


@pytest.mark.parametrize(
    ("few", "many", "word"),
    [
        (("worse", -0.05), ("better", 0.05), "Yes, here"),
        (("better", 0.05), ("better", 0.05), "It pays at both ends here"),
        (("worse", -0.05), ("worse", -0.05), "No, not here"),
        (("worse", -0.05), ("inconclusive", 0.0), "Undecided"),
    ],
)
def test_routing_is_answered_by_the_scales(few, many, word):
    studies = {"resolution": scaled({"16 tokens": few, "256 tokens": many})}
    assert answer(studies, "Routing only at many tokens?").word == word
    page = str(files(studies)["README.md"])
    assert (
        "## Resolution dependence" in page
        and "crossing" in page
        and "| decision | 16 tokens | 256 tokens |" in page
    )


def test_routing_whose_harm_fades_says_so_and_what_equal_time_shows():
    made = scaled({"16": ("worse", -0.12), "256": ("worse", -0.04)})
    slow = made.effects[-1].model_copy(
        update={"unit": "time", "mean": 0.02, "low": -0.01, "high": 0.05, "exploratory": True}
    )
    trends = tuple(row.model_copy(update={"verdict": "fades"}) for row in made.trends)
    made = made.model_copy(update={"effects": (*made.effects, slow), "trends": trends})
    said = answer({"resolution": made}, "Routing only at many tokens?")
    assert said.word == "Not at equal images here, but its harm fades"
    assert "At equal time, exploratory: TREAD at 256 +0.02 [−0.01, +0.05]." in said.text
    pays = made.model_copy(
        update={"effects": (*made.effects[:-1], slow.model_copy(update={"low": 0.01}))}
    )
    said = answer({"resolution": pays}, "Routing only at many tokens?")
    assert said.word == "Not at equal images here, at equal time perhaps, but its harm fades"
    between = scaled({"16": ("worse", -0.12), "64": ("worse", -0.03), "256": ("worse", -0.04)})
    between = between.model_copy(update={"trends": trends})
    said = answer({"resolution": between}, "Routing only at many tokens?")
    assert said.word == "Not at equal images here; its harm is least from 64 tokens on"
    assert "no smaller at 256 than at 64: it does not fade all the way." in said.text


@pytest.mark.parametrize(
    ("shrunk", "word"),
    [(-0.013, "A small one, if any, here"), (-0.023, "Yes, here"), (None, "Yes, here")],
)
def test_a_tax_that_may_be_less_than_matters_is_called_small(shrunk, word):
    made = study((Row("bf16_storage", -0.024, 0.005),))
    for effect in made["effects"]:
        effect["shrunk"] = shrunk
    assert (
        answer({"replication": StudyResult.model_validate(made)}, "Precision, a silent tax?").word
        == word
    )


def test_real_pictures_that_look_more_real_and_follow_less_are_as_claimed():
    made = study((Row("real_data", -0.05, 0.01),))
    distance = next(one for one in made["effects"] if one["metric"] == "frechet")
    for low, high, word in ((-9.0, -7.0, "As claimed, here"), (-1.0, 1.0, "Synthetic ones, here")):
        distance |= {"mean": (low + high) / 2, "low": low, "high": high}
        said = answer(
            {"replication_synthetic": StudyResult.model_validate(made)},
            "Real or synthetic pictures?",
        )
        assert said.word == word and "Fréchet distance" in said.text


def test_a_claim_whose_metric_shows_no_difference_is_counted_as_such():
    why = claim_sentences.NO_DIFFERENCE
    rows = claim_rows.fared(
        {"replication": result((Row("muon", 0.1, claims=(("fid", 3.67, "out of scope", why),)),))}
    )
    assert claim_rows.summary(rows) == "1 no difference here"
