"""Arms with a base of their own: levers that need another are held against the arm that has it, and
both are judged."""

import math

import numpy as np
import pytest

from fulcrum.judge.effects import effects_on, judged
from fulcrum.judge.page import render
from fulcrum.judge.sentences import answer, base_name
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies.arm_cost import costs, declared
from fulcrum.studies.arms import bases_of, prove, unequal, wanted
from fulcrum.studies.cell import lay_out
from fulcrum.studies.estimate import estimate
from fulcrum.studies.outline import outline
from fulcrum.studies.plan import InsteadArm, OwnBaseArm
from fulcrum.studies.plan_file import from_plain, load
from fulcrum.studies.proof import fingerprints
from fulcrum.studies.result import remarks
from fulcrum.studies.runner import room
from fulcrum.studies.study import run
from tests.cells_here import all_here
from tests.study.small import arms_of, cells_of, plan, with_failed

pytestmark = pytest.mark.long

TOML = """
title = "Own bases"
baseline = "spark"
arms = ["muon", { add = "bf16_storage", to = "muon" }]
seeds = [0, 1]
images = 48
"""
ON = {"add": "bf16_storage", "to": "muon"}


def asked(*arms, **more):
    return from_plain({**plan().model_dump(), "arms": list(arms), **more})


def test_a_plan_names_levers_and_what_they_are_added_to(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(TOML)
    read = load(path)
    assert read.arms == ("muon", OwnBaseArm(add="bf16_storage", to="muon"))
    assert [(arm.name, arm.phrase, arm.against) for arm in wanted(read)] == [
        ("baseline", "spark", "baseline"),
        ("muon", "spark + muon", "baseline"),
        ("bf16_storage on muon", "spark + muon + bf16_storage", "muon"),
    ]
    assert (
        from_plain(read.frozen).frozen == read.frozen
        and read.hash != asked("muon", "bf16_storage").hash
    )


def test_the_base_is_an_arm_even_where_the_plan_does_not_name_it_and_stands_before_what_is_added():
    for arms in ([ON], [ON, "muon"], [{"add": "short_captions", "to": "bf16_storage on muon"}, ON]):
        names = [arm.name for arm in wanted(asked(*arms))]
        assert names[:3] == ["baseline", "muon", "bf16_storage on muon"] and len(names) == len(
            set(names)
        )
    last = wanted(asked({"add": "short_captions", "to": "bf16_storage on muon"}, ON))[-1]
    assert (last.phrase, last.against) == (
        "spark + muon + bf16_storage + short_captions",
        "bf16_storage on muon",
    )


def test_a_lever_may_stand_in_for_another_and_is_held_against_the_arm_that_has_the_other(tmp_path):
    path = tmp_path / "plan.toml"
    ended = '{ add = "repa(until=0.5)", instead_of = "repa" }'
    path.write_text(
        TOML.replace('["muon", { add = "bf16_storage", to = "muon" }]', f"[{ended}]").replace(
            "= 48", "= 64"
        )
    )
    read = load(path)
    assert read.arms == (InsteadArm(add="repa(until=0.5)", instead_of="repa"),)
    assert [(arm.name, arm.phrase, arm.against) for arm in wanted(read)] == [
        ("baseline", "spark", "baseline"),
        ("repa", "spark + repa", "baseline"),
        ("repa(until=0.5) instead of repa", "spark + repa(until=0.5)", "repa"),
    ]
    assert from_plain(read.frozen).frozen == read.frozen
    arms = prove(read, CATALOG)
    own = arms[2]
    assert (
        not own.compound
        and own.changes
        and [base.name for base in bases_of(own, arms)] == ["repa", "baseline"]
    )
    assert [str(lever) for lever in own.added] == ["repa(until=0.5)"] and [
        str(lever) for lever in own.removed
    ] == ["repa"]
    assert declared(own, arms, "flops") == pytest.approx(own.added[0].cost(arms[0].run).flops)
    with pytest.raises(BadInput, match="an arm instead of another has no 'for'"):
        asked({"add": "muon", "instead_of": "repa", "for": 1})
    with pytest.raises(BadInput, match="it changes nothing"):
        prove(asked({"add": "repa", "instead_of": "repa"}), CATALOG)


def test_a_change_that_comes_within_a_phase_is_seen_at_the_end(tmp_path):
    """Alignment that ends half-way is the same training until then: three first steps showed
    nothing."""
    arms = prove(asked({"add": "repa(until=0.5)", "instead_of": "repa"}, images=320), CATALOG)
    prints = {one.arm: one for one in fingerprints(arms, (0, 1), tmp_path)}
    assert (
        prints["repa(until=0.5) instead of repa"].baseline
        != prints["repa(until=0.5) instead of repa"].found
    )


def test_two_levers_in_the_place_of_one_are_a_compound():
    arms = prove(asked({"add": "muon", "instead_of": "repa + tread"}), CATALOG)
    assert arms[-1].compound and arms[-1].against == "repa + tread"


def test_plans_without_own_bases_have_the_hash_that_they_had():
    assert plan(primary="attribute_accuracy").hash == "d532a9b855aa23d1"


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ([3], "an arm cannot be 3"),
        ([{"add": "muon"}], "to"),
        ([{"add": "muon", "on": "repa"}], "an arm with a base has no 'on'"),
        ([{"add": "muon", "to": ""}], "at least 1 character"),
        (
            [{"add": "muon", "to": "baseline"}],
            r'against the baseline is a plain arm: arms = \["muon"\]',
        ),
        (
            [{"add": "muon", "instead_of": "baseline"}],
            r'against the baseline is a plain arm: arms = \["muon"\]',
        ),
        ([{"add": "muon", "insted_of": "repa"}], "did you mean: instead_of"),
        ([ON, ON], "named twice: bf16_storage on muon"),
    ],
)
def test_bad_own_bases_are_refused_in_words(arms, says, tmp_path):
    path = tmp_path / "plan.toml"
    listed = ", ".join(
        (
            str(arm)
            if isinstance(arm, int)
            else "{" + ", ".join(f'{k} = "{v}"' for k, v in arm.items()) + "}"
        )
        for arm in arms
    )
    path.write_text(TOML.replace('["muon", { add = "bf16_storage", to = "muon" }]', f"[{listed}]"))
    with pytest.raises(BadInput, match=says):
        load(path)


