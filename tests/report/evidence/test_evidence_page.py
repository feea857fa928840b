"""The evidence page: ranking, claims, answers, pictures, what is missing; hostile text stays text."""

import re
import runpy
from pathlib import Path

import pytest

from fulcrum.report.evidence import (
    answers,
    claim_rows,
    conclusion,
    measured_rows,
    provenance,
    sections,
)
from fulcrum.report.evidence.decision import named
from fulcrum.report.evidence.evidence_page import files
from fulcrum.report.evidence.ranked_decisions import beside, pooled, table
from fulcrum.report.schema import StudyResult

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
TABLE, Row, result, study = (FAKE[name] for name in ("TABLE", "Row", "result", "study"))


@pytest.fixture(scope="module")
def studies():
    pocket = (Row("muon", 0.08, 0.01), Row("repa", -0.03, 0.01), Row("ema", 0.0, 0.005, "tie"))
    return {"replication": result(), "replication_pocket": result(pocket, baseline="pocket")}


@pytest.fixture(scope="module")
def page(studies):
    return str(files(studies)["README.md"])


def line_of(page, words):
    """The one table row that begins with these words after its number."""
    row = re.compile(rf"\| (\d+|–) \| \[?{re.escape(words)}(\]\([a-z0-9_./]+\))? \|")
    (line,) = (line for line in page.splitlines() if row.match(line))
    return plain(line)


def note_of(page, words):
    """What stands below the ranking about a decision; empty: nothing."""
    noted = page.split("To know before believing them:")[1].split("##")[0]
    lines = [line for line in plain(noted).splitlines() if line.startswith(f"- **{words}**: ")]
    return lines[0].removeprefix(f"- **{words}**: ") if lines else ""


def plain(line):
    """As a reader sees it: without backslashes and the pages behind names, and with plain spaces."""
    return re.sub(r"\[([^\[\]]*)\]\(\.\./levers/\w+\.md\)", r"\1", line).replace("\\", "").replace("\u00a0", " ")


def test_a_decision_leads_to_the_page_of_its_lever(page):
    assert "| [Muon](../levers/muon.md) |" in page and "| [TREAD](../levers/tread.md) |" in page


def test_the_ranking_is_best_first_with_interval_pairs_verdict_and_cost(page):
    assert line_of(page, "Muon").startswith("| 1 | Muon | +0.124 [+0.112, +0.136] | 8 | better | 1.29× | 1.03× |")
    assert "+0.04 per +10 % time" in line_of(page, "Muon"), "what it buys: 0.124 for 29 % more time"
    assert "| −0.03 per −10 % time" in line_of(page, "TREAD"), "in one digit"
    assert "| dearer |" in line_of(page, "Repa") and "| hardly dearer |" in line_of(page, "REPA (until=0.5)")
    assert "| −3.7 [−4.7, −2.7] |" in line_of(page, "Muon"), "the distance between pictures"
    assert "free" in line_of(page, "Aligned codec") and note_of(page, "EDM") == "several decisions at once"
    order = re.findall(r"^\| (?:\d+|–) \| ([^|]+) \|", page, re.MULTILINE)
    assert order[0] == "Muon" and order[-2:] == ["Short captions", "Contrastive flow"], "what has no number is last"


def test_a_failed_arm_and_an_arm_at_the_floor_say_so(studies, page):
    assert "| failed |" in line_of(page, "Contrastive flow") and note_of(page, "Contrastive flow") == "8 of 8 seeds failed"
    assert "at the metric's floor (noise gets 0.1): how much worse cannot be told" in note_of(page, "Short captions")
    assert "how much worse cannot be told" in answers.answers(studies)[0].text
    assert note_of(page, "TREAD") == ""


def test_an_arm_at_the_ceiling_and_one_that_was_not_learned_say_so():
    rows = (Row("muon", 0.225), Row("ema", 0.001, 0.004, "not learned"))
    page = str(files({"replication": result(rows)})["README.md"])
    assert "at the metric's ceiling (real pictures get 0.99)" in note_of(page, "Muon")
    assert "| not learned |" in line_of(page, "Ema")


