"""What the public functions hand back shows itself in a notebook; no text of it can become
markup."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fulcrum.judge.card import Measured
from fulcrum.judge.schema import Effect, StudyResult
from fulcrum.notebook import Effects, FinishedRun, Measurements, Pictures, Study
from fulcrum.spec.errors import BadInput
from fulcrum.training.trained_run import TrainedRun

EVIL = '<img src=x onerror="alert(1)">&'
FACTS = {
    "unit": "images",
    "n": 6,
    "low": 0.1,
    "high": 0.3,
    "correlation": 0.5,
    "p_adjusted": 0.03,
    "claim_verdict": None,
}


def effect(arm, metric, **facts):
    return Effect(
        **{**FACTS, "arm": arm, "metric": metric, "mean": 0.2, "verdict": "better", **facts}
    )


@pytest.fixture
def effects():
    return Effects(
        [
            effect("muon", "mmd"),
            effect(EVIL, "mmd", note=EVIL, exploratory=True),
            effect("muon", "frechet"),
        ]
    )


def is_text(markup):
    return "<img" not in markup and "&lt;img" in markup and "&amp;" in markup


def test_effects_are_records_and_a_data_frame(effects):
    frame = effects.of(metric="mmd").frame()
    assert list(frame["arm"]) == ["muon", EVIL] and frame["mean"].sum() == pytest.approx(0.4)
    assert (
        list(effects) == [*effects.of(metric="mmd"), *effects.of(metric="frechet")]
        and effects[0].verdict == "better"
    )
    assert effects.of(arm="muon", unit="time") == ()


def test_without_pandas_the_records_are_named(effects, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match="needs pandas") as error:
        effects.frame()
    assert "notebook" in error.value.hint and ".records()" in error.value.hint
    assert effects.records()[0]["arm"] == "muon"


def test_hostile_text_stays_text(effects, tmp_path):
    assert is_text(effects._repr_html_()) and "exploratory" in effects._repr_html_()
    run = FinishedRun.of(
        {"key": "k", "run": tmp_path / EVIL.replace("/", ""), "phrase": EVIL, "seed": 0}, []
    )
    assert is_text(run._repr_html_())
    plain = FinishedRun.of(
        {
            "key": "ab" * 8,
            "run": "runs/x",
            "phrase": "spark",
            "seed": 3,
            "images": 9600,
            "seconds": 71.2,
        },
        [],
    )
    assert repr(plain) == "run abababab: spark, seed 3, 9,600 images in 71 s, runs/x"
    plan = {"primary_metric": "mmd"}
    study = Study.model_construct(
        title=EVIL,
        state="finished",
        effects=effects,
        plan=type("Facts", (), plan),
        progress=type("Counts", (), {"done": 1, "total": 2}),
    )
    study._page = Path(EVIL.replace("/", ""))
    assert (
        is_text(study._repr_html_())
        and "frechet" not in study._repr_html_()
        and isinstance(study, StudyResult)
    )


def test_pictures_are_a_sheet_and_an_array():
    array = np.random.default_rng(0).integers(0, 256, (3, 16, 24, 3), np.uint8)
    pictures = Pictures(array, ("a star.", EVIL, "日本"), 7)
    image = Image.open(__import__("io").BytesIO(pictures._repr_png_()))
    assert image.width > 3 * 24 * (128 // 16) - 1 and image.text["prompts"].splitlines()[1] == EVIL
    assert (
        np.asarray(pictures).mean() == array.mean()
        and len(pictures) == 3
        and (pictures[1] == array[1]).all()
    )
    assert repr(pictures) == "3 pictures of 24 x 16 px, seed 7" and not hasattr(
        pictures, "_repr_html_"
    )


def test_measurements_show_their_intervals():
    one = Measured.model_construct(
        value=0.5, low=0.4, high=0.6, card=type("Card", (), {"better": "lower", "n": 64})
    )
    values = Measurements({"mmd": one})
    assert values == {"mmd": one} and "[0.4, 0.6]" in values._repr_html_()
    assert values.frame().to_dict("records") == [
        {"metric": "mmd", "value": 0.5, "low": 0.4, "high": 0.6, "better": "lower", "n": 64}
    ]


def test_a_run_is_what_other_functions_take_and_remembers_its_files(monkeypatch, tmp_path):
    import fulcrum

    run = FinishedRun.of({"key": "k", "run": str(tmp_path / "out" / "k")}, ["mine.py"])
    assert isinstance(run, TrainedRun) and run == TrainedRun(
        "k", tmp_path / "out" / "k", run.result
    )
    asked = []
    monkeypatch.setattr(
        fulcrum,
        "sample",
        lambda *given, **more: asked.append((given, more)) or np.zeros((2, 8, 8, 3), "uint8"),
    )
    monkeypatch.setattr(fulcrum, "measure", lambda *given, **more: asked.append((given, more)))
    assert run.sample("one", ["two"], seed=3, guidance=2.0).prompts == ("one", "two")
    run.measure(samples=64)
    (drawn, how), (measured, what) = asked
    assert drawn == (run, ("one", "two"), 3) and how == {
        "files": (Path("mine.py"),),
        "guidance": 2.0,
    }
    assert measured == (run,) and what == {
        "samples": 64,
        "out": tmp_path / "out",
        "files": (Path("mine.py"),),
    }


def test_the_lines_of_the_guide_name_what_is_there():
    """Run they are as examples/notebook.ipynb; here the page is held to the names."""
    import ast

    import fulcrum

    page = (Path(__file__).parents[1] / "docs/notebook.md").read_text(encoding="utf-8")
    lines = page.split("```python\n")[1].split("```")[0]
    homes = {"fc": fulcrum, "run": FinishedRun, "study": Study}
    used = [
        node
        for node in ast.walk(ast.parse(lines))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    assert {node.value.id for node in used} == set(homes)
    named = [(node.value.id, node.attr) for node in used]
    fields = Study.model_fields
    assert not [one for one in named if not hasattr(homes[one[0]], one[1]) and one[1] not in fields]
    assert (
        all(hasattr(Effects, name) for name in ("of", "frame", "records"))
        and "settings" in fulcrum.train.__kwdefaults__
    )
