"""The evidence page: ranking, claims, answers, pictures, what is missing; hostile text stays
text."""

import re
import runpy
from pathlib import Path

import pytest

from fulcrum.advice import decisions as measured_rows
from fulcrum.advice.decisions import named
from fulcrum.judge.schema import StudyResult
from tools.evidence import answers as article_answers
from tools.evidence import decisions as claim_rows
from tools.evidence import page as conclusion
from tools.evidence import sections as provenance
from tools.evidence.decisions import beside, pooled, table
from tools.evidence.page import files

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
TABLE, Row, result, study = (FAKE[name] for name in ("TABLE", "Row", "result", "study"))
LINES = runpy.run_path(str(Path(__file__).with_name("page_lines.py")))
line_of, note_of, plain = (LINES[name] for name in ("line_of", "note_of", "plain"))


def test_a_decision_leads_to_the_page_of_its_lever(page):
    assert "| [Muon](../levers/muon.md) |" in page and "| [TREAD](../levers/tread.md) |" in page


def test_the_ranking_is_best_first_with_interval_pairs_verdict_and_cost(page):
    assert line_of(page, "Muon").startswith(
        "| 1 | Muon | +0.124 [+0.112, +0.136] | 8 | better | 1.29× | 1.03× |"
    )
    assert "+0.04 per +10 % time" in line_of(page, "Muon"), "what it buys: 0.124 for 29 % more time"
    assert "| −0.03 per −10 % time" in line_of(page, "TREAD"), "in one digit"
    assert "| dearer |" in line_of(page, "Repa") and "| hardly dearer |" in line_of(
        page, "REPA (until=0.5)"
    )
    assert "| −3.7 [−4.7, −2.7] |" in line_of(page, "Muon"), "the distance between pictures"
    assert (
        "free" in line_of(page, "Aligned codec")
        and note_of(page, "EDM") == "several decisions at once"
    )
    order = re.findall(r"^\| (?:\d+|–) \| ([^|]+) \|", plain(page), re.MULTILINE)
    assert order[0] == "Muon" and order[-2:] == ["Short captions", "Contrastive flow"], (
        "what has no number is last"
    )


def test_a_failed_arm_and_an_arm_at_the_floor_say_so(studies, page):
    assert (
        "| failed |" in line_of(page, "Contrastive flow")
        and note_of(page, "Contrastive flow") == "8 of 8 seeds failed"
    )
    assert "at the metric's floor (noise gets 0.1): how much worse cannot be told" in note_of(
        page, "Short captions"
    )
    assert "how much worse cannot be told" in article_answers.answers(studies)[0].text
    assert note_of(page, "TREAD") == ""


def test_an_arm_at_the_ceiling_and_one_that_was_not_learned_say_so():
    rows = (Row("muon", 0.225), Row("ema", 0.001, 0.004, "not learned"))
    page = str(files({"replication": result(rows)})["README.md"])
    assert "at the metric's ceiling (real pictures get 0.99)" in note_of(page, "Muon")
    assert "| not learned |" in line_of(page, "Ema")


def test_the_decisions_of_all_studies_on_one_recipe_are_pooled():
    added = (
        Row("repa", 0.041, 0.013),
        Row("end_to_end_codec on repa", 0.02, 0.01, against="repa", time=2.34),
    )
    studies = {
        "replication": result(),
        "replication_bases": result(added),
        "replication_pocket": result(baseline="pocket"),
    }
    rows = pooled(studies)
    assert [one.study for one in rows].count("replication_bases") == 1, (
        "trainings that two studies share count once"
    )
    codec = named(rows, "end_to_end_codec")
    assert codec is not None and codec.time == pytest.approx(2.34), "against its own base"
    assert "replication_pocket" not in {one.study for one in rows}


def test_what_was_held_against_another_baseline_stands_beside_the_ranking():
    """A caption filter among planted faults led the ranking as if it were comparable."""
    added = (Row("repa", 0.041, 0.013), Row("end_to_end_codec on repa", 0.02, 0.01, against="repa"))
    studies = {"replication": result(), "replication_bases": result(added)}
    studies["replication_mislabels"] = result(
        (Row("caption_filter", 0.3),), settings=["data.source.mislabelled=0.2"]
    )
    assert [one.arm.root for one in beside(studies)] == [
        "caption_filter",
        "end_to_end_codec on repa",
    ]
    assert not {"caption_filter", "end_to_end_codec on repa"} & {
        one.arm.root for one in table(studies)
    }
    made = files(studies)
    apart = (
        plain(str(made["README.md"])).split("## Held against another baseline")[1].split("\n## ")[0]
    )
    assert "| Caption filter | spark with mislabelled=0.2 | +0.300 [+0.290, +0.310] |" in apart
    assert "| End to end codec on repa | Repa | +0.020 [" in apart
    assert "Of 13 training decisions" in str(made["README.md"]) and "13 training decisions" in str(
        made["ranking.svg"]
    )
    assert "Held against another baseline" in str(made["ranking.svg"])
    assert "Held against" not in str(files({"replication": result()})["ranking.svg"])


