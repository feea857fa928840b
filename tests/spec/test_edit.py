"""Edits: pure, checked as a whole, told apart by path, named by key."""

import pytest

from fulcrum.data.fillers import OneStyle, World
from fulcrum.levers.recipes import spark
from fulcrum.spec.edit import diff, during, get, key, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.stage import phases


def test_put_leaves_the_original_alone():
    run = spark()
    assert put(run, "optim.lr", 0.5).optim.lr == 0.5
    assert run == spark()


def test_put_into_a_named_term():
    run = put(spark(), "terms.flow_matching.weight", 2.0)
    assert get(run, "terms.flow_matching.weight") == 2.0


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("optim.learning", 1.0, "optim.lr|optim.warmup"),
        ("model.width", 97, "cannot be divided"),
        ("model.width", "wide", "integer"),
        ("model.patch", 3, "not a multiple"),
        ("budget.images", 0, "must be at least 1 and at most 1,000,000,000,000, found 0"),
        ("flow.drop_text", 1.5, "must be at least 0 and at most 1, found 1.5"),
        ("optim.rule", OneStyle(), "instance of Rule"),
    ],
)
def test_an_impossible_edit_says_why(path, value, says):
    with pytest.raises(BadInput) as error:
        put(spark(), path, value)
    assert any(part in str(error.value) for part in says.split("|")), str(error.value)


def test_diff_names_a_replaced_filler_once():
    from fulcrum.training.optim.fillers import MuonRule

    changes = diff(spark(), put(spark(), "optim.rule", MuonRule()))
    assert [change.path for change in changes] == ["optim.rule"]
    # with its settings
    assert changes[0].before.startswith("adamw(") and changes[0].after == str(MuonRule())


def test_two_fillers_of_one_kind_are_told_apart():
    from fulcrum.training.model.fillers import Carry

    before, after = (
        put(spark(), "model.route", Carry(start=1, end=-1, drop=drop)) for drop in (0.5, 0.75)
    )
    assert diff(spark(), before)[0].after != diff(spark(), after)[0].after
    assert [change.path for change in diff(before, after)] == ["model.route.drop"]


def test_diff_of_equal_runs_is_empty():
    assert diff(spark(), spark()) == []


def test_the_key_knows_seed_files_and_every_slot():
    run = spark()
    keys = {
        key(run, 0),
        key(run, 1),
        key(run, 0, {"mine.py": "abc"}),
        key(put(run, "optim.clip", 0.5), 0),
        key(put(run, "budget.images", 64), 0),
        key(put(run, "sample.steps", 3), 0),
    }
    assert len(keys) == 6 and key(spark(), 0) == key(run, 0)


def test_stages_commute_and_conflict():
    run, real = spark(), World(domain="real", count=64)
    early = (0.0, 0.5, "data.source", World(domain="synthetic"))
    late = (0.9, 1.0, "data.source", real)
    assert during(during(run, *early), *late) == during(during(run, *late), *early)
    with pytest.raises(BadInput, match="two values at the same time"):
        during(during(run, *early), 0.4, 1.0, "data.source", real)
    with pytest.raises(BadInput, match="cannot change during a run"):
        during(run, 0.0, 0.5, "model.width", 64)
    with pytest.raises(ValueError, match="must run"):
        during(run, 0.5, 0.5, "data.source", real)


def test_phases_cover_the_budget_in_whole_batches():
    run = put(during(spark(), 0.0, 0.33, "flow.drop_text", 0.5), "budget.images", 1024)
    found = phases(run)
    assert found[0].start == 0 and found[-1].end == 1024
    for one, other in zip(found, found[1:], strict=False):
        assert one.end == other.start and one.end % run.budget.batch == 0
    assert [phase.run.flow.drop_text for phase in found] == [0.5, 0.1]
