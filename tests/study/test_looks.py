"""Sequential seeds: what a plan may ask, how alpha is spent, which arms go on, and what a study of them ends with."""

import json
import math

import pytest

from fulcrum.spec.errors import BadInput
from fulcrum.study.plan.plan import from_person, load
from fulcrum.study.plan.spending import spending

SOUND = 'title = "x"\nbaseline = "spark"\narms = ["muon"]\n'


def test_a_table_of_seeds_becomes_seeds_and_looks(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(SOUND + "seeds = {first = 8, step = 4, most = 16}")
    read = load(path)
    assert read.seeds == tuple(range(16)) and read.looks == (8, 12, 16)
    assert from_person(json.loads(json.dumps(read.frozen)), "again") == read  # as it is kept in the study's folder
    path.write_text(SOUND + f"seeds = {list(range(16))}")
    assert load(path).hash != read.hash and "looks" not in load(path).frozen  # older plans keep their hash
    path.write_text(SOUND + "seeds = {first = 8, step = 4, most = 14}")
    assert load(path).looks == (8, 12, 14)  # the last step takes what is left


def test_alpha_is_spent_as_pocock_would():
    assert spending((8, 12, 16), 0.05) == pytest.approx((0.031, 0.041, 0.050), abs=6e-4)
    assert spending((8, 12, 16), 0.05)[-1] == pytest.approx(0.05, abs=1e-15) and spending((), 0.05) == ()
    assert spending((8, 16), 0.1)[0] == pytest.approx(0.1 * math.log(1 + (math.e - 1) / 2))


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        ("{first = 6, step = 4, most = 16}", "at 6 of 16 pairs, could decide nothing: its smallest possible p is 0.0312"),
        ("{first = 6, step = 4, most = 16}", "look first at 7 pairs or more"),
        ("{first = 5, step = 1, most = 6}", "name the 6 seeds as a list"),
        ("{first = 16, step = 4, most = 16}", "the first look, at 16 pairs, is not before the last"),
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
        ("{first = 8, step = 4, most = 16}\nstop_early = {}\nevaluations = [0.2, 0.4, 0.6, 1.0]", "looks and stop_early"),
        ('{first = 8, step = 4, most = 16}\ninteractions = [["muon", "ema"]]', "name the seeds as a list"),
    ],
)
def test_seeds_that_cannot_be_looked_at_are_refused_in_words(seeds, says, tmp_path):
    (tmp_path / "plan.toml").write_text(f"{SOUND}seeds = {seeds}")
    with pytest.raises(BadInput) as error:
        load(tmp_path / "plan.toml")
    assert says in str(error.value), str(error.value)
