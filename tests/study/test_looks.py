"""Sequential seeds: what a plan may ask, how alpha is spent, which arms go on, and what a study of
them ends with."""

import json
import math

import numpy as np
import pytest

from bench.looks import by_hand, effects_from, studies, tally
from fulcrum.judge.looks import chance_of_answer, decide, looks_of, nested_signs, spending
from fulcrum.judge.statistics import adjusted
from fulcrum.spec.errors import BadInput
from fulcrum.studies.plan_file import from_person, load

pytestmark = pytest.mark.long

SOUND = 'title = "x"\nbaseline = "spark"\narms = ["muon"]\n'


def test_a_table_of_seeds_becomes_seeds_and_looks(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(SOUND + "seeds = {first = 8, step = 4, most = 16}")
    read = load(path)
    assert read.seeds == tuple(range(16)) and read.looks == (8, 12, 16)
    kept = from_person(json.loads(json.dumps(read.frozen)), "as it is kept in the study's folder")
    assert kept.frozen == read.frozen and kept.looks == read.looks
    path.write_text(SOUND + f"seeds = {list(range(16))}")
    # older plans keep their hash
    assert load(path).hash != read.hash and "looks" not in load(path).frozen
    path.write_text(SOUND + "seeds = {first = 8, step = 4, most = 14}")
    assert load(path).looks == (8, 12, 14)  # the last step takes what is left


def test_alpha_is_spent_as_pocock_would():
    assert spending((8, 12, 16), 0.05) == pytest.approx((0.031, 0.041, 0.050), abs=6e-4)
    assert (
        spending((8, 12, 16), 0.05)[-1] == pytest.approx(0.05, abs=1e-15)
        and spending((), 0.05) == ()
    )
    assert spending((8, 16), 0.1)[0] == pytest.approx(0.1 * math.log(1 + (math.e - 1) / 2))


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        (
            "{first = 6, step = 4, most = 16}",
            "at 6 of 16 pairs, could decide nothing: its smallest possible p is 0.0312",
        ),
        ("{first = 6, step = 4, most = 16}", "look first at 7 pairs or more"),
        ("{first = 5, step = 1, most = 6}", "name the 6 seeds as a list"),
        (
            "{first = 16, step = 4, most = 16}",
            "the first look, at 16 pairs, is not before the last",
        ),
        ("{first = 8, step = 4}", "seeds as a table lack 'most'\n  write: seeds = { first = 8"),
        ("{first = 8, step = 4, most = 16, last = 3}", "seeds as a table have no 'last'"),
        ("{first = 8, step = 0, most = 16}", "step: must be at least 1"),
        ("{first = 8, step = -4, most = 16}", "step: must be at least 1"),
        ('{first = "8", step = 4, most = 16}', "first: should be a valid integer, found '8'"),
        ("{first = 8, step = 4, most = 100000}", "most: should be less than or equal to 64"),
        ("{}", "seeds as a table lack 'first'"),
        ("{first = 8, step = 4, most = 16}\nlooks = [8, 16]", "`looks` says it again"),
        ("[0, 1, 2, 3, 4, 5, 6, 7, 8]\nlooks = [8, 8, 9]", "rising numbers of pairs"),
        ("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\nlooks = [8, 9]", "must have all 10 seeds"),
        ("[0, 1, 2, 3, 4, 5, 6, 7]\nlooks = [8]", "are no sequence"),
        (
            "{first = 8, step = 4, most = 16}\nstop_early = {}\nevaluations = [0.2, 0.4, 0.6, 1.0]",
            "looks and stop_early",
        ),
        (
            '{first = 8, step = 4, most = 16}\ninteractions = [["muon", "ema"]]',
            "name the seeds as a list",
        ),
    ],
)
def test_seeds_that_cannot_be_looked_at_are_refused_in_words(seeds, says, tmp_path):
    (tmp_path / "plan.toml").write_text(f"{SOUND}seeds = {seeds}")
    with pytest.raises(BadInput) as error:
        load(tmp_path / "plan.toml")
    assert says in str(error.value), str(error.value)


# ---- the test on arrays of differences

LOOKS = looks_of((8, 12, 16), 0.05)


def decided(differences, margin=0.0, better="higher", looks=LOOKS):
    names = [f"arm {k}" for k in range(differences.shape[1])]
    effects_at, margins = effects_from(differences, names), dict.fromkeys(names, margin)
    return list(
        decide(
            effects_at, names, looks, range(16), better=better, margins_at=lambda look: margins
        ).values()
    )


def test_the_levels_of_the_looks_alone_add_up_to_alpha():
    walks = np.random.default_rng(0).standard_normal((200_000, 16)).cumsum(axis=1)
    crossed = np.zeros(len(walks), dtype=bool)
    for look in LOOKS:
        critical = np.quantile(
            np.abs(np.random.default_rng(1).standard_normal(400_000)), 1 - look.level
        )
        crossed |= np.abs(walks[:, look.pairs - 1]) / math.sqrt(look.pairs) > critical
        assert crossed.mean() == pytest.approx(look.spent, abs=0.002)


def test_sign_vectors_of_a_look_go_on_from_those_before():
    for most in (2**15, 1000):
        signs = nested_signs((8, 12, 16), most)
        assert all((one[0] == 1).all() and set(np.unique(one)) == {-1.0, 1.0} for one in signs)
        for before, after in zip(signs, signs[1:], strict=False):
            ways = len(after) // len(before)
            assert (after[:, : before.shape[1]] == np.repeat(before, ways, axis=0)).all()
    assert [len(one) for one in nested_signs((8, 12, 16), 2**15)] == [2**7, 2**11, 2**15]
    assert len(np.unique(nested_signs((8, 12, 16), 2**15)[-1], axis=0)) == 2**15


