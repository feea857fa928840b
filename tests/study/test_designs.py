"""Designs: what arms a plan makes, what it refuses, and what contrasts say on numbers worked out by hand."""

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.study.judge.contrast import axis, interactions, scales, trends
from fulcrum.study.judge.equal_cost import at_equal_cost, first_reached, fronts, targets, value_at
from fulcrum.study.judge.findings import effects_on
from fulcrum.study.judge.margins import margins
from fulcrum.study.judge.remarks import remarks
from fulcrum.study.plan.arms import prove
from fulcrum.study.plan.design import wanted
from fulcrum.study.plan.estimate import estimate
from fulcrum.study.plan.fingerprint import fitting
from fulcrum.study.plan.frozen_plan import freeze
from fulcrum.study.plan.outline import outline
from fulcrum.study.plan.plan import Plan
from fulcrum.study.plan.plan_file import from_plain, load
from fulcrum.study.run.arm_cost import TimedCost, declared
from fulcrum.study.run.layout import lay_out
from fulcrum.study.run.workers.capacity import room
from tests.study.small import SMALL, cells_of, plan

SCALES = [{"name": "narrow", "settings": ["model.width=32"]}, {"name": "wide", "settings": ["model.width=64"]}]


def test_leave_one_out_takes_each_lever_from_the_stack():
    found = wanted(plan(arms=(), design="leave_one_out", stack=("muon", "bf16_storage", "tread(drop=0.5)")))
    assert [(one.name, one.phrase) for one in found] == [
        ("baseline", "spark + muon + bf16_storage + tread(drop=0.5)"),
        ("without muon", "spark + bf16_storage + tread(drop=0.5)"),
        ("without bf16_storage", "spark + muon + tread(drop=0.5)"),
        ("without tread(drop=0.5)", "spark + muon + bf16_storage"),
    ]
    arms = prove(plan(arms=(), design="leave_one_out", stack=("muon", "bf16_storage")), CATALOG)
    assert [[lever.name for lever in arm.removed] for arm in arms] == [[], ["muon"], ["bf16_storage"]]
    assert [[change.path for change in arm.changes] for arm in arms[1:]] == [["optim.rule"], ["precision.storage"]]
    assert not any(arm.compound for arm in arms) and declared(arms[1], arms, "flops") < 1  # Muon's cost is gone
    said = " ".join(remarks(plan(arms=(), design="leave_one_out", stack=("muon", "bf16_storage")), arms))
    assert "whole stack without one lever" in said


def test_a_lever_that_others_need_cannot_be_left_out():
    with pytest.raises(BadInput, match="cannot be used here"):
        prove(
            plan(
                arms=(),
                design="leave_one_out",
                stack=("sprint", "path_drop_guidance"),
                guidance="per_arm",
                settings=(*SMALL, "model.depth=5"),
            ),
            CATALOG,
        )


def test_interactions_make_their_arms_and_share_them():
    names = [one.name for one in wanted(plan(arms=("muon",), interactions=(("muon", "tread"), ("muon", "ema"))))]
    assert names == ["baseline", "muon", "tread", "muon + tread", "ema", "muon + ema"]


def test_an_interaction_is_ab_minus_a_minus_b_plus_base():
    asked = plan(arms=(), interactions=(("muon", "tread"),), seeds=(0, 1, 2), smallest_effect=0.5)
    arms = prove(asked, CATALOG)
    values = {"baseline": (10, 12, 11), "muon": (11, 13, 13), "tread": (9, 12, 10), "muon + tread": (15, 17, 18)}
    (row,) = interactions(asked, arms, cells_of(values, "attribute_f1"), "attribute_f1")
    assert (row.a, row.b, row.n) == ("muon", "tread", 3)
    assert row.mean == pytest.approx((5 + 4 + 6) / 3) and row.low < 5 < row.high
    assert row.verdict == "inconclusive"  # three pairs decide nothing
    same = {**values, "muon + tread": (10, 13, 12)}
    assert interactions(asked, arms, cells_of(same, "attribute_f1"), "attribute_f1")[0].verdict == "adds up"


