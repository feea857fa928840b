"""Phrases: what people write becomes a run, or an error that helps."""

import pytest

from fulcrum.levers.catalog import CATALOG, with_files
from fulcrum.spec.edit import get, key, read
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import overridden, parse


def test_levers_and_settings_reach_the_run():
    phrase = parse(
        "spark + muon + tread(drop=0.25, start=none)",
        CATALOG,
        ["optim.lr=2e-4", "flow.time=uniform"],
    )
    assert phrase.run.optim.lr == 2e-4 and phrase.run.optim.rule.kind == "muon"
    assert phrase.run.model.route.drop == 0.25 and phrase.run.flow.time.kind == "uniform"
    assert str(phrase) == "spark + muon + tread(drop=0.25)"


def test_order_of_levers_does_not_matter():
    one, other = (
        parse("spark + muon + tread + sft_stage", CATALOG),
        parse("spark + sft_stage + tread + muon", CATALOG),
    )
    assert one.run == other.run and key(one.run, 3) == key(other.run, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sprak", "did you mean: spark"),
        ("spark + tred", "did you mean: tread"),
        ("spark + tread(drp=0.5)", "did you mean: drop"),
        ("spark + tread(drop=1.5)", "less than 1"),
        ("spark + tread(drop=half)", "valid number"),
        ("spark + tread(0.5)", "by name"),
        ("spark + tread(start=9)", "but the model has"),
        ("spark + muon + muon", "named twice"),
        ("spark + tread @ 0.5", "lever @ (start, end)"),
        ("spark + ema @ (0, 0.5)", "cannot change during a run"),
        ("spark + synthetic_then_real(until=0.95) + sft_stage", "two values at the same time"),
        ("spark +", "cannot read the phrase"),
        ("__import__('os').system('true')", "begins with a recipe"),
        ("spark + muon.__class__", "expected the name of a lever"),
        ("", "cannot read the phrase"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(text, says):
    with pytest.raises(BadInput) as error:
        parse(text, CATALOG)
    assert says in str(error.value), str(error.value)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("optim.lrr=1", "did you mean: optim.lr"),
        ("optim.lr", "path=value"),
        ("optim.lr=fast", "valid number"),
        ("optim=3", "a group of slots"),
        ("flow.time=unifrom", "did you mean: uniform"),
        ("precision.storage=fp8", "'fp32' or 'bf16'"),
    ],
)
def test_bad_settings(setting, says):
    with pytest.raises(BadInput) as error:
        parse("spark", CATALOG, [setting])
    assert says in str(error.value), str(error.value)


def test_a_lever_can_be_limited_to_a_stage():
    run = parse("spark + tread @ (0, 0.5)", CATALOG).run
    assert run.model.route.kind == "dense"
    assert [(stage.path, stage.end) for stage in run.data.stages] == [("model.route", 0.5)]


@pytest.mark.parametrize("name", CATALOG.recipes)
def test_every_recipe_survives_a_round_trip_through_plain_data(name):
    import json

    run = parse(f"{name} + tread(start=1, end=2) + sft_stage", CATALOG).run
    assert read(json.loads(json.dumps(run.plain())), CATALOG.fillers) == run


def test_unknown_parts_in_plain_data_are_refused():
    plain = parse("spark", CATALOG).run.plain()
    with pytest.raises(BadInput, match="not known here"):
        read({**plain, "average": {"kind": "mine"}}, CATALOG.fillers)
    with pytest.raises(BadInput):
        read({**plain, "extra": 1}, CATALOG.fillers)
    with pytest.raises(BadInput):
        read({**plain, "optim": 3}, CATALOG.fillers)


def test_prx_settings_are_the_published_ones():
    run = parse("prx_256", CATALOG).run
    assert (run.optim.lr, run.optim.clip, run.optim.rule.eps, run.budget.batch) == (
        1e-4,
        0.2,
        1e-15,
        256,
    )
    assert get(parse("prx_pixels_1024", CATALOG).run, "flow.time.shift") == 3.0