def test_own_bases_that_are_no_comparison_are_refused_by_the_proof():
    with pytest.raises(BadInput, match="muon on muon.*named twice"):
        prove(asked({"add": "muon", "to": "muon"}), CATALOG)
    with pytest.raises(BadInput, match="no lever is called 'mun'"):
        prove(asked({"add": "bf16_storage", "to": "mun"}), CATALOG)
    with pytest.raises(
        BadInput, match="'bf16_storage on muon' and 'muon on bf16_storage' are the same run"
    ):
        prove(asked(ON, {"add": "muon", "to": "bf16_storage"}), CATALOG)
    with pytest.raises(ValueError, match="needs that base"):
        asked(ON, seeds={"first": 8, "step": 4, "most": 16})


def test_the_difference_is_proven_against_the_own_base_and_only_the_added_lever_counts(tmp_path):
    arms = prove(asked("muon", ON), CATALOG)
    own = arms[2]
    assert {change.path for change in own.changes} == {"precision.storage"} and not own.compound
    assert [lever.name for lever in own.added] == ["bf16_storage"] and [
        base.name for base in bases_of(own, arms)
    ] == [
        "muon",
        "baseline",
    ]
    prints = {one.arm: one for one in fingerprints(arms, (0, 1), tmp_path)}
    assert (
        prints["bf16_storage on muon"].baseline == prints["muon"].found != prints["muon"].baseline
    )


def test_costs_are_all_over_the_studys_baseline(tmp_path):
    """Held against its own base a cost would be small; ratios of two arms are taken from costs over
    one thing."""
    asked_for = asked("tread", {"add": "muon", "to": "tread"})
    arms = prove(asked_for, CATALOG)
    flops = {arm.name: declared(arm, arms, "flops") for arm in arms}
    tread, own = arms[1], arms[2]
    assert (
        flops["muon on tread"] == pytest.approx(flops["tread"] * own.added[0].cost(tread.run).flops)
        and flops["tread"] < 1
    )
    timed = costs(arms, tmp_path / "cache", 1, rounds=1)
    assert timed["muon on tread"].flops_ratio == flops["muon on tread"] and set(timed) == set(flops)


def test_both_are_in_the_family_and_each_is_held_against_its_own():
    wanted_plan = asked("muon", ON, seeds=list(range(8)))
    arms, noise = arms_of(wanted_plan), np.random.default_rng(0)
    base = 0.5 + 0.05 * noise.standard_normal(8)
    values = {
        "baseline": base,
        "muon": base + 0.2 + 0.005 * noise.standard_normal(8),
        "bf16_storage on muon": base + 0.2 - 0.1 + 0.005 * noise.standard_normal(8),
    }
    measured, metric = cells_of(values, wanted_plan.primary), wanted_plan.primary
    effects = effects_on(wanted_plan, arms, measured, metric)
    rows = {row.arm: row for row in judged(wanted_plan, arms, measured, metric, effects)}
    assert set(rows) == {"muon", "bf16_storage on muon"}
    assert rows["muon"].mean == pytest.approx(0.2, abs=0.01) and rows["muon"].verdict == "better"
    own = rows["bf16_storage on muon"]
    # it is better than the baseline
    assert own.mean == pytest.approx(-0.1, abs=0.01) and own.verdict == "worse"


