"""The record of a validation loss at fixed times and noises. The training code computes it; here it gets its card."""

from pydantic import Field, model_validator

from fulcrum.measure.card import METRICS, Measured, MetricCard
from fulcrum.measure.metrics.interval import student
from fulcrum.spec.record import Frozen


class TimeBin(Frozen):
    """Mean loss of the times in [low, high)."""

    low: float
    high: float
    n: int
    loss: float


class ValidationLoss(Frozen):
    """Mean loss over held-out pictures, each with its own fixed t and noise (a fresh draw each time is fault A15)."""

    n: int = Field(ge=2)
    loss: float
    sd: float = Field(ge=0)  # over pictures
    bins: tuple[TimeBin, ...] = ()
    latents: str  # hash of the codec: losses of two latent spaces are not on one scale
    objective: str  # what is predicted and how it is weighted: the same fence for the objective
    pictures: str  # fingerprint of the held-out pictures and captions
    draws: str  # key of the fixed times and noises

    @model_validator(mode="after")
    def _bins_cover(self) -> "ValidationLoss":
        if self.bins and sum(part.n for part in self.bins) != self.n:
            raise ValueError(f"the time bins hold {sum(part.n for part in self.bins)} pictures, expected {self.n}")
        return self

    def measured(self) -> Measured:
        """As a number with its card, which differs, and so refuses comparison, where the loss means another thing."""
        value, low, high = student(self.loss, self.sd, self.n)
        card = MetricCard(
            metric="validation_loss", better=METRICS["validation_loss"].better, estimator=f"mean of {self.objective}",
            interval="95 %, Student over pictures; arms share pictures, times and noises, so pair them by seed",
            extractor=self.latents, n=self.n, reference=self.pictures, noise=self.draws,
        )  # fmt: skip
        return Measured(value=value, low=low, high=high, card=card)
