"""Designs: what arms a plan makes, their cells and cost, and what contrasts say on numbers worked
out by hand."""

import pytest

from fulcrum.judge.effects import axis, effects_on, interactions, scales, trends
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies.arm_cost import declared
from fulcrum.studies.arms import prove, wanted
from fulcrum.studies.cell import lay_out
from fulcrum.studies.estimate import estimate
from fulcrum.studies.plan_file import from_plain
from fulcrum.studies.result import remarks
from tests.study.small import SMALL, arms_of, cells_of, plan

SCALES = [
    {"name": "narrow", "settings": ["model.width=32"]},
    {"name": "wide", "settings": ["model.width=64"]},
]


def test_leave_one_out_takes_each_lever_from_the_stack():
    named_arms = wanted(
        plan(arms=(), design="leave_one_out", stack=("muon", "bf16_storage", "tread(drop=0.5)"))
    )
    assert [(one.name, one.phrase) for one in named_arms] == [
        ("baseline", "spark + muon + bf16_storage + tread(drop=0.5)"),
        ("without muon", "spark + bf16_storage + tread(drop=0.5)"),
        ("without bf16_storage", "spark + muon + tread(drop=0.5)"),
        ("without tread(drop=0.5)", "spark + muon + bf16_storage"),
    ]
    arms = prove(plan(arms=(), design="leave_one_out", stack=("muon", "bf16_storage")), CATALOG)
    assert [[lever.name for lever in arm.removed] for arm in arms] == [
        [],
        ["muon"],
        ["bf16_storage"],
    ]
    assert [[change.path for change in arm.changes] for arm in arms[1:]] == [
        ["optim.rule"],
        ["precision.storage"],
    ]
    # Muon's cost is gone
    assert not any(arm.compound for arm in arms) and declared(arms[1], arms, "flops") < 1
    found = remarks(plan(arms=(), design="leave_one_out", stack=("muon", "bf16_storage")), arms)
    assert "leave-one-out" in [one.code for one in found]


def test_only_an_arm_of_several_levers_is_called_their_compound():
    asked = plan(arms=("muon", "muon + bf16_storage"))
    _, one, two = prove(asked, CATALOG)
    assert two.compound and not one.compound
    for arm, told in (
        (two, True),
        (one, False),
        (one._replace(compound=True), False),
        (two._replace(compound=False), False),
    ):
        lines = [one.text for one in remarks(asked, [prove(asked, CATALOG)[0], arm])]
        assert any("is a compound of 2 levers" in line for line in lines) is told
        assert not any("compound of 1" in line for line in lines)


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
    names = [
        one.name
        for one in wanted(plan(arms=("muon",), interactions=(("muon", "tread"), ("muon", "ema"))))
    ]
    assert names == ["baseline", "muon", "tread", "muon + tread", "ema", "muon + ema"]


def test_an_interaction_is_ab_minus_a_minus_b_plus_base():
    asked = plan(arms=(), interactions=(("muon", "tread"),), seeds=(0, 1, 2), smallest_effect=0.5)
    arms = arms_of(asked)
    values = {
        "baseline": (10, 12, 11),
        "muon": (11, 13, 13),
        "tread": (9, 12, 10),
        "muon + tread": (15, 17, 18),
    }
    (row,) = interactions(asked, arms, cells_of(values, "attribute_f1"), "attribute_f1")
    assert (row.a, row.b, row.n) == ("muon", "tread", 3)
    assert row.mean == pytest.approx((5 + 4 + 6) / 3) and row.low < 5 < row.high
    assert row.verdict == "inconclusive"  # three pairs decide nothing
    same = {**values, "muon + tread": (10, 13, 12)}
    assert (
        interactions(asked, arms, cells_of(same, "attribute_f1"), "attribute_f1")[0].verdict
        == "adds up"
    )


def test_every_scale_has_its_own_baseline():
    asked = from_plain({**plan().model_dump(), "arms": ["muon"], "scales": SCALES})
    arms = arms_of(asked)
    assert [arm.name for arm in arms] == [
        "baseline [narrow]",
        "muon [narrow]",
        "baseline [wide]",
        "muon [wide]",
    ]
    assert [arm.against for arm in arms] == ["baseline [narrow]"] * 2 + ["baseline [wide]"] * 2
    proven = prove(asked, CATALOG)[3]
    assert [change.path for change in proven.changes] == ["optim.rule"]  # never the width
    places = axis(asked, arms)
    # FLOPs grow with the square of the width
    assert places["narrow"] == 0 and 1 < places["wide"] < 2.2
    assert [one.tokens for one in scales(asked, arms)] == [16, 16]