def test_equal_time_is_told_where_times_differ_by_more_than_their_error():
    made = study((Row("muon", 0.1, time=1.29), Row("repa", 0.05, time=1.06)))
    for arm in ("muon", "repa"):
        one = next(
            row for row in made["effects"] if row["arm"] == arm and row["metric"] == "frechet"
        )
        one = one | {"metric": "validation_loss", "mean": -0.05, "low": -0.06, "high": -0.04}
        made["effects"] += [one, one | {"unit": "time", "mean": 0.014, "low": 0.004, "high": 0.024}]
    studies = {"replication": StudyResult.model_validate(made)}
    page = str(files(studies)["README.md"])
    assert "| validation loss at equal time |" in page
    assert "| +0.014 [+0.004, +0.024] |" in line_of(page, "Muon") and "+0.014" not in line_of(
        page, "Repa"
    )
    (muon,) = [
        one for one in article_answers.answers(studies) if one.question == "Is Muon a free gain?"
    ]
    assert muon.word == "Better, not free", (
        "a time that is 10 % off would move it by 0.022, and it may be lower"
    )
    assert (
        "Muon +0.014 [+0.004, +0.024] (at equal images −0.050 [−0.060, −0.040]), 8 pairs"
        in muon.text
    )
    assert "a time that is 10% off would move it by about 0.02" in muon.text
    longer = [
        row | ({"mean": 0.064, "low": 0.054} if row.get("unit") == "time" else {})
        for row in made["effects"]
    ]
    studies = {"replication": StudyResult.model_validate(made | {"effects": longer})}
    (muon,) = [
        one for one in article_answers.answers(studies) if one.question == "Is Muon a free gain?"
    ]
    assert muon.word == "Better, not free: in the same time its loss is no lower"


def test_the_baseline_that_is_described_is_the_one_that_most_decisions_were_held_against():
    """A study of wrong captions had the best row, and its poor baseline was told as everybody's."""
    made = study((Row("caption_filter", 0.3, 0.02),))
    for cell in made["arms"][0]["cells"]:
        cell["final"] = dict.fromkeys(cell["final"], 0.42)
    page = str(
        files({"replication": result(), "replication_mislabels": StudyResult.model_validate(made)})[
            "README.md"
        ]
    )
    assert line_of(page, "Caption filter").startswith("| 1 |")
    assert (
        "The baseline, 0.759, stands" in page
        and "0.42" not in page.split("To know before")[1].split("##")[0]
    )


def test_a_rate_that_was_searched_in_vain_is_told():
    """BF16 storage at a rate of its own had no row and no word: its best rate is the recipe's, its
    cells the table's."""
    searched = study((Row("muon", 0.1), Row("bf16_storage", -0.021)))
    search = {
        "arm": "muon",
        "metric": "validation_loss",
        "better": "lower",
        "chosen": 0.015,
        "images": 9600,
        "tries": [],
    }
    searched["sweeps"] = [search, search | {"arm": "bf16_storage"}]
    for cell in searched["arms"][1]["cells"]:
        cell["key"] += "-own-rate"
    kept = {"replication": result(), "replication_rates": StudyResult.model_validate(searched)}
    page = str(files(kept)["README.md"])
    assert "own rates |" not in page, "the ranking has each decision once"
    assert note_of(page, "Bf16 storage").endswith(
        "worse, 8 pairs: none was better for it than the recipe's"
    )
    assert (
        note_of(page, "Muon")
        == "at a learning rate of its own +0.100 [+0.090, +0.110], better, 8 pairs"
    )


def test_a_time_is_taken_over_that_of_its_own_base():
    added = (
        Row("repa", 0.041, time=1.2),
        Row("end_to_end_codec on repa", 0.02, against="repa", time=2.4),
    )
    codec = named(pooled({"replication_bases": result(added)}), "end_to_end_codec")
    assert codec is not None and codec.time == pytest.approx(2.0)


def test_a_study_without_answers_decides_nothing():
    """A study of which a cell or two were done was told as "No, not here"."""
    made = study() | {"state": "running", "effects": []}
    for claim in (claim for arm in made["arms"] for claim in arm["claims"]):
        claim["verdict"] = None
    studies = {"replication": StudyResult.model_validate(made)}
    assert {one.word for one in article_answers.answers(studies)} == {"Undecided", "Not run yet"}
    assert conclusion.conclusion(studies) == (
        "The published table is being run here: no answer yet.",
    )
    assert claim_rows.summary(claim_rows.fared(studies)) == "10 no answer yet"
    assert "cannot be told" not in article_answers.answers(studies)[0].text, (
        "an effect that is not there has no bound"
    )
    assert set(files(studies)) == {"README.md"}


