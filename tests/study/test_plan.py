"""A plan: its file, its hash, what it refuses, its margins, and what it says of itself."""

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from fulcrum.cli import main
from fulcrum.judge.metrics import margins
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies import plan_file
from fulcrum.studies import study as study_run
from fulcrum.studies.cell import lay_out
from fulcrum.studies.estimate import estimate
from fulcrum.studies.frozen_plan import freeze
from fulcrum.studies.outline import outline
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import from_plain, load
from fulcrum.studies.proof import fitting
from fulcrum.studies.runner import room
from tests.study.small import arms_of, cells_of, plan

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/plan-a-study.md"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms": ()}, "at least 1 arm"),
        ({"design": "leave_one_out"}, "stack of at least two"),
        ({"design": "leave_one_out", "stack": ("muon", "tread")}, "makes its own arms"),
        ({"stack": ("muon",)}, "belongs to design"),
        ({"interactions": (("muon", "muon"),)}, "with itself"),
        ({"interactions": (("muon", "tread"), ("tread", "muon"))}, "named twice"),
        ({"trunk": "spark"}, "belong together"),
        ({"evaluations": (0.5,)}, "end with 1.0"),
        ({"evaluations": (0.5, 0.5, 1.0)}, "rising shares"),
        ({"stop_early": {}, "evaluations": (0.5, 1.0)}, "name at least 4"),
        ({"learning_rates": {"sweep": (0.5, 1.0), "seeds": (0,)}}, "flatters it"),
        ({"learning_rates": {"sweep": (1.0, 1.0)}}, "named twice"),
        ({"learning_rates": {"swep": (1.0, 2.0)}}, "did you mean: sweep"),
        ({"scales": ({"name": "one", "settings": ("model.width=32",)},)}, "at least two scales"),
    ],
)
def test_plans_that_make_no_sense_are_refused(changes, says):
    with pytest.raises((ValidationError, BadInput)) as error:
        from_plain({**plan().model_dump(), **changes})
    assert says in str(error.value), str(error.value)


def test_a_plan_survives_its_file(tmp_path):
    (tmp_path / "plan.toml").write_text(
        'title = "x"\nbaseline = "spark"\narms = ["muon"]\nseeds = [0, 1]\nevaluations = [0.25,'
        " 0.5, 0.75, 1]\nlearning_rates = {sweep = [0.5, 1, 2], seeds = [7]}\nstop_early = {level ="
        ' 0.95}\nscales = [{name = "a", settings = ["model.width=48"]}, {name = "b", settings ='
        ' ["model.width=96"]}]\n'
    )
    read = load(tmp_path / "plan.toml")
    assert from_plain(json.loads(json.dumps(read.model_dump()))) == read
    assert read.stop_early.successive == 3 and read.learning_rates.sweep == (0.5, 1.0, 2.0)


def test_a_plan_of_before_keeps_its_hash():
    old = {
        "title": "Old",
        "baseline": "spark",
        "arms": ["muon"],
        "seeds": [0, 1],
        "primary": "attribute_accuracy",
    }
    assert from_plain(old).hash == "6062c7cecaba7e49"
    assert from_plain({**old, "smallest_relative": 0.1}).hash == "c5d65e60d4cbc476"
    for later in ({"margins": {"mmd": 0.1}}, {"margin_deviations": 2.0}, {"confirm": "all"}):
        assert from_plain({**old, **later}).hash != from_plain(old).hash


def test_how_long_processes_wait_is_a_word_of_the_plan_and_outside_its_hash(tmp_path, monkeypatch):
    waits, text = [], 'title = "x"\nbaseline = "spark"\narms = ["muon"]\nseeds = [0, 1]\n'

    def seen(*_, timeout, **others):
        waits.append(timeout)
        raise BadInput("far enough")

    monkeypatch.setattr(study_run, "Work", seen)
    (tmp_path / "plan.toml").write_text(text)
    unsaid, out = load(tmp_path / "plan.toml"), str(tmp_path / "runs")
    for said, words in (
        ("", ()),
        ("timeout = 1800\n", ()),
        ("timeout = 1800\n", ("--timeout", "30")),
    ):
        (tmp_path / "plan.toml").write_text(text + said)
        assert load(tmp_path / "plan.toml").hash == unsaid.hash
        with pytest.raises(SystemExit):
            main(["study", "run", str(tmp_path / "plan.toml"), "--out", out, *words])
    assert waits == [600.0, 1800.0, 30.0]
    (tmp_path / "plan.toml").write_text(text + "timeout = 0\n")
    with pytest.raises(BadInput, match="timeout: must be at least 1 "):
        load(tmp_path / "plan.toml")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"margins": {"mmdd": 0.1}}, "no metric is called 'mmdd'"),
        ({"margins": {"mmd": 0.0}}, "greater than 0"),
        (
            {"margins": {"attribute_accuracy": 0.1}, "primary": "attribute_accuracy"},
            "is smallest_effect",
        ),
        ({"margin_deviations": -1.0}, "greater than 0"),
        ({"confirm": "some"}, "primary"),
    ],
)
def test_margins_that_make_no_sense_are_refused(changes, says):
    with pytest.raises(ValidationError, match=says):
        from_plain({**plan().model_dump(), **changes})


