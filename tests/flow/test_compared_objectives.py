"""Losses of two objectives are not compared, in a card or in a study."""

import pytest

from fulcrum.judge.card import NotComparable, compatible
from fulcrum.judge.cells import CellRecord, MetricValue
from fulcrum.judge.effects import effects_on
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.evaluation import Held, loss_of
from fulcrum.measure.metrics.means import ValidationLoss
from fulcrum.studies.arms import prove
from fulcrum.studies.judging import judged_arms
from fulcrum.studies.plan import Plan
from fulcrum.studies.result import remarks
from fulcrum.training.feed import Feed


@pytest.mark.parametrize(
    "change",
    [
        "flow.predict=x",
        "flow.predict=x(floor=0.1)",
        "flow.predict=preconditioned",
        "flow.weight=min_snr",
        "flow.weight=edm_weight",
        "flow.time=uniform",
        "flow.time=edm_noise",
        "flow.time=logit_normal(mean=0.5)",
        "flow.time=logit_normal(shift=3.0)",
        "flow.noise_scale=2.0",
    ],
)
def test_losses_of_two_objectives_are_not_compared(change, tiny, cache):
    base = card(tiny(), cache)
    with pytest.raises(NotComparable):
        compatible(base, card(tiny("spark", change), cache))
    assert compatible(base, card(tiny("spark + muon"), cache)) == ()


def test_a_staged_time_is_another_objective(tiny):
    assert loss_of(tiny()) != loss_of(tiny("spark + uniform_time @ (0, 0.5)"))


def card(run, cache):
    """The card of a run's held-out loss."""
    feed = Feed(run, 0, cache)
    about = Held(run, feed.codec(), feed.text(), cache).about
    return ValidationLoss(n=2, loss=1.0, sd=0.0, **about).measured().card


def test_a_study_leaves_out_what_cannot_be_compared_and_says_so():
    plan = Plan(
        title="x",
        baseline="pocket",
        arms=("x_prediction", "muon", "shifted_time"),
        seeds=(0, 1),
        images=64,
    )
    arms = prove(plan, CATALOG)

    def cell(arm, metric, **facts):
        card = {
            "metric": metric,
            "better": "lower",
            "estimator": "mean",
            "interval": "none",
            "n": 2,
            **facts,
        }
        return CellRecord(arm.name, 0, {metric: MetricValue(1.0 + len(arm.name), card)})

    losses = {
        arm.name: {
            seed: cell(arm, "validation_loss", estimator=str(loss_of(arm.run))) for seed in (0, 1)
        }
        for arm in arms
    }
    judged = judged_arms(plan, arms)
    rows = effects_on(plan, judged, losses, "validation_loss")
    assert [effect.arm for effect in rows] == ["muon"]
    drawn = {
        arm.name: {
            seed: cell(arm, "frechet", sampler=f"shift {arm.run.sample.shift}") for seed in (0, 1)
        }
        for arm in arms
    }
    assert len(effects_on(plan, judged, drawn, "frechet")) == 3
    said = " ".join(one.text for one in remarks(plan, arms))
    assert "validation loss of x_prediction, shifted_time is not compared" in said
    assert "shifted_time is evaluated with other sampler" in said