def test_the_decisions_of_all_studies_on_one_recipe_are_pooled():
    added = (Row("repa", 0.041, 0.013), Row("end_to_end_codec on repa", 0.02, 0.01, against="repa", time=2.34))
    studies = {"replication": result(), "replication_bases": result(added), "replication_pocket": result(baseline="pocket")}
    rows = pooled(studies)
    assert [one.study for one in rows].count("replication_bases") == 1, "trainings that two studies share count once"
    codec = named(rows, "end_to_end_codec")
    assert codec is not None and codec.time == pytest.approx(2.34), "against its own base"
    assert "replication_pocket" not in {one.study for one in rows}


def test_what_was_held_against_another_baseline_stands_beside_the_ranking():
    """A caption filter among planted faults led the ranking as if it were comparable."""
    added = (Row("repa", 0.041, 0.013), Row("end_to_end_codec on repa", 0.02, 0.01, against="repa"))
    studies = {"replication": result(), "replication_bases": result(added)}
    studies["replication_mislabels"] = result((Row("caption_filter", 0.3),), settings=["data.source.mislabelled=0.2"])
    assert [one.arm.root for one in beside(studies)] == ["caption_filter", "end_to_end_codec on repa"]
    assert not {"caption_filter", "end_to_end_codec on repa"} & {one.arm.root for one in table(studies)}
    made = files(studies)
    apart = plain(str(made["README.md"])).split("## Held against another baseline")[1].split("\n## ")[0]
    assert "| Caption filter | spark with mislabelled=0.2 | +0.300 [+0.290, +0.310] |" in apart
    assert "| End to end codec on repa | Repa | +0.020 [" in apart
    assert "Of 13 training decisions" in str(made["README.md"]) and "13 training decisions" in str(made["ranking.svg"])
    assert "Held against another baseline" in str(made["ranking.svg"])
    assert "Held against" not in str(files({"replication": result()})["ranking.svg"])


def test_equal_time_is_told_where_times_differ_by_more_than_their_error():
    made = study((Row("muon", 0.1, time=1.29), Row("repa", 0.05, time=1.06)))
    for arm in ("muon", "repa"):
        one = next(row for row in made["effects"] if row["arm"] == arm and row["metric"] == "frechet")
        one = one | {"metric": "validation_loss", "mean": -0.05, "low": -0.06, "high": -0.04}
        made["effects"] += [one, one | {"unit": "time", "mean": 0.014, "low": 0.004, "high": 0.024}]
    studies = {"replication": StudyResult.model_validate(made)}
    page = str(files(studies)["README.md"])
    assert "| validation loss at equal time |" in page
    assert "| +0.014 [+0.004, +0.024] |" in line_of(page, "Muon") and "+0.014" not in line_of(page, "Repa")
    (muon,) = [one for one in answers.answers(studies) if one.question == "Is Muon a free gain?"]
    assert muon.word == "Better, not free: in the same time its loss is no lower"
    assert "Muon +0.014 [+0.004, +0.024] (at equal images −0.050 [−0.060, −0.040]), 8 pairs" in muon.text
    assert "a time that is 10% off would move it by about 0.02" in muon.text


def test_the_baseline_that_is_described_is_the_one_that_most_decisions_were_held_against():
    """A study of wrong captions had the best row, and its poor baseline was told as everybody's."""
    made = study((Row("caption_filter", 0.3, 0.02),))
    for cell in made["arms"][0]["cells"]:
        cell["final"] = dict.fromkeys(cell["final"], 0.42)
    page = str(files({"replication": result(), "replication_mislabels": StudyResult.model_validate(made)})["README.md"])
    assert line_of(page, "Caption filter").startswith("| 1 |")
    assert "The baseline, 0.759, stands" in page and "0.42" not in page.split("To know before")[1].split("##")[0]