def test_every_scale_has_its_own_baseline():
    asked = from_plain({**plan().model_dump(), "arms": ["muon"], "scales": SCALES})
    arms = prove(asked, CATALOG)
    assert [arm.name for arm in arms] == ["baseline [narrow]", "muon [narrow]", "baseline [wide]", "muon [wide]"]
    assert [arm.against for arm in arms] == ["baseline [narrow]"] * 2 + ["baseline [wide]"] * 2
    assert [change.path for change in arms[3].changes] == ["optim.rule"]  # never the width
    places = axis(asked, arms)
    assert places["narrow"] == 0 and 1 < places["wide"] < 2.2  # FLOPs grow with the square of the width
    assert [one.tokens for one in scales(asked, arms)] == [16, 16]


def test_a_trend_is_a_line_through_each_seed():
    asked = from_plain(
        {
            **plan().model_dump(),
            "arms": ["muon"],
            "seeds": [0, 1, 2, 3, 4, 5],
            "scales": [{**SCALES[0], "at": 0.0}, {**SCALES[1], "at": 2.0}],
        }
    )
    arms = prove(asked, CATALOG)
    noise = (0.001, -0.002, 0.003, 0.0, -0.001, 0.002)
    values = {
        "baseline [narrow]": (0.5,) * 6,
        "muon [narrow]": tuple(0.55 + one for one in noise),
        "baseline [wide]": (0.6,) * 6,
        "muon [wide]": tuple(0.8 + 2 * one for one in noise),
    }
    (row,) = trends(asked, arms, cells_of(values, "attribute_f1"), "attribute_f1")
    assert row.arm == "muon" and row.slope == pytest.approx((0.2 - 0.05) / 2, abs=0.002)
    assert row.low < row.slope < row.high and row.verdict == "grows"
    values["muon [wide]"] = tuple(0.65 + one for one in noise)
    assert trends(asked, arms, cells_of(values, "attribute_f1"), "attribute_f1")[0].verdict == "holds"
    assert len(effects_on(asked, arms, cells_of(values, "attribute_f1"), "attribute_f1")) == 2


@pytest.mark.parametrize(
    ("narrow", "wide", "verdict"),
    [
        (0.05, 0.2, "grows"),
        (0.2, 0.05, "fades"),
        (0.1, -0.1, "crossing"),
        (-0.03, 0.2, "crossing"),
        (0.2, -0.0005, "fades"),  # to nothing: its other sign is noise
        (-0.0005, 0.2, "grows"),
    ],
)
def test_an_effect_that_changes_its_sign_is_crossing(narrow, wide, verdict):
    asked = from_plain(
        {
            **plan().model_dump(),
            "arms": ["muon"],
            "seeds": [0, 1, 2, 3, 4, 5],
            "scales": [{**SCALES[0], "at": 0.0}, {**SCALES[1], "at": 2.0}],
            "primary": "attribute_accuracy",
        }
    )
    noise = (0.001, -0.002, 0.003, 0.0, -0.001, 0.002)
    values = {
        "baseline [narrow]": (0.5,) * 6,
        "muon [narrow]": tuple(0.5 + narrow + one for one in noise),
        "baseline [wide]": (0.6,) * 6,
        "muon [wide]": tuple(0.6 + wide - one for one in noise),
    }
    cells = cells_of(values, "attribute_accuracy")
    assert trends(asked, prove(asked, CATALOG), cells, "attribute_accuracy")[0].verdict == verdict
    other = cells_of(values, "frechet")
    assert trends(asked, prove(asked, CATALOG), other, "frechet")[0].verdict == "exploratory"