def test_a_trend_is_told_per_what_the_plan_names_and_its_hash_does_not_move():
    at = [one | {"at": place} for place, one in enumerate(SCALES, 4)]
    base = plan().model_dump() | {"arms": ["muon"], "seeds": [0, 1], "scales": at}
    plain, named = (from_plain(base | more) for more in ({}, {"axis": "doubling of the width"}))
    assert named.hash == plain.hash
    arms = arms_of(named)
    cells = cells_of({arm.name: (0.5, 0.6) for arm in arms}, "attribute_f1")
    assert {row.axis for row in trends(named, arms, cells, "attribute_f1")} == {
        "doubling of the width"
    }
    assert {row.axis for row in trends(plain, arms, cells, "attribute_f1")} == {
        "1 on the plan's axis"
    }
    for placeless in (SCALES, []):
        with pytest.raises(ValueError, match="give every scale an `at`"):
            from_plain(base | {"scales": placeless, "axis": "doubling of the width"})
    with pytest.raises(ValueError, match="plain words on one line"):
        from_plain(base | {"axis": "a\nb"})


def test_a_trend_is_a_line_through_each_seed():
    asked = from_plain(
        {
            **plan().model_dump(),
            "arms": ["muon"],
            "seeds": [0, 1, 2, 3, 4, 5],
            "scales": [{**SCALES[0], "at": 0.0}, {**SCALES[1], "at": 2.0}],
        }
    )
    arms = arms_of(asked)
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
    assert (
        trends(asked, arms, cells_of(values, "attribute_f1"), "attribute_f1")[0].verdict == "holds"
    )
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
    assert trends(asked, arms_of(asked), cells, "attribute_accuracy")[0].verdict == verdict
    other = cells_of(values, "frechet")
    assert trends(asked, arms_of(asked), other, "frechet")[0].verdict == "exploratory"


def test_scales_that_cost_the_same_need_a_place():
    rates = [
        {"name": name, "settings": [f"optim.lr={rate}"]}
        for name, rate in (("a", 1e-3), ("b", 2e-3))
    ]
    asked = from_plain({**plan().model_dump(), "arms": ["muon"], "scales": rates})
    with pytest.raises(BadInput, match="same place"):
        axis(asked, arms_of(asked))


def test_guidance_is_shared_unless_the_plan_says_otherwise():
    guided = {"arms": ("sprint + path_drop_guidance",), "settings": (*SMALL, "model.depth=5")}
    with pytest.raises(BadInput, match="guidance is shared"):
        prove(plan(**guided), CATALOG)
    arms = prove(plan(**guided, guidance="per_arm"), CATALOG)
    assert any(
        "other guidance" in one.text for one in remarks(plan(**guided, guidance="per_arm"), arms)
    )


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
    # two seeds and the sweep's own
    assert [cell.kind for cell in layout.before] == ["trunk"] * 3 + ["rate"] * 4
    assert [cell.known for cell in layout.before] == [True] * 3 + [False] * 4 and not any(
        c.known for c in layout.cells
    )
    assert layout.before[0].run.budget.images == 24
    assert len({cell.key for cell in (*layout.before, *layout.cells)}) == 11


def test_a_stack_is_estimated_at_no_less_than_its_members_and_with_its_tries(tmp_path):
    def flops(**changes):
        asked = plan(**changes)
        return estimate(asked, lay_out(asked, CATALOG, {}, tmp_path), tmp_path, timed=False).flops

    stack = {"arms": (), "design": "leave_one_out", "stack": ("muon", "repa", "ema(every=2)")}
    # as costly
    members = {
        lever: flops(baseline=f"spark + {lever}", arms=("bf16_storage",))
        for lever in stack["stack"]
    }
    plain = flops(arms=("bf16_storage",))
    assert members["muon"] > plain < members["repa"]
    whole = flops(baseline="spark + muon + repa + ema(every=2)", arms=("bf16_storage",))
    assert whole >= max(members.values()) and whole - plain == pytest.approx(
        sum(members.values()) - 3 * plain
    )
    # each of two arms
    parts = [whole, *(whole - members[lever] + plain for lever in stack["stack"])]
    assert flops(**stack) == pytest.approx(sum(parts) / 2)
    swept = {**stack, "learning_rates": {"sweep": (0.5, 1, 2), "share": 0.5, "seeds": (9,)}}
    assert flops(**swept) == pytest.approx(sum(parts) / 2 * (1 + 3 * 0.5 / 2))  # 2 seeds, 3 tries
    begun = {**swept, "trunk": "spark", "trunk_images": 48}  # tries not yet known
    assert flops(**begun) == pytest.approx(flops(**swept) + 3 * plain / 4)


def test_an_arm_that_is_in_the_baseline_already_is_named_with_its_phrase():
    with pytest.raises(
        BadInput, match="the arm 'muon', which is 'spark \\+ muon \\+ muon'"
    ) as error:
        prove(plan(baseline="spark + muon", arms=("muon",)), CATALOG)
    assert "what the baseline has not" in error.value.hint