def test_at_the_first_look_the_strongest_arm_has_the_p_of_the_joint_test_in_units_of_the_level():
    names = ["a", "b", "c"]
    for study in studies(10, 3, "normal", 0.7, 3):
        given = effects_from(study, names)
        answers = decide(
            lambda look, arms, given=given: given(look, arms) if look.pairs == 8 else None,
            names,
            LOOKS,
            range(16),
            better="higher",
            margins_at=lambda look: dict.fromkeys(names, 0.0),
        )
        joint = min(1.0, float(adjusted(study[:8]).min()) * 0.05 / LOOKS[0].spent)
        assert min(one.effect.p_adjusted for one in answers.values()) == pytest.approx(joint)


def test_an_arm_leaves_when_it_is_decided_and_the_others_go_on():
    noise = np.random.default_rng(3).standard_normal((16, 3)) * 0.01
    differences = noise + np.array([0.1, 0.011, -0.1])
    better, undecided, worse = decided(differences, margin=0.001)
    assert (better.effect.verdict, better.left, better.look.pairs, better.effect.n) == (
        "better",
        "decided",
        8,
        8,
    )
    assert (worse.effect.verdict, worse.look.pairs) == ("worse", 8)
    assert undecided.look.pairs > 8
    assert all(
        (one.effect.p_adjusted <= 0.05) == (one.effect.verdict in ("better", "worse"))
        for one in (better, worse)
    )
    assert decided(differences, margin=0.001, better="lower")[0].effect.verdict == "worse"


def test_an_arm_leaves_as_a_tie_and_when_an_answer_has_become_unlikely():
    noise = np.tile([1.0, -1.0, 1.2, -1.2], 4)[:, None]
    (tie,) = decided(0.01 * noise, margin=0.05)
    assert (tie.effect.verdict, tie.left, tie.look.pairs) == ("tie", "decided", 8)
    (unlikely,) = decided(noise, margin=0.05)
    assert (unlikely.effect.verdict, unlikely.left, unlikely.look.pairs) == (
        "inconclusive",
        "unlikely",
        8,
    )
    assert unlikely.effect.p_adjusted > 0.05
    assert chance_of_answer(unlikely.effect, LOOKS[0], LOOKS[-1], 1, "higher") < 0.1


def test_p_is_at_most_alpha_just_where_an_arm_is_rejected():
    """At every look, in units of that look's level; 0.035 at a look that may spend 0.031 rejects
    nothing."""
    seen = set()
    for study in studies(60, 4, "normal", 1.2, 2, key=9):
        for one in decided(study):
            rejected = one.effect.verdict in ("better", "worse")
            excludes = one.effect.low > 0 or one.effect.high < 0
            assert rejected == (one.effect.p_adjusted <= 0.05 and excludes)
            seen.add((rejected, one.look.pairs))
    assert {(True, 8), (True, 12), (True, 16), (False, 8), (False, 16)} <= seen


def test_what_comes_after_a_look_does_not_change_it():
    """Whoever goes on with a study that was stopped decides the same again."""
    for study in studies(20, 4, "normal", 1.0, 2, key=10):
        whole, other = decided(study), study.copy()
        other[12:] = np.random.default_rng(1).standard_normal((4, 4)) * 5
        for before, after in zip(whole, decided(other), strict=True):
            assert before == after if before.look.pairs < 16 else after.look.pairs == 16


def test_an_arm_that_left_still_raises_the_bound():
    """The best of many arms that do nothing is not tested as if it had been alone."""
    study = studies(1, 25, "normal", 1.1, 1, key=12)[0]
    alone, among = decided(study[:, :1])[0], decided(study)[0]
    assert among.look.pairs > 8 or among.effect.p_adjusted > alone.effect.p_adjusted
    assert tally(studies(200, 25, "normal", key=13), 0).wrong <= 0.05 + 3 * math.sqrt(
        0.05 * 0.95 / 200
    )


@pytest.mark.parametrize("noise", ["normal", "t3"])
def test_the_family_error_of_looks_stays_at_alpha_and_by_hand_does_not(noise):
    null = studies(1000, 3, noise, key=11)
    shares = tally(null, 0)
    assert shares.wrong <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000) and shares.cells < 0.75
    assert by_hand(null) > 0.07


def test_a_tie_at_the_margin_is_rare_over_all_looks():
    """An arm that stands a margin off is called a tie in at most alpha of studies."""
    margin = 1.5
    ties = [
        decided(study, margin)[0].effect.verdict == "tie"
        for study in studies(600, 1, "normal", margin, 1, key=14)
    ]
    assert np.mean(ties) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 600)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["normal", "t3", "unequal"])
@pytest.mark.parametrize("arms", [1, 3, 10, 25])
def test_calibration_of_looks(arms, noise):
    """Two thousand studies a case: the family error holds, a third of the cells is spared, and the
    power stays near."""
    null = tally(studies(2000, arms, noise, key=1), 0)
    assert null.wrong <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 2000)
    assert null.cells <= 0.72
    moved = tally(studies(2000, arms, noise, 1.4, 1, key=2), 1)
    assert moved.wrong <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 2000)
    assert moved.power >= moved.fixed_power - 0.15