def test_scales_that_cost_the_same_need_a_place():
    rates = [{"name": name, "settings": [f"optim.lr={rate}"]} for name, rate in (("a", 1e-3), ("b", 2e-3))]
    asked = from_plain({**plan().model_dump(), "arms": ["muon"], "scales": rates})
    with pytest.raises(BadInput, match="same place"):
        axis(asked, prove(asked, CATALOG))


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
        'title = "x"\nbaseline = "spark"\narms = ["muon"]\nseeds = [0, 1]\nevaluations = [0.25, 0.5, 0.75, 1]\n'
        "learning_rates = {sweep = [0.5, 1, 2], seeds = [7]}\nstop_early = {level = 0.95}\n"
        'scales = [{name = "a", settings = ["model.width=48"]}, {name = "b", settings = ["model.width=96"]}]\n'
    )
    read = load(tmp_path / "plan.toml")
    assert from_plain(json.loads(json.dumps(read.model_dump()))) == read
    assert read.stop_early.successive == 3 and read.learning_rates.sweep == (0.5, 1.0, 2.0)


def test_guidance_is_shared_unless_the_plan_says_otherwise():
    guided = {"arms": ("sprint + path_drop_guidance",), "settings": (*SMALL, "model.depth=5")}
    with pytest.raises(BadInput, match="guidance is shared"):
        prove(plan(**guided), CATALOG)
    arms = prove(plan(**guided, guidance="per_arm"), CATALOG)
    assert any("other guidance" in line for line in remarks(plan(**guided, guidance="per_arm"), arms))


def test_cells_of_a_trunk_and_of_a_sweep_are_known_in_their_turn(tmp_path):
    asked = from_plain(
        {
            **plan().model_dump(),
            "arms": ["muon"],
            "trunk": "spark",
            "trunk_images": 24,
            "learning_rates": {"sweep": [0.5, 1], "share": 0.5, "seeds": [9]},
        }
    )
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    assert [cell.kind for cell in layout.before] == ["trunk"] * 3 + ["rate"] * 4  # two seeds and the sweep's own
    assert [cell.known for cell in layout.before] == [True] * 3 + [False] * 4 and not any(c.known for c in layout.cells)
    assert layout.before[0].run.budget.images == 24
    assert len({cell.key for cell in (*layout.before, *layout.cells)}) == 11


# ---- equal cost, by hand


def test_curves_are_read_between_their_points():
    curve = [(0.2, 4.0), (0.6, 2.0), (1.0, 1.0)]
    assert value_at(curve, 0.4) == pytest.approx(3.0) and value_at(curve, 0.1) is None and value_at(curve, 1.0) == 1.0
    assert first_reached(curve, 3.0, "lower") == pytest.approx(0.4) and first_reached(curve, 0.5, "lower") is None
    assert first_reached(curve, 5.0, "lower") == 0.2 and first_reached([(0.5, 0.2), (1.0, 0.6)], 0.4, "higher") == 0.75


def test_a_slower_arm_may_win_at_equal_images_and_lose_at_equal_time():
    asked = plan(arms=("muon",), seeds=(0, 1))
    arms = prove(asked, CATALOG)
    found = cells_of({"baseline": (1.0, 1.0), "muon": (0.9, 0.9)}, "validation_loss")
    curves = {
        "baseline": {s: [(0.25, 4.0), (0.5, 2.0), (1.0, 1.0)] for s in (0, 1)},
        "muon": {s: [(0.25, 4.0), (0.5, 1.9), (1.0, 0.9)] for s in (0, 1)},
    }
    costs = {
        "baseline": TimedCost(flops_ratio=1.0, time_ratio=1.0, parameters_ratio=1.0),
        "muon": TimedCost(flops_ratio=1.1, time_ratio=2.0, parameters_ratio=1.0),
    }
    rows = {row.unit: row for row in at_equal_cost(asked, arms, found, curves, costs, "validation_loss")}
    assert effects_on(asked, arms, found, "validation_loss")[0].mean == pytest.approx(-0.1)
    assert rows["time"].mean == pytest.approx(0.9)  # half the images in the same time: 1.9 against 1.0
    assert rows["time"].note and rows["flops"].mean == pytest.approx(0.9 + 1.0 * (1 - 1 / 1.1) / 0.5 - 1.0)
    due = {row.unit: row for row in targets(asked, arms, found, curves, costs, "validation_loss")}
    assert due["images"].ratio == pytest.approx(0.95) and due["time"].ratio == pytest.approx(1.9)
    assert due["images"].reached == due["images"].n == 2