def test_what_failed_is_named_where_it_is_not_the_baseline():
    wanted_plan = asked("muon", ON, seeds=list(range(4)))
    arms, values = (
        arms_of(wanted_plan),
        {name: [0.5, 0.6, 0.4, 0.5] for name in ("baseline", "muon", "bf16_storage on muon")},
    )
    measured = cells_of(values, wanted_plan.primary)
    del measured["muon"][3]
    cells = with_failed(measured, {"muon": {3: "the loss was not finite"}})
    rows = effects_on(wanted_plan, arms, cells, wanted_plan.primary)
    assert {row.arm: row.warnings for row in rows} == {
        "muon": (),
        "bf16_storage on muon": ("the pair of seed 3 is missing: muon failed",),
    }


def test_unlike_settings_are_named_only_between_arms_of_one_base():
    arms = prove(asked("repa", {"add": "bf16_storage", "to": "repa"}, "irepa"), CATALOG)
    assert all(" on " not in found.text for found in unequal(arms))
    words = [
        one.text
        for one in remarks(asked("repa", {"add": "bf16_storage", "to": "repa"}), arms)
        if one.code == "other-base"
    ]
    assert words == [
        "bf16_storage on repa is compared with repa, not with the baseline: its effect is the"
        " difference to that."
    ]


def test_at_every_scale_the_base_is_that_scales():
    scales = [
        {"name": "small", "settings": ["model.depth=2"]},
        {"name": "large", "settings": ["model.depth=4"]},
    ]
    arms = prove(asked(ON, scales=scales), CATALOG)
    assert {arm.name: arm.against for arm in arms if " on " in arm.name} == {
        "bf16_storage on muon [small]": "muon [small]",
        "bf16_storage on muon [large]": "muon [large]",
    }
    assert [arm.name for arm in arms if arm.is_baseline] == ["baseline [small]", "baseline [large]"]


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    out = tmp_path_factory.mktemp("own")
    wanted_plan = asked("muon", ON, evaluations=[0.5, 1.0], images=32)
    with pytest.MonkeyPatch.context() as patch:
        all_here(patch)
        return wanted_plan, out, run(wanted_plan, CATALOG, out, "x", lambda text: None)[0]


def test_a_base_that_is_an_arm_is_compared_ranked_and_marked_like_one(studied):
    _, _, result = studied
    assert [arm.name for arm in result.compared] == ["muon", "bf16_storage on muon"]
    assert not result.is_base(result.arms[1]) and result.base_of(result.arms[2]).name == "muon"
    assert result.marks["baseline"] == "B" and sorted(result.marks.values()) == ["1", "2", "B"]
    assert {arm.name for arm in result.best_first} == {"muon", "bf16_storage on muon"}
    assert (
        {row.arm for row in result.effects}
        == {"muon", "bf16_storage on muon"}
        == {row.arm for row in result.time_to_target}
    )
    assert result.arms[2].against == "muon" and result.arms[1].against == ""
    assert {row.arm for row in result.grids.arms} == {arm.name for arm in result.arms}


def test_equal_time_reads_both_curves_where_they_spent_the_same(studied):
    """The own base's cost is not one: its ratio over the baseline is divided out."""
    _, _, result = studied
    timed = [
        row for row in result.effects if row.arm == "bf16_storage on muon" and row.unit == "flops"
    ]
    assert timed and all(math.isfinite(row.mean) for row in timed)


def test_the_page_and_the_outline_say_what_an_arm_is_compared_with(studied):
    wanted_plan, out, result = studied
    own = result.arms[2]
    assert base_name(result, own) == "Muon" and "Muon" in answer(result, own)
    assert "compared with muon, not with the baseline" in render(result)
    layout = lay_out(wanted_plan, CATALOG, {}, out)
    words = outline(
        wanted_plan,
        layout,
        estimate(wanted_plan, layout, out),
        room([arm.run for arm in layout.arms], 1),
    )
    assert "bf16_storage on muon: spark + muon + bf16_storage  (compared with muon)" in words


def test_the_time_of_an_own_base_that_is_not_timed_yet_is_found(tmp_path):
    """Only the last arm is new: its base and the baseline are timed with it."""
    wanted_plan = asked("muon", ON, images=16)
    assert estimate(wanted_plan, lay_out(wanted_plan, CATALOG, {}, tmp_path), tmp_path).seconds > 0