def test_a_study_that_runs_concludes_nothing_before_its_first_verdict():
    """Four of sixteen seeds were told as "no decision moved quality for certain"."""
    made = study() | {"state": "stopped"}
    made["effects"] = [effect | {"verdict": "inconclusive"} for effect in made["effects"]]
    running = {"replication": StudyResult.model_validate(made)}
    assert conclusion.conclusion(running) == (
        "The published table is being run here: no answer yet.",
    )
    assert not measured_rows.rows(running, 3)
    ended = {"replication": StudyResult.model_validate(made | {"state": "finished"})}
    assert "no decision moved quality for certain" in conclusion.conclusion(ended)[
        0
    ] and measured_rows.rows(ended, 3)


def test_without_any_study_the_page_says_so():
    made = files({})
    assert set(made) == {"README.md"}
    page = str(made["README.md"])
    assert (
        "has not been run here yet" in page
        and page.count("\n- `") == 17
        and "No study is kept yet." in page
    )


def test_text_of_a_study_is_text_in_markdown():
    hostile = "</details><script>alert(1)</script> | [x](javascript:1) `tick` **bold** # head"
    made = study()
    made["title"] = hostile
    made["arms"][1] |= {"label": hostile, "labels": [hostile]}
    made["arms"][1]["claims"][0] |= {
        "scope": hostile,
        "why": hostile,
        "note": hostile,
        "source": hostile,
    }
    made["grids"]["prompts"] = [hostile] * 2
    made["remarks"] = [hostile]
    made["plan"] |= {"learning_rate_policy": hostile, "settings": [hostile]}
    made["made"] |= {"command": hostile, "machine": hostile}
    made = StudyResult.model_validate(made)
    studies = {"replication": made, "skeptic_seeds": made}
    page = str(files(studies)["README.md"])
    for text in (page, conclusion.opening(studies, "docs/evidence")):
        assert not re.search(r"(?<!\\)<script|(?<!\\)\[x(?<!\\)\]|(?<!\\)\*\*bold", text)
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    for sheet in tables:
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in sheet.splitlines()}
        assert len(bars) == 1, "no bar of the text makes a column"
    assert len(tables) > 3
    assert page.count("<details>") == page.count("\n</details>")


def test_a_command_tells_no_place_of_another_machine(page):
    assert provenance.command(result()) == "fulcrum study run examples/replication.toml --threads 1"
    assert "/home/someone" not in page
    made = study()
    made["made"]["command"] = (
        "fulcrum study run /home/someone/own.toml --with /home/someone/lever.py"
    )
    assert (
        provenance.command(StudyResult.model_validate(made))
        == "fulcrum study run own.toml --with lever.py"
    )
    assert (
        "c719a737c24afd48" in page
        and "AMD EPYC 7763, AVX2, torch 2.13.0" in page
        and "2025-01-31" in page
    )


def test_the_same_studies_give_the_same_files_in_whatever_order(studies):
    again = dict(reversed(list(studies.items())))
    assert files(studies) == files(again)


def test_a_study_that_is_not_finished_says_so_first():
    made = study(TABLE[:2]) | {"state": "running", "progress": {"done": 9, "total": 24}}
    page = str(files({"replication": StudyResult.model_validate(made)})["README.md"])
    assert (
        "**replication is not finished: 9 of 24 cells are done.**"
        in page.split("## The ranking")[0]
    )


def test_after_how_many_pairs_an_arm_was_decided_stands_in_the_table_and_is_not_said_again():
    made = study(TABLE[:2], looks=[8, 12, 16])
    made["effects"][0] |= {
        "note": "decided at 8 of 16 pairs",
        "warnings": ["the differences are skewed"],
    }
    page = str(files({"replication": StudyResult.model_validate(made)})["README.md"])
    assert "An arm gets 8 pairs, and up to 16 while it is undecided;" in page
    assert "decided at" not in page and "- **Muon**: the differences are skewed" in page


def test_a_remark_of_several_arms_stands_once():
    said = "the last 10% of the steps have a rate of their own"
    made = study(
        (Row("muon", 0.1, labels=(said,)), Row("repa", 0.05, labels=(said, "another one")))
    )
    made["remarks"] = [
        f"muon: {said}",
        f"repa {said}",
        "The validation loss of muon, repa is not compared: another one.",
    ]
    page = str(files({"replication": StudyResult.model_validate(made)})["README.md"])
    assert f"- **Muon**, **Repa**: {said}" in page and "- **Repa**: another one" in page
    assert f"- muon, repa: {said}" in page
    assert "- muon, repa: the validation loss is not compared: another one." in page


def test_results_stand_before_pictures_and_about_is_explained_where_it_first_stands():
    made = study()
    for effect in made["effects"]:
        effect["shrunk"] = effect["mean"] and effect["mean"] * 0.9
    page = str(
        files({"replication": StudyResult.model_validate(made), "stack": result(TABLE[:2])})[
            "README.md"
        ]
    )
    assert (
        page.index("## What compounds")
        < page.index("## Pictures")
        < page.index("## Where the numbers come from")
    )
    assert "“About”: a difference that was picked out" in page and page.index(
        "“About”"
    ) < page.index(" about −")