def test_a_target_that_is_not_reached_is_not_a_number():
    asked = plan(arms=("muon",), seeds=(0, 1))
    arms = prove(asked, CATALOG)
    curves = {
        "baseline": dict.fromkeys((0, 1), [(0.5, 2.0), (1.0, 1.0)]),
        "muon": dict.fromkeys((0, 1), [(0.5, 3.0), (1.0, 2.0)]),
    }
    found = cells_of({"baseline": (1.0, 1.0), "muon": (2.0, 2.0)}, "validation_loss")
    (row,) = targets(asked, arms, found, curves, None, "validation_loss")
    assert (row.reached, row.ratio) == (0, None)


def test_the_front_holds_what_nothing_cheaper_equals():
    arms = prove(plan(arms=("muon", "tread", "ema(every=2)")), CATALOG)
    means = {
        "baseline": (0.5, 0.4, 0.6),
        "muon": (0.6, 0.5, 0.7),
        "tread": (0.45, 0.4, 0.5),
        "ema(every=2)": (0.5, 0.4, 0.6),
    }
    costs = {
        "baseline": TimedCost(flops_ratio=1, time_ratio=1, parameters_ratio=1),
        "muon": TimedCost(flops_ratio=1.1, time_ratio=1.2, parameters_ratio=1),
        "tread": TimedCost(flops_ratio=0.8, time_ratio=0.9, parameters_ratio=1),
        "ema(every=2)": TimedCost(flops_ratio=1, time_ratio=1.1, parameters_ratio=1),
    }
    time, flops = fronts(arms, means, costs, "attribute_accuracy")
    assert {point.arm for point in time.points if point.front} == {"baseline", "muon", "tread"}
    assert {point.arm for point in flops.points if point.front} == {"baseline", "muon", "tread", "ema(every=2)"}


def test_a_plan_of_before_keeps_its_hash():
    old = {"title": "Old", "baseline": "spark", "arms": ["muon"], "seeds": [0, 1], "primary": "attribute_accuracy"}
    assert from_plain(old).hash == "6062c7cecaba7e49"
    assert from_plain({**old, "smallest_relative": 0.1}).hash == "c5d65e60d4cbc476"
    for later in ({"margins": {"mmd": 0.1}}, {"margin_deviations": 2.0}, {"confirm": "all"}):
        assert from_plain({**old, **later}).hash != from_plain(old).hash


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"margins": {"mmdd": 0.1}}, "no metric is called 'mmdd'"),
        ({"margins": {"mmd": 0.0}}, "greater than 0"),
        ({"margins": {"attribute_accuracy": 0.1}, "primary": "attribute_accuracy"}, "is smallest_effect"),
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
        return margins(asked, prove(asked, CATALOG), cells_of(values, metric), metric)["muon"]

    assert margin() == pytest.approx(deviation) and margin(margin_deviations=0.5) == pytest.approx(0.5 * deviation)
    assert margin(margins={"mmd": 0.3}) == 0.3 and margin("attribute_accuracy") == 0.02
    assert margin("attribute_accuracy", smallest_effect=None) == pytest.approx(deviation)
    assert margin(smallest_relative=0.05) == pytest.approx(0.05)  # as plans of before had it


def test_plans_are_hashed_by_all_they_fix():
    assert plan().hash == plan().hash != plan(guidance="per_arm").hash
    assert Plan(**plan().model_dump()).hash == plan().hash


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_can_be_planned(path, tmp_path):
    asked = load(path)
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    fitting(layout.arms, layout.trunk_runs)
    found = estimate(asked, layout, tmp_path, timed=False)
    assert found.cells == len(layout.arms) * len(asked.seeds) and found.flops > 0 and found.images > 0


