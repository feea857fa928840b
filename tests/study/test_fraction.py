"""Fractional designs: what the generator promises, and what a plan refuses."""

from itertools import combinations

import numpy as np
import pytest
from pydantic import ValidationError

from fulcrum.judge.fraction import SIZES, alias_strings, fraction_table
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies.arms import prove, prove_levers, wanted
from fulcrum.studies.cell import lay_out
from fulcrum.studies.plan_file import from_plain
from tests.study.fractional import FOUR, fraction, levers
from tests.study.small import plan

CHOICES = {
    "none": lambda names: [],
    "one": lambda names: [(names[1], names[2])],
    "triangle": lambda names: list(combinations(names[:3], 2)),
    "disjoint": lambda names: list(zip(names[::2], names[1::2], strict=False))[:4],
    "star": lambda names: [(names[0], name) for name in names[1:]],
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("count", range(3, 17))
def test_every_lever_stands_clear_of_all_pairs_and_chosen_pairs_of_each_other(count, choice):
    names = levers(count)
    table = fraction_table(names, chosen := CHOICES[choice](names))
    signs = table.signs
    assert not table.on[0].any()  # the first is the baseline
    assert len(np.unique(signs, axis=0)) == len(signs) in SIZES
    pairs = np.array([table.together(pair) for pair in combinations(names, 2)]).T
    assert (signs.sum(axis=0) == 0).all() and (pairs.sum(axis=0) == 0).all()
    assert (signs.T @ signs == len(signs) * np.eye(count)).all()
    assert (signs.T @ pairs == 0).all()  # resolution IV
    wanted_pairs = np.array([table.together(pair) for pair in chosen]).reshape(
        len(chosen), len(signs)
    )
    assert (wanted_pairs @ wanted_pairs.T == len(signs) * np.eye(len(chosen))).all()
    strings = alias_strings(table)
    listed = sorted(pair for string in strings for pair in string)
    assert listed == (sorted(combinations(names, 2)) if len(signs) != 24 else [])
    assert len(signs) == 24 or {frozenset(string[0]) for string in strings[: len(chosen)]} == set(
        map(frozenset, chosen)
    )
    for string in strings:
        assert all((table.together(pair) == table.together(string[0])).all() for pair in string)


@pytest.mark.parametrize(
    ("count", "pairs", "size"),
    [(4, 0, 8), (5, 0, 16), (8, 0, 16), (10, 0, 24), (10, 1, 32), (13, 0, 32)],
)
def test_the_fewest_combinations_that_are_enough_are_taken(count, pairs, size):
    names = levers(count)
    assert len(fraction_table(names, [(names[0], names[1])][:pairs]).on) == size


def test_a_fraction_stays_the_same():
    """The combinations of a plan are not in its hash: another version must make the same."""
    tables = [
        fraction_table(levers(4)),
        fraction_table(levers(8), [("lever0", "lever1")]),
        fraction_table(levers(10)),
    ]
    first = [["".join("01"[int(on)] for on in row) for row in table.on[:4]] for table in tables]
    assert first[0] == ["0000", "1001", "0101", "1100"]
    assert first[1] == ["00000000", "10000111", "01001011", "11001100"]
    assert first[2] == ["0000000000", "1001000111", "1100100011", "1010010001"]


def test_five_levers_in_sixteen_leave_every_pair_alone():
    assert all(len(string) == 1 for string in alias_strings(fraction_table(levers(5))))


@pytest.mark.parametrize(
    ("changes", "says", "hint"),
    [
        (
            {"combinations": 4},
            "4 combinations are too few for 4 levers: 8 are enough",
            "combinations = 8",
        ),
        ({"combinations": 12}, "there is no fraction of 12 combinations", "8, 16"),
        ({"stack": FOUR[:2]}, "takes 3 to 16 levers, found 2", "interactions"),
        ({"stack": ()}, "takes 3 to 16 levers, found 0", "interactions"),
        (
            {"interactions": (("muon", "tread"),)},
            "with 'tread' is asked for, and the stack has no such",
            "muon",
        ),
        ({"interactions": (("muon", "muon"),)}, "no interaction with itself", ""),
        ({"arms": ("tread",)}, "makes its own arms", ""),
        ({"stop_early": {}, "evaluations": (0.25, 0.5, 0.75, 1.0)}, "has no stop_early", ""),
        ({"confirm": "all"}, "confirms the primary metric only", ""),
        ({"seeds": {"first": 8, "step": 4, "most": 16}}, "has no looks", ""),
        (
            {"design": "one_at_a_time", "arms": ("muon",), "stack": (), "combinations": 8},
            "combinations belong",
            "",
        ),
        ({"scales": [{"name": "a", "settings": ["model.width=32"]}] * 2}, "named twice", ""),
    ],
)
def test_fractions_that_cannot_be_are_refused_in_words(changes, says, hint):
    with pytest.raises((ValidationError, BadInput)) as error:
        from_plain({**fraction().model_dump(), **changes})
    assert says in str(error.value), str(error.value)
    assert hint in getattr(error.value, "hint", "")


def test_too_many_chosen_pairs_are_refused():
    names = levers(12)
    with pytest.raises(
        BadInput, match="66 chosen pairs of 12 levers cannot all be told apart in 64"
    ):
        fraction_table(names, list(combinations(names, 2)))


def test_a_plan_of_before_keeps_its_hash():
    assert "combinations" not in plan().frozen and fraction(combinations=16).hash != fraction().hash


def test_arms_are_the_combinations_and_none_is_a_compound(tmp_path):
    asked = fraction()
    names = [one.name for one in wanted(asked)]
    assert (
        names[0] == "baseline"
        and len(names) == 8
        and sum(name.count("muon") for name in names) == 4
    )
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    assert not any(arm.compound for arm in layout.arms)
    assert [arm.name for arm in layout.levers] == list(FOUR)
    assert [[change.path for change in arm.changes] for arm in layout.levers][:2] == [
        ["optim.rule"],
        ["precision.storage"],
    ]
    assert len(layout.cells) == 16 and {arm.name for arm in layout.proven} >= set(FOUR)


def test_cells_are_shared_with_one_lever_at_a_time(tmp_path):
    """A combination of one lever, and the baseline, are the cells of other plans."""
    fractional = lay_out(fraction(stack=FOUR[:3]), CATALOG, {}, tmp_path)
    alone = lay_out(plan(arms=FOUR[:3]), CATALOG, {}, tmp_path)
    # all eight of three levers
    assert {cell.key for cell in alone.cells} <= {cell.key for cell in fractional.cells}


@pytest.mark.parametrize(
    ("stack", "says"),
    [
        (
            ("muon", "tread", "sprint"),
            "'tread' and 'sprint' cannot be in one run, and in a fraction every two are",
        ),
        (("muon", "path_drop_guidance", "bf16_storage"), "the lever 'path_drop_guidance' alone"),
        (("muon", "bf16_storage", "nonsense"), "the lever 'nonsense' alone"),
    ],
)
def test_levers_that_cannot_be_together_are_named(stack, says):
    with pytest.raises(BadInput) as error:
        prove_levers(fraction(stack=stack, guidance="per_arm"), CATALOG)
    assert says in error.value.message and error.value.hint


def test_other_designs_have_no_levers_of_their_own():
    assert (
        prove_levers(plan(), CATALOG) == []
        and prove(plan(arms=("muon + tread",)), CATALOG)[1].compound
    )