def test_a_rate_that_was_searched_in_vain_is_told():
    """BF16 storage at a rate of its own had no row and no word: its best rate is the recipe's, its cells the table's."""
    searched = study((Row("muon", 0.1), Row("bf16_storage", -0.021)))
    search = {"arm": "muon", "metric": "validation_loss", "better": "lower", "chosen": 0.015, "images": 9600, "tries": []}
    searched["sweeps"] = [search, search | {"arm": "bf16_storage"}]
    for cell in searched["arms"][1]["cells"]:
        cell["key"] += "-own-rate"
    kept = {"replication": result(), "replication_rates": StudyResult.model_validate(searched)}
    page = str(files(kept)["README.md"])
    assert "own rates |" not in page, "the ranking has each decision once"
    assert note_of(page, "Bf16 storage").endswith("worse, 8 pairs: none was better for it than the recipe's")
    assert note_of(page, "Muon") == "at a learning rate of its own +0.100 [+0.090, +0.110], better, 8 pairs"


def test_a_time_is_taken_over_that_of_its_own_base():
    added = (Row("repa", 0.041, time=1.2), Row("end_to_end_codec on repa", 0.02, against="repa", time=2.4))
    codec = named(pooled({"replication_bases": result(added)}), "end_to_end_codec")
    assert codec is not None and codec.time == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("word", "decision"),
    [("replicated", "Muon"), ("opposite here", "X prediction"), ("undecided", "Bf16 storage"), ("not comparable", "TREAD")],
)
def test_every_claim_stands_beside_what_was_seen(studies, word, decision):
    rows = claim_rows.claim_table(claim_rows.fared(studies), word).rows
    assert decision in {row[0] for row in rows}


def test_a_claim_that_was_held_says_on_what_and_one_that_was_not_says_why(studies):
    rows = {word: claim_rows.claim_table(claim_rows.fared(studies), word).rows for word in claim_rows.ORDER}
    muon = next(row for row in rows["replicated"] if row[0] == "Muon")
    assert muon[1] == "FID −2.65" and muon[3] == "Fréchet distance −3.7 [−4.7, −2.7], 8 pairs"
    codec = next(row for row in rows["not comparable"] if row[0] == "Aligned codec")
    assert codec[3:5] == ("–", "–") and codec[5] == "the published arm also had REPA on"


def test_a_claim_that_two_studies_hold_stands_twice_and_none_is_picked():
    own = (Row("muon", -0.08, 0.01, claims=(("fid", -2.65, "opposite here", ""),)),)
    pocket = study(own, baseline="pocket")
    for cell in pocket["arms"][1]["cells"]:
        cell["key"] += "-pocket"
    rows = claim_rows.fared({"replication": result(), "replication_pocket": StudyResult.model_validate(pocket)})
    assert [(row.word, row.decision.study) for row in rows if row.decision.arm.name == "muon"] == [
        ("replicated", "replication"),
        ("opposite here", "replication_pocket"),
    ]


def test_a_claim_that_studies_hold_alike_stands_in_one_row_that_names_them():
    """Four skeptics' studies repeated every number of the table: nobody read past them."""
    again = study((Row("muon", 0.1, 0.01, claims=(("fid", -2.65, "replicated", ""),)),))
    again["arms"][1]["cells"] = [cell | {"key": cell["key"] + "-again"} for cell in again["arms"][1]["cells"]]
    kept = {"replication": result(), "skeptic_seeds": StudyResult.model_validate(again)}
    rows = claim_rows.claim_table(claim_rows.fared(kept), "replicated").rows
    (muon,) = [row for row in rows if row[0] == "Muon"]
    assert muon[4] == "replication, spark; also in skeptic_seeds"


def test_a_study_without_answers_decides_nothing():
    """A study of which a cell or two were done was told as "No, not here"."""
    made = study() | {"state": "running", "effects": []}
    for claim in (claim for arm in made["arms"] for claim in arm["claims"]):
        claim["verdict"] = None
    studies = {"replication": StudyResult.model_validate(made)}
    assert {one.word for one in answers.answers(studies)} == {"Undecided", "Not run yet"}
    assert conclusion.conclusion(studies) == ("The published table is being run here: no answer yet.",)
    assert claim_rows.summary(claim_rows.fared(studies)) == "10 no answer yet"
    assert "cannot be told" not in answers.answers(studies)[0].text, "an effect that is not there has no bound"
    assert set(files(studies)) == {"README.md"}