def test_a_stack_is_estimated_at_no_less_than_its_members_and_with_its_tries(tmp_path):
    def flops(**changes):
        asked = plan(**changes)
        return estimate(asked, lay_out(asked, CATALOG, {}, tmp_path), tmp_path, timed=False).flops

    stack = {"arms": (), "design": "leave_one_out", "stack": ("muon", "repa", "ema(every=2)")}
    members = {lever: flops(baseline=f"spark + {lever}", arms=("bf16_storage",)) for lever in stack["stack"]}  # as costly
    plain = flops(arms=("bf16_storage",))
    assert members["muon"] > plain < members["repa"]
    whole = flops(baseline="spark + muon + repa + ema(every=2)", arms=("bf16_storage",))
    assert whole >= max(members.values()) and whole - plain == pytest.approx(sum(members.values()) - 3 * plain)
    parts = [whole, *(whole - members[lever] + plain for lever in stack["stack"])]  # each of two arms
    assert flops(**stack) == pytest.approx(sum(parts) / 2)
    swept = {**stack, "learning_rates": {"sweep": (0.5, 1, 2), "share": 0.5, "seeds": (9,)}}
    assert flops(**swept) == pytest.approx(sum(parts) / 2 * (1 + 3 * 0.5 / 2))  # 2 seeds, 3 tries
    begun = {**swept, "trunk": "spark", "trunk_images": 48}  # tries not yet known
    assert flops(**begun) == pytest.approx(flops(**swept) + 3 * plain / 4)


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        ("seeds = [0]", "at least 2 seeds, and 6 reach significance", "examples/quick.toml"),
        ("seeds = 3", "`seeds` is a list, found 3", r"seeds are named, not counted"),
        ('seeds = [0, 1]\ntrack = "tensorboard"', "`track` is a list", "brackets"),
        ("seeds = [0, 1]\nlearning_rates = {sweep = [1]}", "at least two multiples", "examples"),
        (
            'seeds = [0, 1]\nprimary = "attribute_acuracy"',
            "no metric is called 'attribute_acuracy'; did you mean",
            "examples",
        ),
    ],
)
def test_a_plan_that_is_not_one_says_what_was_expected(tmp_path, line, said, hint):
    path = tmp_path / "plan.toml"
    path.write_text(f'title = "t"\nbaseline = "spark"\narms = ["muon"]\n{line}\n')
    with pytest.raises(BadInput, match=said) as error:
        load(path)
    assert re.search(hint, error.value.hint) and "tuple" not in error.value.message


def test_an_arm_that_is_in_the_baseline_already_is_named_with_its_phrase():
    with pytest.raises(BadInput, match="the arm 'muon', which is 'spark \\+ muon \\+ muon'") as error:
        prove(plan(baseline="spark + muon", arms=("muon",)), CATALOG)
    assert "what the baseline has not" in error.value.hint


@pytest.mark.parametrize("edit", [{"seeds": [0]}, {"seeds": [0, 5]}, {"unheard": 1}])
def test_a_frozen_plan_that_was_edited_is_refused(tmp_path, edit):
    path = freeze(plan(), tmp_path) / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(BadInput, match="holds another plan than its name says"):
        freeze(plan(), tmp_path)


@pytest.mark.parametrize(("seeds", "said"), [((0, 1), "cannot reach significance"), (range(6), "scatter by no more")])
def test_a_plan_in_words_says_what_differs_and_what_it_can_see(tmp_path, seeds, said):
    asked = plan(arms=("muon",), seeds=tuple(seeds))
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    told = outline(asked, layout, estimate(asked, layout, tmp_path, timed=False), room([layout.arms[0].run], 1))
    assert said in told and f"2 arms x {len(seeds)} paired seeds = {2 * len(seeds)} cells" in told
    assert "optim.rule: adamw -> muon(momentum=0.95, newton_schulz=5, lr_ratio=1.0), the rest alike" in told
