"""The page is self-contained and escapes everything; a study with missing pieces still renders."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import runpy
import time
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from fulcrum.judge import page
from fulcrum.judge import page as markdown_text
from fulcrum.judge import tables as table
from fulcrum.judge.schema import StudyResult

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_study.py")))
VOID = {"meta", "link", "img", "br", "hr", "input"}
NASTY = "<script>alert('x')</script>\"&|`[a](http://evil.example)"


class Checker(HTMLParser):
    """Collects what a page would load, checks that tags close in order and that images have alt
    texts."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.links, self.ids, self.tags = (
            list[str](),
            list[str](),
            list[str](),
            list[str](),
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.links += [
            values[name] or ""
            for name in ("src", "href", "action", "srcset", "data")
            if name in values
        ]
        self.ids += [values["id"] or ""] if "id" in values else []
        assert not [name for name, _ in attrs if name.startswith("on")], (
            f"a script in an attribute of {tag}"
        )
        assert tag != "img" or values.get("alt"), "an image without alt text"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, (
            f"</{tag}> does not close what is open: {self.open[-3:]}"
        )


def check(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.open, f"never closed: {checker.open}"
    assert all(link.startswith(("data:", "#")) for link in checker.links), (
        "the page would load something"
    )
    assert {link[1:] for link in checker.links if link.startswith("#")} <= set(checker.ids), (
        "a link leads nowhere"
    )
    assert len(checker.ids) == len(set(checker.ids)), "an id stands twice"
    assert checker.tags.count("script") == ('data-state="running"' in text), (
        "a script that is not the live page's own"
    )
    assert "@import" not in text and "url(" not in text
    return checker


def render(study: dict[str, Any]) -> str:
    return page.render(StudyResult.model_validate(study))


def test_the_page_is_whole_and_self_contained() -> None:
    text = render(FAKE["fake_study"]())
    checker = check(text)
    assert checker.tags.count("img") == 6 * (4 + 1) * 2  # prompts x (arms and reference) x seeds
    assert 'http-equiv="refresh"' not in text and "<progress" not in text
    assert "Short captions are worse: attribute accuracy" in text
    assert len(text.encode()) < 3_000_000
    for part in (
        "answer",
        "pictures",
        "levers",
        "curves",
        "noise",
        "metrics",
        "remarks",
        "reproduce",
    ):
        assert part in checker.ids


def test_a_running_study_renews_itself_and_shows_what_is_there() -> None:
    text = render(FAKE["running_study"]())
    checker = check(text)
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in text
    script = re.findall("<script>(.*?)</script>", text, re.S)[0]
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in text
    assert "8 of 24 cells done, about 7 min 1 s left" in text and "running 50 %" in text
    assert checker.tags.count("img") == 6 * (3 + 1) and text.count("not yet") == 6
    assert "no answer yet, 2 of 6 seeds done" in text and "No answer yet: Short captions" in text


def every_text(node: Any, change: Callable[[str], str]) -> Any:
    """The same tree with every free text changed; names that refer to each other stay."""
    fixed = {
        "name",
        "arm",
        "metric",
        "state",
        "better",
        "primary_metric",
        "images",
        "reference",
        "verdict",
    }
    if isinstance(node, dict):
        return {
            key: value
            if key in fixed and not isinstance(value, dict)
            else every_text(value, change)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [every_text(value, change) for value in node]
    return change(node) if isinstance(node, str) else node


def test_every_text_of_the_study_is_escaped() -> None:
    study = FAKE["fake_study"]()
    keep = study["grids"]["arms"], study["grids"]["reference"]
    study = every_text(study, lambda text: NASTY + text)
    study["grids"]["arms"], study["grids"]["reference"] = keep
    study["metrics"][0]["card"][NASTY] = NASTY
    study["effects"][0]["verdict"] = study["effects"][0]["claim_verdict"] = NASTY
    text = render(study)
    check(text)
    assert "alert(" in text and "<script" not in text
    study["state"] = "running"
    text = render(study)
    check(text)
    assert text.count("<script") == 1


def none(study: dict[str, Any]) -> None:
    study.update(effects=[], noise=[], detectable={}, grids=None, remarks=[])


def failed_arm(study: dict[str, Any]) -> None:
    study["effects"] = [row for row in study["effects"] if row["arm"] != "muon"]
    for cell in study["arms"][2]["cells"]:
        cell.update(state="failed", final={}, curve=[], loss=[])


def one_failed_seed(study: dict[str, Any]) -> None:
    study["arms"][1]["cells"][0].update(state="failed", final={})


def only_baseline(study: dict[str, Any]) -> None:
    none(study)
    study["arms"] = study["arms"][:1]


def no_cells(study: dict[str, Any]) -> None:
    none(study)
    for arm in study["arms"]:
        arm["cells"] = []


def not_a_number(study: dict[str, Any]) -> None:
    study["effects"][0].update(
        mean=float("nan"), low=None, high=None, correlation=None, p_adjusted=None
    )
    for cell in study["arms"][1]["cells"]:
        cell["final"] = {"frechet": float("inf")}
        cell["curve"] = [{"images": 1, "seconds": None, "flops": None, "values": {"frechet": None}}]


def few_pictures(study: dict[str, Any]) -> None:
    study["grids"].update(reference=None)
    study["grids"]["arms"][0]["images"] = study["grids"]["arms"][0]["images"][:1]


def no_prompts(study: dict[str, Any]) -> None:
    study["grids"] = {"prompts": [], "arms": [], "reference": None}


SPOILED = [
    none,
    failed_arm,
    one_failed_seed,
    only_baseline,
    no_cells,
    not_a_number,
    few_pictures,
    no_prompts,
]


@pytest.mark.parametrize("state", ["finished", "stopped", "running"])
@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_missing_pieces_leave_the_rest(
    spoil: Callable[[dict[str, Any]], None], state: str, tmp_path: Path
) -> None:
    study = FAKE["fake_study"]()
    study["state"] = state
    spoil(study)
    check(render(study))
    page.write(StudyResult.model_validate(study), tmp_path)


def test_failures_are_told() -> None:
    study = FAKE["fake_study"]()
    failed_arm(study)
    one_failed_seed(study)
    text = render(study)
    assert "Muon failed: none of 6 seeds finished" in text and "1 of 6 seeds failed" in text


def test_write_makes_four_files_that_agree(tmp_path: Path) -> None:
    result = StudyResult.model_validate(FAKE["fake_study"]())
    path = page.write(result, tmp_path / "new")
    assert path.name == "report.html" and path.read_text("utf-8") == page.render(result)
    assert {file.name for file in path.parent.iterdir()} == {
        "report.html",
        "report.json",
        "report.md",
        "effects.csv",
    }
    assert page.read(path.with_name("report.json")) == result
    json.loads(
        path.with_name("report.json").read_text("utf-8"),
        parse_constant=lambda name: pytest.fail(name),
    )
    rows = list(csv.DictReader(io.StringIO(path.with_name("effects.csv").read_text("utf-8"))))
    assert len(rows) == 4 * 3
    row = next(row for row in rows if row["arm"] == "muon" and row["metric"] == "frechet")
    effect = result.effect("muon", "frechet")
    assert effect is not None and float(row["mean"]) == effect.mean
    assert float(row["seed_3"]) == result.arms[2].finals("frechet")[3]


def test_a_failed_write_leaves_the_old_page_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = StudyResult.model_validate(FAKE["fake_study"]())
    page.write(result, tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        page.write(result.model_copy(update={"title": "another"}), tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_csv_and_markdown_take_text_as_text() -> None:
    study = FAKE["fake_study"]()
    study["arms"][1]["label"] = "=HYPERLINK(1)"
    study["arms"][2]["label"] = "a|b\n<b>[x](y)"
    study["arms"][2]["phrase"] = "`` tick"
    result = StudyResult.model_validate(study)
    labels = {row["label"] for row in csv.DictReader(io.StringIO(table.csv_text(result)))}
    assert "'=HYPERLINK(1)" in labels
    text = markdown_text.markdown(result)
    assert r"a\|b \<b\>\[x\](y)" in text and "``` `` tick ```" in text
    width = {
        len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| ")
    }
    assert width == {10, 5, 7}  # ranking and comparisons, all metrics, noise


def test_ranking_is_best_first_also_when_lower_is_better() -> None:
    study = FAKE["fake_study"]()
    names = [arm.name for arm in StudyResult.model_validate(study).ranked]
    study["plan"]["primary_metric"] = "frechet"
    assert names == [arm.name for arm in StudyResult.model_validate(study).ranked]
    assert names[0] == "muon" and names[1] == "baseline" and names[-1] == "short_captions"


def test_a_page_is_quick_enough_to_be_live() -> None:
    result = StudyResult.model_validate(FAKE["fake_study"]())
    page.render(result)
    start = time.perf_counter()
    page.render(result)
    assert time.perf_counter() - start < 1.0  # about 0.05 s on a quiet core


def test_other_things_held_equal_are_told_beside_the_headline() -> None:
    study = FAKE["fake_study"]()
    muon = next(row for row in study["effects"] if row["arm"] == "muon")
    study["effects"].append(
        {**muon, "unit": "seconds", "mean": -0.01, "low": -0.02, "high": 0.0, "verdict": "worse"}
    )
    text = render(study).replace(page.NO_BREAK, " ")
    assert "At equal time: worse, −0.010 [−0.020, 0.000]" in text and "Muon is better: " in text


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_reaches_aa(scheme: int) -> None:
    style = resources.files("fulcrum.judge").joinpath("templates/style.css").read_text("utf-8")
    palette = dict(
        re.findall(
            r"--([\w-]+): (#[0-9a-f]{6})", re.findall(r":root \{(.*?)\}", style, re.S)[scheme]
        )
    )
    for back in ("page", "card", "band"):
        for ink in ("ink", "soft", "link", "good", "bad"):
            assert contrast(palette[ink], palette[back]) >= 4.5, (ink, back)
        for k in range(8):
            assert contrast(palette[f"arm-{k}"], palette[back]) >= 3, (k, back)
    for tone in ("good", "bad", "even", "open", "early"):
        assert contrast(palette[tone], palette[f"{tone}-back"]) >= 4.5, tone


@pytest.mark.parametrize("value", [1e308, -1e308, 1.7e308, 1e101])
@pytest.mark.parametrize("part", ["loss", "curve"])
def test_a_loss_beyond_all_measure_is_a_missing_one(value: float, part: str) -> None:
    def beyond(given: Any, inside: bool = False) -> Any:
        if isinstance(given, dict):
            return {name: beyond(one, inside or name == part) for name, one in given.items()}
        if isinstance(given, list):
            return [beyond(one, inside) for one in given]
        return value if inside and isinstance(given, float) else given

    text = page.render(StudyResult.model_validate(beyond(FAKE["fake_study"]())))
    assert "1e+" not in text and "<svg" in text


OBEYED = "\x1b[2J\x1b]0;mine\x07\r\0\x9b31m\u202e\u2066"


def test_no_text_of_a_study_steers_a_terminal_that_shows_its_files(tmp_path: Path) -> None:
    def with_controls(given: Any, name: str = "") -> Any:
        if isinstance(given, dict):
            return {key: with_controls(one, key) for key, one in given.items()}
        if isinstance(given, list):
            return [with_controls(one, name) for one in given]
        own = name in (
            "title",
            "label",
            "explain",
            "prompts",
            "note",
            "warnings",
            "command",
            "machine",
            "says",
            "data",
            "text",
        )
        return given + OBEYED if own and isinstance(given, str) else given

    page.write(StudyResult.model_validate(with_controls(FAKE["fake_study"]())), tmp_path)
    for name in ("report.html", "report.md", "effects.csv"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert not set(text) & set(OBEYED) - set("[2J]0;mine31m"), name
        assert "\\x1b" in text, name  # it is shown, not left out
