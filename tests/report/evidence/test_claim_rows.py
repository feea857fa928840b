"""Every published claim beside what was seen: in which word, on what, and counted how often."""

import runpy
from pathlib import Path

import pytest

from fulcrum.judge.schema import StudyResult
from tools.evidence import decisions as claim_rows

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
Row, result, study = (FAKE[name] for name in ("Row", "result", "study"))


@pytest.mark.parametrize(
    ("word", "decision"),
    [
        ("replicated", "Muon"),
        ("opposite here", "X prediction"),
        ("undecided", "Bf16 storage"),
        ("not comparable", "TREAD"),
    ],
)
def test_every_claim_stands_beside_what_was_seen(studies, word, decision):
    rows = claim_rows.claim_table(claim_rows.fared(studies), word).rows
    assert decision in {row[0] for row in rows}


def test_a_claim_that_was_held_says_on_what_and_one_that_was_not_says_why(studies):
    rows = {
        word: claim_rows.claim_table(claim_rows.fared(studies), word).rows
        for word in claim_rows.ORDER
    }
    muon = next(row for row in rows["replicated"] if row[0] == "Muon")
    assert muon[1] == "FID −2.65" and muon[3] == "Fréchet distance −3.7 [−4.7, −2.7], 8 pairs"
    codec = next(row for row in rows["not comparable"] if row[0] == "Aligned codec")
    assert codec[3:5] == ("–", "–") and codec[5] == "the published arm also had REPA on"


def test_a_claim_that_two_studies_hold_stands_twice_and_none_is_picked():
    own = (Row("muon", -0.08, 0.01, claims=(("fid", -2.65, "opposite here", ""),)),)
    pocket = study(own, baseline="pocket")
    for cell in pocket["arms"][1]["cells"]:
        cell["key"] += "-pocket"
    rows = claim_rows.fared(
        {"replication": result(), "replication_pocket": StudyResult.model_validate(pocket)}
    )
    assert [(row.word, row.decision.study) for row in rows if row.decision.arm.name == "muon"] == [
        ("replicated", "replication"),
        ("opposite here", "replication_pocket"),
    ]


def test_a_claim_that_studies_hold_alike_stands_in_one_row_that_names_them():
    """Four skeptics' studies repeated every number of the table: nobody read past them."""
    again = study((Row("muon", 0.1, 0.01, claims=(("fid", -2.65, "replicated", ""),)),))
    again["arms"][1]["cells"] = [
        cell | {"key": cell["key"] + "-again"} for cell in again["arms"][1]["cells"]
    ]
    kept = {"replication": result(), "skeptic_seeds": StudyResult.model_validate(again)}
    rows = claim_rows.claim_table(claim_rows.fared(kept), "replicated").rows
    (muon,) = [row for row in rows if row[0] == "Muon"]
    assert muon[4] == "replication, spark; also in skeptic_seeds"


def test_a_published_number_counts_once_whatever_is_held_against_it():
    """REPA's four numbers were counted twice: with either teacher, the same claim is held against
    the arm."""
    claim = ("fid", -3.56, "replicated", "")
    arms = (
        Row("repa", 0.04, claims=(claim,)),
        Row("repa(teacher=supervised)", 0.04, claims=(claim,)),
    )
    assert claim_rows.summary(claim_rows.fared({"replication": result(arms)})) == "1 replicated"
    for word, said in (("underpowered", "1 replicated"), ("opposite here", "1 seen both ways")):
        other = (arms[0], Row("repa(teacher=supervised)", 0.04, claims=(("fid", -3.56, word, ""),)))
        assert claim_rows.summary(claim_rows.fared({"replication": result(other)})) == said


def test_where_claims_were_made_is_said_once():
    rows = (
        Row(
            "muon",
            0.1,
            claims=(("fid", -2.65, "replicated", ""), ("cmmd", -0.05, "replicated", "")),
        ),
        Row("repa", 0.1),
    )
    made = study(rows)
    other = {
        "metric": "fid",
        "change": -3.56,
        "source": "PRX Part 2",
        "verdict": "replicated",
        "seen": "frechet",
    }
    made["arms"][2]["claims"] = [other | {"scope": "256 px latents, 100k steps, DINOv3 teacher"}]
    held = claim_rows.fared({"replication": StudyResult.model_validate(made)})
    assert claim_rows.usual_place(held) == "PRX Part 2, 256 px latents, 100k steps"
    assert [row[2] for row in claim_rows.claim_table(held, "replicated").rows] == [
        "",
        "",
        "DINOv3 teacher",
    ]