def test_a_study_that_runs_concludes_nothing_before_its_first_verdict():
    """Four of sixteen seeds were told as "no decision moved quality for certain"."""
    made = study() | {"state": "stopped"}
    made["effects"] = [effect | {"verdict": "inconclusive"} for effect in made["effects"]]
    running = {"replication": StudyResult.model_validate(made)}
    assert conclusion.conclusion(running) == ("The published table is being run here: no answer yet.",)
    assert not measured_rows.rows(running, 3)
    ended = {"replication": StudyResult.model_validate(made | {"state": "finished"})}
    assert "no decision moved quality for certain" in conclusion.conclusion(ended)[0] and measured_rows.rows(ended, 3)


def test_of_a_study_with_looks_what_is_decided_is_measured_though_others_go_on():
    made = study() | {"state": "stopped"}
    assert not measured_rows.rows({"replication": StudyResult.model_validate(made)}, 3)
    made["plan"] = made["plan"] | {"looks": [8, 12, 16], "spending": [0.031, 0.041, 0.05]}
    levers = {
        row["lever"]: row["verdict"] for row in measured_rows.rows({"replication": StudyResult.model_validate(made)}, 3)
    }
    assert levers["muon"] == "better" and "bf16_storage" not in levers


def test_how_much_comes_back_stands_with_both_levers():
    arms = (Row("short_captions", -0.68), Row("recaptioned", -0.295))
    rows = {row["lever"]: row for row in measured_rows.rows({"recaption": result(arms)}, 3)}
    assert {"short_captions", "recaptioned"} <= rows.keys()
    assert all("57% comes back with recaptioned" in rows[lever]["note"] for lever in ("short_captions", "recaptioned"))
    alone = measured_rows.rows({"replication": result((Row("short_captions", -0.68),))}, 3)
    assert not any("comes back" in row["note"] for row in alone)


def test_an_arm_that_stands_in_for_another_is_no_measurement_of_being_added():
    made = study((Row("repa", 0.06), Row("muon", -0.05)))
    arms = {arm["name"]: arm for arm in made["arms"]}
    arms["muon"]["against"], arms["muon"]["phrase"] = "repa", "spark + muon"
    levers = {row["lever"] for row in measured_rows.rows({"late": StudyResult.model_validate(made)}, 3)}
    assert "repa" in levers and "muon" not in levers


def test_a_published_number_counts_once_whatever_is_held_against_it():
    """REPA's four numbers were counted twice: with either teacher, the same claim is held against the arm."""
    claim = ("fid", -3.56, "replicated", "")
    arms = (Row("repa", 0.04, claims=(claim,)), Row("repa(teacher=supervised)", 0.04, claims=(claim,)))
    assert claim_rows.summary(claim_rows.fared({"replication": result(arms)})) == "1 replicated"
    for word, said in (("underpowered", "1 replicated"), ("opposite here", "1 seen both ways")):
        other = (arms[0], Row("repa(teacher=supervised)", 0.04, claims=(("fid", -3.56, word, ""),)))
        assert claim_rows.summary(claim_rows.fared({"replication": result(other)})) == said


def test_where_claims_were_made_is_said_once():
    rows = (
        Row("muon", 0.1, claims=(("fid", -2.65, "replicated", ""), ("cmmd", -0.05, "replicated", ""))),
        Row("repa", 0.1),
    )
    made = study(rows)
    other = {"metric": "fid", "change": -3.56, "source": "PRX Part 2", "verdict": "replicated", "seen": "frechet"}
    made["arms"][2]["claims"] = [other | {"scope": "256 px latents, 100k steps, DINOv3 teacher"}]
    held = claim_rows.fared({"replication": StudyResult.model_validate(made)})
    assert claim_rows.usual_place(held) == "PRX Part 2, 256 px latents, 100k steps"
    assert [row[2] for row in claim_rows.claim_table(held, "replicated").rows] == ["", "", "DINOv3 teacher"]


