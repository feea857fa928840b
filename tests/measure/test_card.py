"""Cards: numbers that mean different things refuse to be compared."""

import pytest
from pydantic import ValidationError

from fulcrum.judge.card import METRICS, Measured, MetricCard, NotComparable, compatible
from fulcrum.measure.metrics.means import TimeBin, ValidationLoss

CARD = MetricCard(
    metric="frechet",
    better="lower",
    estimator="e",
    interval="i",
    extractor="abc",
    resize="none",
    value_range="uint8",
    n=1000,
    reference="r",
    sampler="euler",
    steps=20,
    guidance=3.0,
    prompts="p",
    noise="keyed",
)


def test_equal_cards_are_compatible() -> None:
    assert compatible(CARD, CARD.model_copy()) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2048),
        ("extractor", "xyz"),
        ("reference", "q"),
        ("steps", 10),
        ("guidance", 1.0),
        ("noise", "one for all"),
        ("value_range", "float [0, 1]"),
        ("code", "0"),
        ("resize", "nearest"),
        ("metric", "mmd"),
    ],
)
def test_a_difference_is_refused_and_shown(field: str, value: object) -> None:
    other = CARD.model_copy(update={field: value})
    with pytest.raises(NotComparable) as caught:
        compatible(CARD, other)
    assert all(
        part in str(caught.value) for part in (field, repr(value), repr(getattr(CARD, field)))
    )


def test_a_declared_difference_is_labelled() -> None:
    other = CARD.model_copy(update={"guidance": 1.0, "prompts": "short"})
    assert compatible(CARD, other, may_differ={"guidance", "prompts", "steps"}) == (
        "guidance",
        "prompts",
    )
    with pytest.raises(NotComparable, match="prompts"):
        compatible(CARD, other, may_differ={"guidance"})


def test_may_differ_is_checked() -> None:
    with pytest.raises(ValueError, match="guidence"):
        compatible(CARD, CARD, may_differ={"guidence"})
    with pytest.raises(ValueError, match="may never differ"):
        compatible(CARD, CARD, may_differ={"metric"})


def test_measured_refuses_nonsense() -> None:
    with pytest.raises(ValidationError, match="upside down"):
        Measured(value=1.0, low=2.0, high=0.0, card=CARD)
    with pytest.raises(ValidationError):
        Measured(value=float("nan"), low=0.0, high=1.0, card=CARD)
    with pytest.raises(ValidationError):
        MetricCard.model_validate({**CARD.model_dump(), "colour_space": "rgb"})
    number = Measured(value=1.0, low=0.5, high=2.0, card=CARD)
    assert Measured.model_validate_json(number.model_dump_json()) == number


def test_every_metric_says_its_direction() -> None:
    assert {metric.better for metric in METRICS.values()} == {"lower", "higher"}
    assert METRICS["frechet"].better == "lower" and METRICS["attribute_accuracy"].better == "higher"


def test_validation_loss_is_fenced() -> None:
    """Losses in two latent spaces, or of two objectives, are different things."""
    bins = (TimeBin(low=0, high=0.5, n=40, loss=0.4), TimeBin(low=0.5, high=1, n=60, loss=0.6))
    about = {"latents": "kl", "objective": "velocity", "pictures": "v", "draws": "7"}
    record = ValidationLoss(n=100, loss=0.5, sd=0.2, bins=bins, **about)
    number = record.measured()
    assert number.value == 0.5 and number.high - number.low == pytest.approx(
        2 * 1.9842169515 * 0.02
    )
    for change in ({"latents": "pixels"}, {"objective": "x"}, {"draws": "8"}):
        with pytest.raises(NotComparable):
            compatible(number.card, record.model_copy(update=change).measured().card)
    with pytest.raises(ValidationError, match="expected 101"):
        ValidationLoss.model_validate({**record.model_dump(), "n": 101})