@pytest.mark.parametrize(
    ("phrase", "says"),
    [
        (
            "spark + repa(weight=1e30)",
            "weight: must be greater than 0 and at most 1,000, found 1e+30",
        ),
        ("spark + contrastive_flow(weight=3)", "greater than 0 and less than 1, found 3"),
        ("spark + muon(lr_ratio=1e9)", "at most 1,000, found"),
        ("spark + repa(schedule=often)", "should be 'constant' or 'cosine', found 'often'"),
    ],
)
def test_a_setting_out_of_range_is_told_with_its_range(phrase, says):
    with pytest.raises(BadInput) as told:
        parse(phrase, CATALOG)
    assert says in told.value.message


@pytest.mark.parametrize(
    "setting",
    [
        "optim.lr=1e30",
        "optim.clip=1e30",
        "flow.noise_scale=1e30",
        "model.theta=1e30",
        "optim.rule.weight_decay=1e30",
        "terms.flow_matching.weight=1e30",
        "sample.shift=1e30",
        "optim.rule.eps=1e30",
        "budget.batch=10000000000000",
        "model.heads=10000000000",
    ],
)
def test_nonsense_is_no_setting(setting):
    with pytest.raises(BadInput, match=r"must be .* and at most [\d,]+, found"):
        parse("spark", CATALOG, [setting])


def test_files_that_hold_no_lever(tmp_path):
    with pytest.raises(BadInput, match="no Python file"):
        with_files([tmp_path / "none.py"])
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(BadInput, match="holds no lever"):
        with_files([tmp_path / "empty.py"])
    (tmp_path / "broken.py").write_text("raise RuntimeError('oh')\n")
    with pytest.raises(BadInput, match="RuntimeError: oh"):
        with_files([tmp_path / "broken.py"])


def test_an_error_about_stages_can_be_read():
    """It told every stage with all settings of its pictures before it said what was wrong."""
    with pytest.raises(BadInput) as refused:
        parse("spark + sft_stage(start=0.3) + synthetic_then_real(until=0.6)", CATALOG)
    assert "two values at the same time" in str(refused.value) and "During(" not in str(
        refused.value
    )
    assert len(str(refused.value)) < 300, str(refused.value)


def test_what_python_warns_of_is_said_in_our_words_alone(recwarn):
    """`1if` and the like: ast.parse warns on stderr before anyone can refuse."""
    with pytest.raises(BadInput):
        parse("spark + tread(drop=1if)", CATALOG)
    assert not recwarn.list


def test_a_list_is_written_as_a_person_types_it():
    written = str(parse("spark + lora(rank=2, targets=matrix)", CATALOG))
    assert written == "spark + lora(rank=2, targets=[matrix])"
    both = "spark + lora(targets=[head, matrix])"
    assert str(parse(both, CATALOG)) == both


@pytest.mark.parametrize("text", ["spr" + "-0" * 900, "pocket + muon " + "+ " * 900 + "1"])
def test_what_is_nested_too_deep_is_refused_in_words(text):
    """An hour of the attack found both: they could be read, and not be written into a message."""
    with pytest.raises(BadInput, match="cannot read the phrase"):
        parse(text, CATALOG)


def test_a_setting_that_another_one_undoes_is_told():
    for settings, says in (
        (("optim.lr=1e-3", "optim.lr=2e-3"), "'optim.lr' is set twice"),
        (("optim.lr=1e-3", "optim.clip=1", " optim.lr = 1e-3"), "'optim.lr' is set twice"),
        (
            ("flow.time.shift=2", "flow.time=uniform"),
            "'flow.time.shift' is set, and then all of 'flow.time'",
        ),
    ):
        (told,) = overridden(settings)
        assert says in told
    assert not list(overridden(("flow.time=uniform", "flow.time.shift=2", "flow.time_of_day=1")))
    assert parse("spark", CATALOG, ["optim.lr=1e-3", "optim.lr=2e-3"]).run.optim.lr == 2e-3, (
        "the last one counts"
    )