def test_sections_are_there_with_their_studies_and_named_where_they_are_missing(studies, page):
    assert (
        "## Again on a larger recipe" in page
        and "Of 3 decisions, 2 are decided in both; 1 of these goes the same way." in page
    )
    assert "Of 3 pairs of decisions, 2 stand in the same order in both." in page
    absent = page.split("## Not run yet")[1].split("##")[0]
    for folder in ("replication_bases", "resolution", "late", "stack", "fraction", "emoji", "skeptic_rate"):
        assert f"- `{folder}`:" in absent
    assert "`replication`" not in absent and "replication_pocket" not in absent
    assert (
        "## Resolution dependence" not in page and "emoji" not in page.replace(absent, "").lower().split("## what a 32")[0]
    )


@pytest.mark.parametrize(
    ("folder", "title"),
    [
        ("late", "Late decisions"),
        ("stack", "What compounds: one left out"),
        ("stack_at_equal_time", "What compounds: all of it, at equal time"),
        ("emoji", "On pictures that no one here drew: emoji"),
        ("skeptic_guidance", "The skeptic asks"),
        ("something", "Which training decisions matter for following captions?"),
    ],
)
def test_each_study_has_its_section(folder, title):
    made = sections.sections({"replication": result(), folder: result(TABLE[:3])})
    assert [section.title for section in made] == [title]
    page = str(files({"replication": result(), folder: result(TABLE[:3])})["README.md"])
    assert f"## {title}" in page


def test_all_questions_of_the_skeptic_stand_in_one_table():
    seeds, rate = study((Row("muon", 0.1, 0.02), Row("ema", 0.001, verdict="tie"))), study((Row("muon", -0.05, 0.01),))
    seeds["title"], rate["title"] = "other seeds", "a constant rate"
    kept = {"skeptic_seeds": StudyResult.model_validate(seeds), "skeptic_rate": StudyResult.model_validate(rate)}
    (section,) = sections.sections({"replication": result(), **kept})
    (sheet,) = section.tables
    assert sheet.columns == ("decision", "in the ranking (spark)", "other seeds", "a constant rate")
    muon, ema = sheet.rows
    assert muon[0] == "Muon" and muon[1].startswith("+0.124 [") and muon[3] == "−0.050 [−0.060, −0.040], worse, 8 pairs"
    assert ema[3] == "–" and ema[2].endswith("tie, 8 pairs")
    assert section.lines[1].startswith("A constant rate: The baseline has 0.")
    assert section.lines[1].endswith(". Of 1 decision, 1 is decided in both; 0 of these go the same way.")


def test_a_study_of_another_question_at_several_scales_has_its_own_title():
    made = study((Row("x_prediction", 0.1),))
    made["title"] = "Velocity against x-prediction"
    other = StudyResult.model_validate(made)
    titles = [section.title for section in sections.sections({"resolution": other, "resolution_objective": other})]
    assert titles == ["Resolution dependence", "Velocity against x-prediction"]


def test_gains_that_shrink_in_a_longer_training_are_told():
    longer = study((Row("muon", 0.02, 0.005), Row("repa", 0.03, 0.005), Row("short_captions", -0.9)))
    longer["plan"]["images"] *= 2
    kept = {"replication": result(), "skeptic_budget": StudyResult.model_validate(longer)}
    page = str(files(kept)["README.md"])
    assert "With 2 times the images the baseline gets 0." in page
    assert "of 2 gains that were asked again 1 is less than half as large (Muon" in page
    assert "With 2 times the images 1 of 2 gains shrink below half; " in page, "in the conclusion"
    lasting = {"replication": result(), "skeptic_budget": result((Row("muon", 0.12, 0.005),))}
    assert "Gains shrink" not in str(files(lasting)["README.md"])


