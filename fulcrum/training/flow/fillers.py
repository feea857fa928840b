"""Records of the flow's fillers; their torch code is imported when they are built."""

from functools import cache
from math import log
from typing import TYPE_CHECKING, Annotated, Any

from fulcrum.spec import slots
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Factor, Fraction, Guidance, Share, Within
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases, route_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from fulcrum.training.flow.flow import Predict
    from fulcrum.training.flow.sampling import Guide, Unstretched


EDM_SIGMA_DATA = 0.5  # the data of EDM's own noise law
MEAN_OVER = 256  # pictures: their mean errs by a sixteenth of one picture's deviation


Location = Annotated[float, Within("[-10, 10]")]  # mean of a normal number
Spread = Annotated[float, Within("(0, 10]")]  # deviation of a normal number
Deviation = Annotated[float, Within("[0.001, 100]")]  # of what the denoiser sees


def data_deviation(run: RunSpec, given: float | None) -> float | None:
    """The spread of what the denoiser sees: as it was given, else as it was measured. None: nobody
    has measured it."""
    return given if given is not None else run.encode.codec.deviation(run.data.source)


def known_deviation(run: RunSpec, given: float | None) -> float:
    """The same, or words that ask for it."""
    deviation = data_deviation(run, given)
    if deviation is None:
        raise BadInput(
            f"nobody has measured the deviation of what {run.encode.codec.kind} gives of these"
            " pictures",
            "give it: sigma_data, about 1 for normalised latents and 0.4 to 0.6 for pixels in"
            " [-1, 1]",
        )
    return deviation


class ShiftedTimes(slots.TimeFiller):
    """What times with a shift share; a stage may scale it."""

    shift: Factor = 1.0
    scale: Factor = 1.0  # of the shift, for a stage with smaller pictures

    @property
    def k(self) -> float:
        """The shift that holds: scaled, but never past no shift at all."""
        return max(min(self.shift, 1.0), self.shift * self.scale)


class LogitNormal(ShiftedTimes):
    """Most times from sigmoid(N(mean, deviation)), shifted; a share uniform, so that both ends are
    seen."""

    kind = "logit_normal"
    uniform_share: Share = 0.1
    mean: Location = 0.0  # above zero = more noise; a shift of k is a mean of ln k
    deviation: Spread = 1.0

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.training.flow.flow import LogitNormalTime

        return LogitNormalTime(self.uniform_share, self.k, self.mean, self.deviation)


class UniformTime(ShiftedTimes):
    """Times spread evenly, then shifted."""

    kind = "uniform"

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.training.flow.flow import UniformTimes

        return UniformTimes(self.k)


class EDMNoise(slots.TimeFiller):
    """EDM's noise law: ln sigma is normal.  arXiv:2206.00364

    Its sigma is that of data with a deviation of 0.5. What a noise level means is its ratio to the
    data, so with data of deviation s and noise of scale n: n t / (1 - t) = sigma s / 0.5, and t is
    the sigmoid of a normal number.
    """

    kind = "edm_noise"
    mean: Location = -1.2  # of ln sigma
    deviation: Spread = 1.2
    sigma_data: Deviation | None = None  # none: as the codec's was measured

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.training.flow.flow import LogitNormalTime

        run: RunSpec = ctx.run
        mean = (
            self.mean
            + log(known_deviation(run, self.sigma_data) / EDM_SIGMA_DATA)
            - log(run.flow.noise_scale)
        )
        return LogitNormalTime(uniform_share=0.0, k=1.0, mean=mean, deviation=self.deviation)


class Velocity(slots.PredictFiller):
    kind = "velocity"

    def build(self, ctx: Any) -> "Predict":
        from fulcrum.training.flow.flow import VelocityPrediction

        return VelocityPrediction()


class XPrediction(slots.PredictFiller):
    kind = "x"
    floor: Fraction = 0.05  # t below this counts as this, or the loss explodes at t = 0

    def build(self, ctx: Any) -> "Predict":
        from fulcrum.training.flow.flow import CleanPrediction

        return CleanPrediction(self.floor)


class Preconditioned(slots.PredictFiller):
    """EDM: what the network sees and what it gives have unit variance at every time."""

    kind = "preconditioned"
    sigma_data: Deviation | None = None  # spread of the data; none: as the codec's was measured

    def build(self, ctx: Any) -> "Predict":
        from fulcrum.training.flow.flow import PreconditionedPrediction

        return PreconditionedPrediction(
            known_deviation(ctx.run, self.sigma_data), ctx.run.flow.noise_scale
        )


class EvenWeight(slots.WeightFiller):
    kind = "even"

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.training.flow.flow import even

        return even


class MinSNR(slots.WeightFiller):
    """The signal-to-noise ratio, capped: easy times near the data count no more than gamma."""

    kind = "min_snr"
    gamma: Factor = 5.0

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.training.flow.flow import MinSNRWeight

        return MinSNRWeight(self.gamma, ctx.run.flow.noise_scale)


