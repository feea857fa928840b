"""Late stages with a learning rate of their own: what the levers put into a run, what they refuse,
what their cards say."""

import math

import pytest
import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.stages import RateStage
from fulcrum.spec.edit import during, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import apply, parse
from fulcrum.spec.run import During, System
from fulcrum.spec.stage import own_rates, require_sound
from fulcrum.training.build import assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import after, train
from fulcrum.training.optim.schedule import rates

LATE = {  # lever -> its stage's first step of ten, and its setting of the rate
    "sft_stage": (9, "rate"),
    "sprint": (9, "full_rate"),
    "synthetic_then_real": (5, "rate"),
    "rate_stage": (9, "rate"),
}


@pytest.mark.parametrize("name", LATE)
def test_a_late_stage_has_a_rate_of_its_own(name, tiny):
    (first, setting), base = (
        LATE[name],
        ("budget.images=1600", "optim.decay=0.5", "optim.warmup=0.05"),
    )
    staged, plain = rates(tiny(f"spark + {name}", *base)), rates(tiny("spark", *base))
    begin = first * len(plain) // 10
    assert staged[:begin] == plain[:begin], "nothing else of the run's schedule moves"
    assert (
        sum(staged[begin:]) > 1.3 * sum(plain[begin:])
        and staged[begin] < max(staged[begin:]) == 1.0
    )
    half = rates(tiny(f"spark + {name}({setting}=0.5)", *base))
    assert half[begin:] == pytest.approx([rate / 2 for rate in staged[begin:]])
    if name != "rate_stage":
        assert rates(tiny(f"spark + {name}({setting}=none)", *base)) == plain


def test_late_stages_stand_side_by_side_in_any_order(tiny):
    """Their stages overlap: the one that began last has the rate."""
    one = tiny("spark + synthetic_then_real(rate=0.5) + sft_stage(start=0.84)", "budget.images=96")
    other = tiny(
        "spark + sft_stage(start=0.84) + synthetic_then_real(rate=0.5)", "budget.images=96"
    )
    assert one == other and [share.share for share in own_rates(one)] == [0.5, 1.0]
    assert max(rates(one)[6:10]) == 0.5 and max(rates(one)[10:]) == 1.0
    assert tiny("spark + sprint + sft_stage") == tiny("spark + sft_stage + sprint"), (
        "the same rate from the same step"
    )


@pytest.mark.parametrize(
    ("text", "settings", "says"),
    [
        ("spark + sft_stage(rate=0.0)", (), "greater than 0"),
        ("spark + rate_stage(rate=1.5)", (), "at most 1"),
        ("spark + rate_stage(start=1.0)", (), "less than 1"),
        ("spark + rate_stage(start=0.95)", (), "would never run"),
        ("spark + rate_stage + sft_stage(rate=0.5)", (), "optim·lr"),
        ("spark + rate_stage(start=0.82, rate=0.5) + sft_stage", (), "which rate counts"),
        ("spark + rate_stage", ("optim.decay=0.95",), "together at most 1"),
    ],
)
def test_a_rate_outside_its_stage_is_refused_when_the_phrase_is_read(text, settings, says, tiny):
    with pytest.raises(BadInput) as refused:
        tiny(text, *settings)
    assert says in str(refused.value)


@pytest.mark.parametrize("path", ["optim.clip", "optim.warmup", "optim.rule", "optim"])
def test_nothing_else_of_the_optimizer_can_be_staged(path, tiny):
    run = tiny()
    with pytest.raises(BadInput, match="cannot change during a run"):
        during(run, 0.5, 1.0, path, 0.5)
    # a lever that writes the stages itself
    with pytest.raises(BadInput, match="cannot change during a run"):
        require_sound(put(run, "data.stages", (During(start=0.5, end=1.0, path=path, value=0.5),)))
    with pytest.raises(BadInput, match="greater than 0"):
        require_sound(
            put(run, "data.stages", (During(start=0.5, end=1.0, path="optim.lr", value=-1.0),))
        )
    with pytest.raises(ValueError, match="must run"):
        during(run, 0.5, 0.5, "optim.lr", 0.001)


def test_the_steps_before_the_stage_are_the_baselines_to_the_bit(tiny, cache):
    weights = []
    for text in ("spark", "spark + rate_stage(start=0.5)"):
        built = assemble(run := tiny(text), 0, System(), Feed(run, 0, cache))
        state = train(built, State(), [], after(3))
        early = {name: value.clone() for name, value in built.step.state_dict().items()}
        train(built, state, [], after(3))
        weights.append((early, built.step.state_dict()))
    (early, late), (same, other) = weights
    assert all(torch.equal(early[name], same[name]) for name in early)
    assert not all(torch.equal(late[name], other[name]) for name in late)


def test_the_card_says_what_rate_a_stage_had(tiny):
    """Computed from the run: the mean over the peak, and the part of all learning."""
    base = ("budget.images=1600", "optim.decay=0.5", "optim.warmup=0.05")
    run = tiny("spark + sft_stage(rate=none)", *base)
    lever = parse("spark + sft_stage(rate=none)", CATALOG).levers[0]
    assert "mean learning rate of 10% of the peak, 1.4% of the run's summed rate" in lever.in_run(
        run
    )
    assert "70% of the peak" in CATALOG.levers["sft_stage"]().in_run(
        tiny("spark + sft_stage", *base)
    )


def test_what_an_average_holds_was_learned_at(tiny):
    """ema is judged without fuel where the rate decays; the number under it is its own kernel's."""
    lever, base = CATALOG.levers["ema"](half_life=0.1), ("budget.images=1600", "optim.warmup=0.0")
    run = apply(tiny("spark", *base, "optim.decay=0.5"), (lever,))
    # integral of min(1, 2 s) 2^(-s / 0.1) over integral of 2^(-s / 0.1), s = what is left of the
    # budget
    c = math.log(2) / 0.1
    wanted = (
        2 * (1 - math.exp(-c / 2) * (1 + c / 2)) / c**2 + (math.exp(-c / 2) - math.exp(-c)) / c
    ) / ((1 - math.exp(-c)) / c)
    assert f"{wanted:.0%} of the peak" in lever.in_run(run)
    assert "100% of the peak" in lever.in_run(
        apply(tiny("spark", *base, "optim.decay=0.0"), (lever,))
    )


def test_the_witness_wants_this_rate(tiny, cache):
    built = assemble(run := tiny("spark + rate_stage(rate=0.5)"), 0, System(), Feed(run, 0, cache))
    assert RateStage(rate=0.5).witness(built) and not RateStage().witness(built)