def test_a_fraction_shows_effects_and_pairs():
    made = study((Row("muon", 0.1), Row("repa", 0.04, label="REPA")))
    both = {**made["arms"][1], "name": "muon + repa", "label": "Muon + REPA", "claims": []}
    made |= {
        "combinations": [both],
        "grids": None,
        "fraction": {"levers": ["muon", "repa"], "on": [[False, False], [True, True]], "rule": "", "aliased": "Nothing."},
        "interactions": [{"a": "muon", "b": "repa", "metric": "attribute_accuracy", "n": 8, "mean": -0.02, "low": -0.03,
                          "high": -0.01, "p_adjusted": 0.01, "verdict": "worse together"}],
    }  # fmt: skip
    made["interactions"] += [made["interactions"][0] | {"metric": made["metrics"][1]["name"], "verdict": "exploratory"}]
    page = str(files({"fraction": StudyResult.model_validate(made)})["README.md"])
    shown = page.split("## What compounds: pairs")[1].split("\n## ")[0]
    assert "Muon × REPA" in shown and "worse together" in shown and "Nothing." in shown
    assert "Muon and REPA are worse together: −0.020" in shown.replace("\u00a0", " ") and "exploratory" not in shown
    assert "## The ranking" not in page, "an effect that is a mean over other settings is not the table's"


def test_without_any_study_the_page_says_so():
    made = files({})
    assert set(made) == {"README.md"}
    page = str(made["README.md"])
    assert "has not been run here yet" in page and page.count("\n- `") == 17 and "No study is kept yet." in page


def test_text_of_a_study_is_text_in_markdown():
    hostile = "</details><script>alert(1)</script> | [x](javascript:1) `tick` **bold** # head"
    made = study()
    made["title"] = hostile
    made["arms"][1] |= {"label": hostile, "labels": [hostile]}
    made["arms"][1]["claims"][0] |= {"scope": hostile, "why": hostile, "note": hostile, "source": hostile}
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
    made["made"]["command"] = "fulcrum study run /home/someone/own.toml --with /home/someone/lever.py"
    assert provenance.command(StudyResult.model_validate(made)) == "fulcrum study run own.toml --with lever.py"
    assert "c719a737c24afd48" in page and "AMD EPYC 7763, AVX2, torch 2.13.0" in page and "2025-01-31" in page


def test_the_same_studies_give_the_same_files_in_whatever_order(studies):
    again = dict(reversed(list(studies.items())))
    assert files(studies) == files(again)


def test_a_study_that_is_not_finished_says_so_first():
    made = study(TABLE[:2]) | {"state": "running", "progress": {"done": 9, "total": 24}}
    page = str(files({"replication": StudyResult.model_validate(made)})["README.md"])
    assert "**replication is not finished: 9 of 24 cells are done.**" in page.split("## The ranking")[0]


def test_after_how_many_pairs_an_arm_was_decided_stands_in_the_table_and_is_not_said_again():
    made = study(TABLE[:2], looks=[8, 12, 16])
    made["effects"][0] |= {"note": "decided at 8 of 16 pairs", "warnings": ["the differences are skewed"]}
    page = str(files({"replication": StudyResult.model_validate(made)})["README.md"])
    assert "An arm gets 8 pairs, and up to 16 while it is undecided;" in page
    assert "decided at" not in page and "- **Muon**: the differences are skewed" in page


def test_a_stack_at_equal_time_says_what_time_changes():
    made = study(TABLE[:1])
    slower = made["effects"][0] | {"unit": "time", "mean": 0.05, "low": 0.04, "high": 0.06, "verdict": "exploratory"}
    made["effects"].append(slower | {"exploratory": True})
    made["time_to_target"] = [{"arm": "muon", "metric": "attribute_accuracy", "unit": "time", "target": 0.76, "ratio": 0.8,
                               "low": 0.7, "high": 0.9, "reached": 8, "n": 8}]  # fmt: skip
    (section,) = sections.sections({"stack_at_equal_time": StudyResult.model_validate(made)})
    assert "Muon, at equal time: +0.050 [+0.040, +0.060] (exploratory)." in section.lines
    made["effects"] += [made["effects"][-1] | {"unit": unit, "note": "read early"} for unit in ("time", "flops")]
    (again,) = sections.sections({"stack_at_equal_time": StudyResult.model_validate(made)})
    assert " ".join(again.lines).count("ead early") == 1, "why to doubt is said once"
    assert section.tables[1].rows[0][3] == "0.80× [0.70×, 0.90×]"


