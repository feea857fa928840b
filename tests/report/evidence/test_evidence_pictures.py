"""The pictures of the evidence page: the ranking drawn, a sheet of samples for each study, and
their prompts."""

import io
import runpy
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image

from fulcrum.judge.schema import StudyResult
from tools.evidence import sections as forest_figure
from tools.evidence import words as arm_sheet
from tools.evidence.decisions import beside, table
from tools.evidence.page import files

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_evidence.py")))
TABLE, Row, result, study = (FAKE[name] for name in ("TABLE", "Row", "result", "study"))


def test_a_picture_of_the_ranking_brings_its_style_and_escapes_its_text():
    made = study()
    made["arms"][1]["label"] = "<script>alert(1)</script>"
    rows = table({"replication": StudyResult.model_validate(made)})
    for layout in (forest_figure.WIDE, forest_figure.NARROW):
        text = forest_figure.forest(rows, layout=layout)
        assert "<script" not in text and "prefers-color-scheme:dark" in text
        assert text.startswith(f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width}"')
        root = ElementTree.fromstring(text)
        assert len(root.findall(".//{*}text")) > len(rows)


def test_a_long_name_stands_in_two_lines_and_is_whole():
    made = study()
    made["arms"][1]["label"] = "Caption filter (drop=0.2), with mislabelled=0.2"
    rows = table({"replication": StudyResult.model_validate(made)})
    for layout in (forest_figure.WIDE, forest_figure.NARROW):
        root = ElementTree.fromstring(forest_figure.forest(rows, layout=layout))
        small = [
            text.text for text in root.findall(".//{*}text") if "small" in text.get("class", "")
        ]
        assert " ".join(small) == "Caption filter (drop=0.2), with mislabelled=0.2"


def test_wild_effects_are_cut_off_and_the_rest_keeps_its_room():
    text = forest_figure.forest(table({"replication": result()}))
    assert text.count('class="torn"') == 2, "short captions alone, by two strokes"
    small = forest_figure.forest(table({"replication": result(TABLE[:5])}))
    assert "torn" not in small.split("</style>")[1]


def test_what_was_held_against_something_else_is_drawn_below_a_line():
    made = result((Row("repa", 0.04), Row("codec on repa", 0.02, against="repa")))
    studies = {"replication": result(), "replication_bases": made}
    text = forest_figure.forest(table(studies), beside(studies))
    assert (
        text.index(">Short captions<")
        < text.index(">Held against another baseline")
        < text.index(">Codec on repa<")
    )


def test_a_long_label_of_a_sheet_is_not_cut():
    """Combinations differ at the ends of their names, and those were cut off."""
    label = "SPRINT instead of SPRINT(full from=none) + rate stage(start=0.9)"
    small = arm_sheet.ImageFont.load_default(11)
    lines = arm_sheet._wrapped(label, small)
    assert len(lines) > 1 and " ".join(lines) == label
    assert all(small.getlength(text) <= arm_sheet.LABEL for text in lines)
    assert arm_sheet._wrapped("Muon", small) == ["Muon"]
    assert len(arm_sheet._wrapped("word " * 90, small)) == arm_sheet.MOST_LINES
    settings = arm_sheet._wrapped("Repa(until=0.25,teacher=supervised,layer=8,weight=0.5)", small)
    assert max(map(small.getlength, settings)) <= arm_sheet.LABEL - arm_sheet.GAP, (
        "no label runs over the pictures"
    )
    assert arm_sheet.LINE * (arm_sheet.MOST_LINES + 1) <= arm_sheet.CELL + arm_sheet.GAP


def test_sheets_have_a_row_for_each_arm_and_keep_pixels_sharp():
    made = result(TABLE[:2])
    data = arm_sheet.sheet("replication", made)
    assert data is not None
    image = Image.open(io.BytesIO(data))
    side = arm_sheet.CELL + arm_sheet.GAP
    assert image.height == 2 * arm_sheet.EDGE + 16 + 3 * side, "the baseline and two arms"
    left, top = arm_sheet.EDGE + arm_sheet.LABEL, arm_sheet.EDGE + 16
    cell = image.crop((left, top, left + arm_sheet.CELL, top + arm_sheet.CELL))
    small = cell.resize((32, 32), Image.Resampling.NEAREST)
    assert small.resize(cell.size, Image.Resampling.NEAREST).tobytes() == cell.tobytes(), (
        "every pixel is a block of equal ones"
    )


def test_pictures_that_another_sheet_shows_are_not_shown_again():
    """Another judge looks at the same pictures."""
    assert "skeptic_judge.png" not in files(
        {"replication": result(), "skeptic_judge": result(TABLE[:2])}
    )
    assert "skeptic_judge.png" in files({"skeptic_judge": result(TABLE[:2])})


def test_a_sheet_shows_fewer_prompts_where_bytes_are_short(monkeypatch):
    whole = arm_sheet.sheet("replication", result(TABLE[:2]))
    assert arm_sheet.columns(result(TABLE[:2])) == 2
    monkeypatch.setattr(arm_sheet, "MOST_BYTES", 8_000)
    less = arm_sheet.sheet("replication", result(TABLE[:2]))
    assert arm_sheet.columns(result(TABLE[:2])) == 1
    assert less is not None and whole is not None and len(less) < 0.8 * len(whole)


def test_prompts_that_all_sheets_share_are_told_once():
    other = study(TABLE[:1], baseline="pocket")
    other["grids"]["prompts"] = ["a boat", "a house"]
    for row in other["grids"]["arms"]:
        row["images"] = [FAKE["SMALL"]["picture"](number, 0.2, 0) for number in (1, 0)]
    alike = {
        "replication": result(TABLE[:2]),
        "replication_pocket": result(TABLE[:1], baseline="pocket"),
    }
    page = str(files(alike)["README.md"])
    assert page.count("<summary>The prompts") == 1 and "<summary>Its prompts" not in page
    page = str(files(alike | {"late": StudyResult.model_validate(other)})["README.md"])
    assert page.count("<summary>The prompts") == 1 and page.count("<summary>Its prompts") == 1
    assert page.index("1. a boat") > page.index("<summary>Its prompts")
