"""Records of the flow's fillers; their torch code is imported when they are built."""

from typing import TYPE_CHECKING, Annotated, Any

from fulcrum.spec import seam
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Factor, Fraction, Guidance, Share, Within
from fulcrum.spec.run import RunSpec
from fulcrum.spec.run_route import route_of
from fulcrum.spec.stage import phases

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from fulcrum.flow.guide import Guide
    from fulcrum.flow.predict import Predict


class LogitNormal(seam.TimeFiller):
    """Most times from sigmoid(N(0,1)), shifted; a share uniform, so that both ends are seen."""

    kind = "logit_normal"
    uniform_share: Share = 0.1
    shift: Factor = 1.0
    scale: Factor = 1.0  # of the shift, for a stage with smaller pictures

    @property
    def k(self) -> float:
        """The shift that holds: scaled, but never past no shift at all."""
        return max(min(self.shift, 1.0), self.shift * self.scale)

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.flow.time import LogitNormalTime

        return LogitNormalTime(self.uniform_share, self.k)


class UniformTime(seam.TimeFiller):
    kind = "uniform"

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.flow.time import LogitNormalTime

        return LogitNormalTime(uniform_share=1.0, k=1.0)


class Velocity(seam.PredictFiller):
    kind = "velocity"

    def build(self, ctx: Any) -> "Predict":
        from fulcrum.flow.predict import VelocityPrediction

        return VelocityPrediction()


class XPrediction(seam.PredictFiller):
    kind = "x"
    floor: Fraction = 0.05  # t below this counts as this, or the loss explodes at t = 0

    def build(self, ctx: Any) -> "Predict":
        from fulcrum.flow.predict import CleanPrediction

        return CleanPrediction(self.floor)


class Preconditioned(seam.PredictFiller):
    """EDM: what the network sees and what it gives have unit variance at every time."""

    kind = "preconditioned"
    sigma_data: Annotated[float, Within("(0, 100]")] = 1.0  # spread of the data: latents 1, pixels 0.4 to 0.5

    def build(self, ctx: Any) -> "Predict":
        from fulcrum.flow.predict import PreconditionedPrediction

        return PreconditionedPrediction(self.sigma_data, ctx.run.flow.noise_scale)


class EvenWeight(seam.WeightFiller):
    kind = "even"

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.flow.time import even

        return even


class MinSNR(seam.WeightFiller):
    """The signal-to-noise ratio, capped: easy times near the data count no more than gamma."""

    kind = "min_snr"
    gamma: Factor = 5.0

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.flow.time import MinSNRWeight

        return MinSNRWeight(self.gamma)


class CFG(seam.GuideFiller):
    """Classifier-free guidance: away from the empty prompt."""

    kind = "cfg"
    scale: Guidance

    def build(self, ctx: Any) -> "Guide":
        from fulcrum.flow.guide import ClassifierFree

        return ClassifierFree(self.scale)


class RoutedGuide(seam.GuideFiller):
    """Away from the same prompt with the tokens routed as in training."""

    kind = "routed"
    scale: Guidance

    def missing(self, run: RunSpec) -> str | None:
        """What this run's model lacks, in words."""
        tokens = run.tokens
        if route_of(run).kept(tokens) < tokens:
            return None
        return "no block of the model was trained to see fewer tokens: model.route drops none"

    def build(self, ctx: Any) -> "Guide":
        _require(self, ctx.run)
        from fulcrum.flow.guide import RoutedVersusFull

        return RoutedVersusFull(self.scale)


class PathDropGuide(seam.GuideFiller):
    """Away from the empty prompt through the short path, which leaves the routed span out."""

    kind = "path_drop"
    scale: Guidance

    def missing(self, run: RunSpec) -> str | None:
        """What this run's model lacks, in words."""
        if not route_of(run).fuses:
            return "the model has no path around its middle blocks: model.route fuses nothing"
        if not any(getattr(phase.run.model.route, "path_drop", 0.0) for phase in phases(run)):
            return "the short path is never trained alone: model.route.path_drop is 0"
        return None

    def build(self, ctx: Any) -> "Guide":
        _require(self, ctx.run)
        from fulcrum.flow.guide import PathDrop

        return PathDrop(self.scale)


def _require(guide: RoutedGuide | PathDropGuide, run: RunSpec) -> None:
    if reason := guide.missing(run):
        raise BadInput(f"sample.guide={guide.kind} cannot draw with this run: {reason}", "draw with sample.guide=cfg")


FILLERS = (
    LogitNormal,
    UniformTime,
    Velocity,
    XPrediction,
    Preconditioned,
    EvenWeight,
    MinSNR,
    CFG,
    RoutedGuide,
    PathDropGuide,
)