def test_a_remark_of_several_arms_stands_once():
    said = "the last 10% of the steps have a rate of their own"
    made = study((Row("muon", 0.1, labels=(said,)), Row("repa", 0.05, labels=(said, "another one"))))
    made["remarks"] = [f"muon: {said}", f"repa {said}", "The validation loss of muon, repa is not compared: another one."]
    page = str(files({"replication": StudyResult.model_validate(made)})["README.md"])
    assert f"- **Muon**, **Repa**: {said}" in page and "- **Repa**: another one" in page
    assert f"- muon, repa: {said}" in page
    assert "- muon, repa: the validation loss is not compared: another one." in page


def test_results_stand_before_pictures_and_about_is_explained_where_it_first_stands():
    made = study()
    for effect in made["effects"]:
        effect["shrunk"] = effect["mean"] and effect["mean"] * 0.9
    page = str(files({"replication": StudyResult.model_validate(made), "stack": result(TABLE[:2])})["README.md"])
    assert page.index("## What compounds") < page.index("## Pictures") < page.index("## Where the numbers come from")
    assert "“About”: a difference that was picked out" in page and page.index("“About”") < page.index(" about −")


def kept_without_cells():
    """As the emoji study is shown where its recipe is not at hand: another metric, lower is better, no cells."""
    rows = (
        Row("muon", -0.03, 0.005, "better"),
        Row("x_prediction", 0.05, 0.005, "worse"),
        Row("tread", 0.004, 0.002, "tie"),
        Row("short_captions", 0.02, 0.005, "worse"),
    )
    made = study(rows, baseline="emoji_latents", primary_metric="vgg.lpips", smallest_effect=0.01)
    made["metrics"][0] = made["metrics"][0] | {
        "name": "vgg.lpips",
        "label": "LPIPS by VGG",
        "better": "lower",
        "floors": {},
    }
    made["metrics"][0]["ceiling"] = None
    made["effects"] = [row | {"metric": "vgg.lpips"} for row in made["effects"] if row["metric"] != "frechet"]
    made |= {"grids": None, "noise": []}
    for arm in made["arms"]:
        arm |= {"cells": [], "claims": []}
    return StudyResult.model_validate(made)


def test_pictures_that_no_one_here_drew_are_held_against_the_ranking_by_direction_and_order():
    studies = {"replication": result(), "emoji": kept_without_cells()}
    page = plain(str(files(studies)["README.md"]))
    shown = page.split("## On pictures that no one here drew: emoji")[1].split("\n## ")[0]
    assert "Does the ordering hold?" in shown and "on `emoji_latents`" in shown
    assert "Of 4 decisions, 2 are decided in both; 2 of these go the same way." in shown
    assert "Of 6 pairs of decisions, 4 stand in the same order in both." in shown
    assert "The metric is another one, so only directions and order may be compared, no sizes" in shown
    assert "here lPIPS" not in shown and "here LPIPS by VGG (lower is better)" in shown
    first = next(line for line in shown.splitlines() if line.startswith("| Muon"))
    assert first.startswith("| Muon | −0.030") and "| the same |" in first
    assert shown.index("| Muon |") < shown.index("| Tread |") < shown.index("| X prediction |"), (
        "best first, though lower is better"
    )
    opening = page.split("## The ranking")[0]
    assert "On emoji_latents 2 of 2 decided ones go the same way, and 1 more (TREAD) change too little" in opening
    assert "Again on emoji_latents (LPIPS by VGG, lower is better): Muon" in page
    assert "`emoji`" not in page.split("## Not run yet")[1].split("##")[0]
    rows = {row["lever"]: row for row in measured_rows.rows({"emoji": kept_without_cells()}, 3)}
    assert rows["muon"]["recipe"] == "emoji_latents" and rows["muon"]["verdict"] == "better"