class EDMLoss(slots.WeightFiller):
    """EDM's loss weight: the error of a preconditioned output counts the same at every time."""

    kind = "edm_weight"
    sigma_data: Deviation | None = None  # spread of the data; none: as the codec's was measured

    def build(self, ctx: Any) -> "Callable[[Tensor], Tensor]":
        from fulcrum.training.flow.flow import EDMWeight

        return EDMWeight(known_deviation(ctx.run, self.sigma_data), ctx.run.flow.noise_scale)


class CFG(slots.GuideFiller):
    """Classifier-free guidance: away from the empty prompt."""

    kind = "cfg"
    scale: Guidance

    def build(self, ctx: Any) -> "Guide":
        from fulcrum.training.flow.sampling import ClassifierFree

        return ClassifierFree(self.scale)


class RoutedGuide(slots.GuideFiller):
    """Away from the same prompt with the tokens routed as in training."""

    kind = "routed"
    scale: Guidance

    def missing(self, run: RunSpec) -> str | None:
        """What this run's model lacks, in words."""
        tokens = run.tokens
        if route_of(run).kept(tokens) < tokens:
            return None
        return (
            "no block of the model was trained to see fewer tokens: model.route drops none; add"
            " tread or sprint"
        )

    def build(self, ctx: Any) -> "Guide":
        _require(self, ctx.run)
        from fulcrum.training.flow.sampling import RoutedVersusFull

        return RoutedVersusFull(self.scale)


class PathDropGuide(slots.GuideFiller):
    """Away from the empty prompt through the short path, which leaves the routed span out."""

    kind = "path_drop"
    scale: Guidance

    def missing(self, run: RunSpec) -> str | None:
        """What this run's model lacks, in words."""
        if not route_of(run).fuses:
            return (
                "the model has no path around its middle blocks: model.route fuses nothing; add"
                " sprint"
            )
        if not any(getattr(phase.run.model.route, "path_drop", 0.0) for phase in phases(run)):
            return "the short path is never trained alone: model.route.path_drop is 0"
        return None

    def build(self, ctx: Any) -> "Guide":
        _require(self, ctx.run)
        from fulcrum.training.flow.sampling import PathDrop

        return PathDrop(self.scale)


class CorrectedCFG(slots.GuideFiller):
    """Classifier-free guidance on a model that learned with a contrastive term, whose stretch of
    the velocity is undone."""

    kind = "corrected_cfg"
    scale: Guidance
    #: lambda; none: that of the run's contrastive term, against flow matching's
    weight: Fraction | None = None

    def stretch(self, run: RunSpec) -> float | None:
        """How much the run's contrastive term weighs at its end for each unit of flow matching;
        None: there is none."""
        weights = {term.kind: term.weight for term in phases(run)[-1].run.terms}
        contrastive, flow = weights.get("contrastive"), weights.get("flow_matching")
        return contrastive / flow if contrastive and flow else None

    def missing(self, run: RunSpec) -> str | None:
        """What this run lacks, in words."""
        if self.stretch(run) is None:
            return (
                "no term of the loss is contrastive when the run ends, so there is nothing to"
                " correct: add contrastive_flow to its end"
            )
        if run.encode.codec.trained:
            return (
                "the mean of the latents moves while their codec is trained, and it is needed to"
                " draw"
            )
        if run.data.source.glimpse(run.data.size, 1) is None:
            return (
                f"the mean of the training pictures is needed, and '{run.data.source.kind}' cannot"
                " be looked at by itself"
            )
        return None

    def build(self, ctx: Any) -> "Unstretched":
        _require(self, ctx.run)
        from fulcrum.training.flow.sampling import Unstretched

        run: RunSpec = ctx.run
        weight = self.stretch(run) if self.weight is None else self.weight
        mean = _mean_latent(run.data.source, run.encode.codec, run.data.size)
        return Unstretched(self.scale, weight or 0.0, mean, run.flow.predict.build(ctx))


@cache
def _mean_latent(source: slots.SourceFiller, codec: slots.CodecFiller, size: int) -> "Tensor":
    """(C, h, w), place by place, over the first pictures of a source."""
    import torch

    pictures = torch.from_numpy(source.glimpse(size, MEAN_OVER))
    with torch.no_grad():
        return codec.build(None).encode(pictures.float() / 127.5 - 1).mean(0)


def _require(guide: RoutedGuide | PathDropGuide | CorrectedCFG, run: RunSpec) -> None:
    if reason := guide.missing(run):
        raise BadInput(
            f"sample.guide={guide.kind} cannot draw with this run: {reason}",
            "draw with sample.guide=cfg",
        )


FILLERS = (
    LogitNormal,
    UniformTime,
    EDMNoise,
    Velocity,
    XPrediction,
    Preconditioned,
    EvenWeight,
    MinSNR,
    EDMLoss,
    CFG,
    RoutedGuide,
    PathDropGuide,
    CorrectedCFG,
)