def test_the_margin_of_a_metric_is_the_plans_or_in_deviations_of_the_baseline_over_seeds():
    values = {"baseline": (1.0, 1.2, 0.8), "muon": (2.0, 2.0, 2.0)}
    deviation = 0.2

    def margin(metric="mmd", **changes):
        asked = plan(arms=("muon",), seeds=(0, 1, 2), primary="attribute_accuracy", **changes)
        return margins(asked, arms_of(asked), cells_of(values, metric), metric)["muon"]

    assert margin() == pytest.approx(deviation) and margin(margin_deviations=0.5) == pytest.approx(
        0.5 * deviation
    )
    assert margin(margins={"mmd": 0.3}) == 0.3 and margin("attribute_accuracy") == 0.02
    assert margin("attribute_accuracy", smallest_effect=None) == pytest.approx(deviation)
    assert margin(smallest_relative=0.05) == pytest.approx(0.05)  # as plans of before had it


def test_plans_are_hashed_by_all_they_fix():
    assert plan().hash == plan().hash != plan(guidance="per_arm").hash
    assert Plan(**plan().model_dump()).hash == plan().hash


def test_every_field_of_a_plan_stands_in_the_guide_with_its_default():
    rows = re.findall(
        r"^\| `(\w+)` \| (.+?) \| .+ \|$", GUIDE.read_text().split("## Every field")[1], re.M
    )
    assert dict(rows) == {
        name: (
            "needed"
            if facts.is_required()
            else f"`{json.dumps(facts.default)}`"
            if facts.default is not None
            else "none"
        )
        for name, facts in Plan.model_fields.items()
    }


EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_can_be_planned(path, tmp_path):
    asked = load(path)
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    fitting(layout.arms, layout.trunk_runs)
    estimated = estimate(asked, layout, tmp_path, timed=False)
    assert (
        estimated.cells == len(layout.arms) * len(asked.seeds)
        and estimated.flops > 0
        and estimated.images > 0
    )


@pytest.mark.parametrize(
    ("line", "expected", "hint"),
    [
        ("seeds = [0]", "at least 2 seeds, and 6 reach significance", "examples/quick.toml"),
        ("seeds = 3", "`seeds` is a list, found 3", r"seeds are named, not counted"),
        ('seeds = [0, 1]\ntrack = "tensorboard"', "`track` is a list", "brackets"),
        (
            "seeds = [0, 1]\nlearning_rates = {sweep = [1]}",
            "at least two multiples",
            "examples/stack.toml",
        ),
        ('seeds = [0, 1]\ndesign = "fractional"', "a fractional design", "examples/fraction.toml"),
        (
            'seeds = [0, 1]\ntrunk = "spark"',
            "trunk and trunk_images belong together",
            "examples/late.toml",
        ),
        (
            "seeds = [0, 1]\nstop_early = {}",
            "name at least 4 in `evaluations`",
            "examples/early.toml",
        ),
        (
            (
                "seeds = {first = 8, step = 4, most = 16}\nstop_early = {}\nevaluations = [0.2,"
                " 0.4, 0.6, 1.0]"
            ),
            "looks and",
            "sequential",
        ),
        (
            'seeds = [0, 1]\nprimary = "attribute_acuracy"',
            "no metric is called 'attribute_acuracy'; did you mean",
            "examples/quick.toml",
        ),
    ],
)
def test_a_plan_that_is_not_one_says_what_was_expected(tmp_path, line, expected, hint):
    path = tmp_path / "plan.toml"
    path.write_text(f'title = "t"\nbaseline = "spark"\narms = ["muon"]\n{line}\n')
    with pytest.raises(BadInput, match=expected) as error:
        load(path)
    assert re.search(hint, error.value.hint) and "tuple" not in error.value.message


@pytest.mark.parametrize("edit", [{"seeds": [0]}, {"seeds": [0, 5]}, {"unheard": 1}])
def test_a_frozen_plan_that_was_edited_is_refused(tmp_path, edit):
    path = freeze(plan(), tmp_path) / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(BadInput, match="holds another plan than its name says"):
        freeze(plan(), tmp_path)


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [((0, 1), "cannot reach significance"), (range(6), "standard deviation of at most")],
)
def test_a_plan_in_words_says_what_differs_and_what_it_can_see(tmp_path, seeds, expected):
    asked = plan(arms=("muon",), seeds=tuple(seeds))
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    text = outline(
        asked, layout, estimate(asked, layout, tmp_path, timed=False), room([layout.arms[0].run], 1)
    )
    assert (
        expected in text and f"2 arms x {len(seeds)} paired seeds = {2 * len(seeds)} cells" in text
    )
    assert (
        "optim.rule: adamw -> muon(momentum=0.95, newton_schulz=5, lr_ratio=1.0), the rest alike"
        in text
    )


def test_the_first_study_ships_with_the_package_and_a_file_of_ones_own_comes_first(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert load(Path("quick")) == load(ROOT / "examples/quick.toml")
    shipped = Path(plan_file.__file__).with_name("quick.toml")
    assert shipped.read_bytes() == (ROOT / "examples/quick.toml").read_bytes(), (
        "the two are one plan: copy it"
    )
    Path("quick").write_text(
        'title = "mine"\nbaseline = "spark"\narms = ["muon"]\nseeds = [0, 1]\n'
    )
    assert load(Path("quick")).title == "mine"
    with pytest.raises(BadInput, match="cannot read the plan slow"):
        load(Path("slow"))
