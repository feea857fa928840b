"""A whole study on the smallest runs: proven arms, cells in workers, effects, page; killed and gone
on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies.arms import prove
from fulcrum.studies.frozen_plan import freeze
from fulcrum.studies.plan_file import load
from fulcrum.studies.runner import Lane
from fulcrum.studies.study import run
from tests.study.small import SMALL, plan

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return out, *run(plan(), CATALOG, out, "fulcrum study run small.toml", print)


def test_a_study_ends_with_effects_pictures_and_a_page(studied):
    out, result, page = studied
    assert result.state == "finished" and page.is_file()
    primary = [
        row for row in result.effects if row.metric == "attribute_f1" and row.unit == "images"
    ]
    assert {row.arm for row in primary} == {"short_captions", "bf16_storage"} and all(
        row.n == 2 for row in primary
    )
    # two pairs of noise: no tie
    assert {row.verdict for row in primary} <= {"inconclusive", "not learned"}
    assert {row.verdict for row in result.effects if row.exploratory} == {"exploratory"}
    assert [row.exploratory for row in result.effects] == [
        row not in primary for row in result.effects
    ]
    assert (
        result.plan.settings == SMALL
        and "64 photographed scenes" in result.plan.data
        and "embedded" in result.plan.text
    )
    assert (
        "spark with model.width=32" in result.arms[0].says and "as it is" not in result.arms[0].says
    )
    assert any("cannot reach significance" in remark for remark in result.remarks)
    assert len(result.grids.arms) == 3 and len(result.grids.arms[0].images) == 12
    assert {path.suffix for path in page.parent.iterdir()} >= {".html", ".json", ".csv", ".md"}
    assert result.arms[1].diff[0].path == "data.caption.style" and result.arms[1].cost.time_ratio


def test_finished_cells_are_not_run_again(studied, monkeypatch):
    out, result, page = studied
    monkeypatch.setattr(Lane, "_worker", lambda self: pytest.fail("a worker was started"))
    again, _ = run(plan(), CATALOG, out, "again", print)
    assert [row.model_dump() for row in again.effects] == [
        row.model_dump() for row in result.effects
    ]


def test_costs_edited_by_hand_are_refused_and_the_finished_page_keeps_its_own(studied):
    out, result, page = studied
    costs, before = page.with_name("costs.json"), page.with_suffix(".json").read_bytes()
    kept = costs.read_text()
    costs.write_text(kept.replace('"time_ratio": 1.0', '"time_ratio": 2.0'))
    try:
        with pytest.raises(BadInput, match="costs.json"):
            run(plan(), CATALOG, out, "again", print)
        assert page.with_suffix(".json").read_bytes() == before
    finally:
        costs.write_text(kept)


def test_a_study_killed_with_minus_9_goes_on_to_the_same_effects(studied, tmp_path):
    (tmp_path / "plan.toml").write_text(
        'title = "Small"\nbaseline = "spark"\narms = ["short_captions", "bf16_storage"]\nseeds ='
        f" [0, 1]\nimages = 48\nsettings = {json.dumps(SMALL)}\nsamples = 64\ncompile = false\n"
    )
    # it is killed while it trains, not while it encodes
    shutil.copytree(studied[0] / "cache", tmp_path / "runs" / "cache")
    command = [
        sys.executable,
        "-c",
        "from fulcrum.cli import main; main()",
        "study",
        "run",
        str(tmp_path / "plan.toml"),
        "--out",
        str(tmp_path / "runs"),
        "--json",
    ]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(tmp_path.glob("runs/*/checkpoints/0*")):
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    (page,) = tmp_path.glob("runs/study-*/report.html")
    assert 'data-state="running"' in page.read_text()
    report = [*command[:3], "report", "--out", str(tmp_path / "runs")]
    answer = subprocess.run(report, capture_output=True, text=True, timeout=60)
    assert (
        "it was stopped; what is done is kept" in answer.stderr
        and "go on with: fulcrum study run" in answer.stderr
    ), answer
    assert (
        "stopped before its end" in page.read_text()
        and 'data-state="running"' not in page.read_text()
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert {"report", "plan", "effects"} <= set(answer)
    assert {
        "arm",
        "metric",
        "unit",
        "n",
        "mean",
        "low",
        "high",
        "correlation",
        "p_adjusted",
        "verdict",
        "claim_verdict",
    } <= set(answer["effects"][0])
    untimed = [row for row in answer["effects"] if row["unit"] != "time"]
    assert untimed == [
        row.model_dump(mode="json") for row in studied[1].effects if row.unit != "time"
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms": ("tred",)}, "no lever is called"),
        ({"arms": ("short_captions(prompts=kept)", "short_captions")}, "same run"),
        ({"baseline": "spark + muon", "arms": ("muon",)}, "named twice"),
    ],
)
def test_arms_that_prove_nothing_are_refused(changes, says):
    with pytest.raises(BadInput) as error:
        prove(plan(**changes), CATALOG)
    assert any(part in str(error.value) for part in says.split("|")), str(error.value)


def test_an_arm_that_equals_the_baseline_is_refused():
    with pytest.raises(BadInput, match="changes nothing"):
        prove(plan(settings=(*SMALL, "precision.storage=bf16"), arms=("bf16_storage",)), CATALOG)


def test_an_arm_of_two_levers_is_labelled_compound():
    arms = prove(plan(arms=("muon", "muon + tread")), CATALOG)
    assert [arm.compound for arm in arms] == [False, False, True]


SOUND = 'title = "x"\nbaseline = "spark"\narms = ["muon"]\nseeds = [1, 2]'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = 3", "valid string"),
        ("nonsense", "not TOML"),
        ('titel = "x"', "did you mean: title"),
        ('title = "x"\nbaseline = "spark"\narms = ["muon"]\nseeds = [1]', "at least 2"),
        ('title = "x"\nbaseline = "spark"\narms = ["muon"]\nseeds = [1, 1]', "named twice"),
        ('title = "x"\nbaseline = "spark"\narms = ["muon", "muon"]\nseeds = [1, 2]', "named twice"),
        (
            'title = "x"\nbaseline = "spark"\narms = ["muon"]\nseeds = [1, 2]\nprimary = "fidd"',
            "no metric",
        ),
        (
            f'{SOUND}\nlearning_rates = "swept"',
            "`learning_rates` cannot be 'swept'\n  write: learning_rates = \"shared\" or {",
        ),
        (
            f"{SOUND}\nstop_early = true",
            "`stop_early` cannot be True\n  write: stop_early = { successive = 3",
        ),
        (f'{SOUND}\nscales = ["large"]', "a scale cannot be 'large'\n  write: scales = [{"),
        (f'{SOUND}\ninteractions = ["muon"]', "interactions.0: should be a list, found 'muon'"),
        (
            f'{SOUND}\ninteractions = [["muon", "ema"], ["ema", "muon"]]',
            "an interaction is named twice: ema and muon",
        ),
    ],
)
def test_bad_plans(text, says, tmp_path):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(BadInput) as error:
        load(tmp_path / "plan.toml")
    assert says in str(error.value), str(error.value)


def test_a_plan_may_begin_with_a_mark_of_utf8_and_no_other_encoding(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SOUND.replace('"x"', '"Zwölf"').encode())
    assert load(path).title == "Zwölf"
    path.write_bytes(SOUND.encode("utf-16"))
    with pytest.raises(BadInput, match="is not text in UTF-8"):
        load(path)


def test_a_plan_edited_after_the_start_is_refused(tmp_path):
    folder = freeze(plan(), tmp_path)
    text = (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(text.replace('"samples": 64', '"samples": 65'))
    with pytest.raises(BadInput, match="another plan"):
        freeze(plan(), tmp_path)
