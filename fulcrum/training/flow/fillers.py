"""Flow matching: the path from data to noise, its times, what a prediction means, and guidance.

    B batch, C channels, h, w latent rows and columns
    x0 (B, C, h, w) data, eps (B, C, h, w) noise, t (B,) time: t = 0 is data, t = 1 is noise
    x_t = (1 - t) x0 + t eps, v = dx_t / dt = eps - x0
    n scale of eps (flow.noise_scale), s deviation of the data

A filler is a record of settings that computes. Where its mathematics needs a fact of the run, its
`build` returns a copy that knows it. The file loads without torch.
"""

from dataclasses import dataclass
from functools import cache
from math import log
from typing import TYPE_CHECKING, Annotated, Any

from fulcrum.spec import slots
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Factor, Fraction, Guidance, Share, Within
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases, route_of

if TYPE_CHECKING:
    from torch import Tensor

    from fulcrum.training.flow.sampling import Denoise


# --------------------------------------------------------------------------------------------------
# The straight path between data and noise.


def over(t: "Tensor", like: "Tensor") -> "Tensor":
    """Shape t (B,) so that it multiplies `like` (B, ...)."""
    return t.view(-1, *[1] * (like.dim() - 1))


def mix(x0: "Tensor", eps: "Tensor", t: "Tensor") -> "Tensor":
    """x_t = (1 - t) x0 + t eps."""
    t = over(t, x0)
    return (1 - t) * x0 + t * eps


# --------------------------------------------------------------------------------------------------
# What EDM's fillers must know of the data.


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


# --------------------------------------------------------------------------------------------------
# Times: from a uniform number u in (0, 1) to the time of a sample.


EARLIEST = 0.001  # uniform times start here: the published setting
EDM_SIGMA_DATA = 0.5  # the data of EDM's own noise law

Location = Annotated[float, Within("[-10, 10]")]  # mean of a normal number
Spread = Annotated[float, Within("(0, 10]")]  # deviation of a normal number


def shift(t: "Tensor", k: float) -> "Tensor":
    """S_k(t) = k t / (1 + (k - 1) t): k > 1 moves times towards noise, as larger pictures need."""
    return k * t / (1 + (k - 1) * t)


def even_times(u: "Tensor") -> "Tensor":
    """t = EARLIEST + (1 - EARLIEST) u."""
    return EARLIEST + (1 - EARLIEST) * u


def logit_normal(u: "Tensor", mean: float, deviation: float) -> "Tensor":
    """t = sigmoid(mean + deviation z), z the standard normal quantile of u.  arXiv:2403.03206"""
    import torch

    z = torch.special.ndtri(u.clamp(1e-6, 1 - 1e-6))
    return torch.sigmoid(mean + deviation * z)


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

    def __call__(self, u: "Tensor") -> "Tensor":
        """Choose a part of the mixture by u < uniform_share, and use the rest of u inside it."""
        share = self.uniform_share
        uniform = even_times(u / share if share > 0 else u)
        if share >= 1:
            return uniform
        normal = logit_normal((u - share) / (1 - share), self.mean, self.deviation)
        return uniform.where(u < share, shift(normal, self.k))


class UniformTime(ShiftedTimes):
    """Times spread evenly, then shifted."""

    kind = "uniform"

    def __call__(self, u: "Tensor") -> "Tensor":
        """t = S_k(EARLIEST + (1 - EARLIEST) u)."""
        return shift(even_times(u), self.k)


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
    _mean_of_logit: float  # set by build

    def build(self, ctx: Any) -> "EDMNoise":
        run: RunSpec = ctx.run
        s = known_deviation(run, self.sigma_data)
        built = self.model_copy()
        built._mean_of_logit = self.mean + log(s / EDM_SIGMA_DATA) - log(run.flow.noise_scale)
        return built

    def __call__(self, u: "Tensor") -> "Tensor":
        """logit t = ln sigma + ln(s / 0.5) - ln n."""
        return logit_normal(u, self._mean_of_logit, self.deviation)


# --------------------------------------------------------------------------------------------------
# What the network's output means: the only place that turns a prediction into a velocity or a
# picture.


class Velocity(slots.PredictFiller):
    """The network predicts v = eps - x0."""

    kind = "velocity"

    def ideal(self, x0: "Tensor", eps: "Tensor", t: "Tensor") -> "Tensor":
        return eps - x0

    def to_v(self, pred: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        return pred

    def to_x(self, pred: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """x0 = x_t - t v."""
        return x_t - over(t, x_t) * pred


class XPrediction(slots.PredictFiller):
    """The network predicts x0; v = (x_t - x0) / max(t, floor). Works where the patch is wider than
    the network.  arXiv:2511.13720"""

    kind = "x"
    floor: Fraction = 0.05  # t below this counts as this, or the loss explodes at t = 0

    def ideal(self, x0: "Tensor", eps: "Tensor", t: "Tensor") -> "Tensor":
        return x0

    def to_v(self, pred: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """v = (x_t - x0) / max(t, floor)."""
        return (x_t - pred) / over(t.clamp(min=self.floor), x_t)

    def to_x(self, pred: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        return pred


class Preconditioned(slots.PredictFiller):
    """EDM: what the network sees and what it gives, F, have unit variance at every time
    (arXiv:2206.00364).

    Our path is EDM's with sigma = n t / (1 - t) and x = x_t / (1 - t); s is the spread of the data,
    n that of eps. With den = n^2 t^2 + s^2 (1 - t)^2 its c_in, c_skip, c_out (its table 1) lose the
    pole at t = 1. c_noise is t itself: the sinusoids read it. The loss stays on v; how a time
    counts is `flow.weight`'s decision.
    """

    kind = "preconditioned"
    sigma_data: Deviation | None = None  # spread of the data; none: as the codec's was measured
    _s: float  # deviation of the data, set by build
    _n: float  # scale of the noise, set by build

    def build(self, ctx: Any) -> "Preconditioned":
        built = self.model_copy()
        built._s = known_deviation(ctx.run, self.sigma_data)
        built._n = ctx.run.flow.noise_scale
        return built

    def inputs(self, x_t: "Tensor", t: "Tensor") -> "Tensor":
        """c_in x = x_t / sqrt(den)."""
        return x_t / over(self._den(t).sqrt(), x_t)

    def ideal(self, x0: "Tensor", eps: "Tensor", t: "Tensor") -> "Tensor":
        """F = (n t / s x0 - s (1 - t) / n eps) / sqrt(den): (x0 - c_skip x) / c_out, multiplied
        out, has no pole at t = 0, where c_out is 0."""
        of_x0 = self._n * t / self._s
        of_eps = self._s * (1 - t) / self._n
        return (over(of_x0, x0) * x0 - over(of_eps, x0) * eps) / over(self._den(t).sqrt(), x0)

    def to_v(self, pred: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """v = (x_t - x0) / t = (n^2 t - s^2 (1 - t)) / den x_t - n s / sqrt(den) F."""
        den = self._den(t)
        skip = (self._n**2 * t - self._s**2 * (1 - t)) / den
        out = self._n * self._s / den.sqrt()
        return over(skip, x_t) * x_t - over(out, x_t) * pred

    def to_x(self, pred: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """x0 = s^2 (1 - t) / den x_t + n s t / sqrt(den) F."""
        den = self._den(t)
        skip = self._s**2 * (1 - t) / den
        out = self._n * self._s * t / den.sqrt()
        return over(skip, x_t) * x_t + over(out, x_t) * pred

    def _den(self, t: "Tensor") -> "Tensor":  # (B,)
        """den = n^2 t^2 + s^2 (1 - t)^2: the variance of x_t."""
        return (self._n * t).square() + (self._s * (1 - t)).square()


# --------------------------------------------------------------------------------------------------
# How much a time counts in the loss: the weight of the squared error of v.


class EvenWeight(slots.WeightFiller):
    """Every time counts the same: 1."""

    kind = "even"

    def __call__(self, t: "Tensor") -> "Tensor":
        return t.new_ones(t.shape)


class MinSNR(slots.WeightFiller):
    """The signal-to-noise ratio, capped: easy times near the data count no more than gamma
    (arXiv:2303.09556).

    Its weight min(SNR, gamma) is on the error of x0, which is t times the error of v. With noise of
    scale n the ratio is SNR = (1 - t)^2 / (n t)^2, so the weight on v is
    min((1 - t)^2 / n^2, gamma t^2).
    """

    kind = "min_snr"
    gamma: Factor = 5.0
    _n: float  # scale of the noise, set by build

    def build(self, ctx: Any) -> "MinSNR":
        built = self.model_copy()
        built._n = ctx.run.flow.noise_scale
        return built

    def __call__(self, t: "Tensor") -> "Tensor":
        """min((1 - t)^2 / n^2, gamma t^2)."""
        return ((1 - t) / self._n).square().minimum(self.gamma * t.square())


class EDMLoss(slots.WeightFiller):
    """EDM's loss weight: the error of a preconditioned output counts the same at every time
    (arXiv:2206.00364).

    Its weight (sigma^2 + s^2) / (sigma s)^2, table 1, is on the error of x0, which is t times the
    error of v. With sigma = n t / (1 - t) the weight on v is t^2 / s^2 + (1 - t)^2 / n^2.
    """

    kind = "edm_weight"
    sigma_data: Deviation | None = None  # spread of the data; none: as the codec's was measured
    _s: float  # deviation of the data, set by build
    _n: float  # scale of the noise, set by build

    def build(self, ctx: Any) -> "EDMLoss":
        built = self.model_copy()
        built._s = known_deviation(ctx.run, self.sigma_data)
        built._n = ctx.run.flow.noise_scale
        return built

    def __call__(self, t: "Tensor") -> "Tensor":
        """t^2 / s^2 + (1 - t)^2 / n^2."""
        return (t / self._s).square() + ((1 - t) / self._n).square()


# --------------------------------------------------------------------------------------------------
# Guidance: away from a weaker prediction. A guide asks the denoiser for velocities and combines
# them.


class TwoPassGuide(slots.GuideFiller):
    """v = v_weak + w (v_strong - v_weak), w the scale. The strong pass has the prompt and every
    token; a subclass says what the weak one sees."""

    scale: Guidance

    def __call__(self, denoise: "Denoise", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """v = v_weak + w (v_strong - v_weak); w = 1 asks once."""
        if self.scale == 1:
            return denoise(x_t, t, True)
        strong, weak = self.velocities(denoise, x_t, t)
        return weak + self.scale * (strong - weak)

    def velocities(
        self, denoise: "Denoise", x_t: "Tensor", t: "Tensor"
    ) -> tuple["Tensor", "Tensor"]:
        """v_strong and v_weak."""
        raise NotImplementedError


class CFG(TwoPassGuide):
    """Classifier-free guidance: away from the empty prompt.  arXiv:2207.12598"""

    kind = "cfg"

    def velocities(
        self, denoise: "Denoise", x_t: "Tensor", t: "Tensor"
    ) -> tuple["Tensor", "Tensor"]:
        return denoise.with_and_without(x_t, t)


class RoutedGuide(TwoPassGuide):
    """Away from the same prompt with the tokens routed as in training.  arXiv:2501.04765"""

    kind = "routed"

    def missing(self, run: RunSpec) -> str | None:
        tokens = run.tokens
        if route_of(run).kept(tokens) < tokens:
            return None
        return (
            "no block of the model was trained to see fewer tokens: model.route drops none; add"
            " tread or sprint"
        )

    def velocities(
        self, denoise: "Denoise", x_t: "Tensor", t: "Tensor"
    ) -> tuple["Tensor", "Tensor"]:
        return denoise(x_t, t, True), denoise(x_t, t, True, "routed")


class PathDropGuide(TwoPassGuide):
    """Away from the empty prompt through the short path, which leaves the routed span out and costs
    a fraction of a full pass.  arXiv:2510.21986"""

    kind = "path_drop"

    def missing(self, run: RunSpec) -> str | None:
        if not route_of(run).fuses:
            return (
                "the model has no path around its middle blocks: model.route fuses nothing; add"
                " sprint"
            )
        if not any(getattr(phase.run.model.route, "path_drop", 0.0) for phase in phases(run)):
            return "the short path is never trained alone: model.route.path_drop is 0"
        return None

    def velocities(
        self, denoise: "Denoise", x_t: "Tensor", t: "Tensor"
    ) -> tuple["Tensor", "Tensor"]:
        return denoise(x_t, t, True), denoise(x_t, t, False, "short")


class CorrectedCFG(slots.GuideFiller):
    """Classifier-free guidance on a model that learned with a contrastive term, whose stretch of
    the velocity is undone.  arXiv:2506.05350"""

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

    def build(self, ctx: Any) -> "CorrectedGuide":
        super().build(ctx)  # refuses a run that lacks something
        run: RunSpec = ctx.run
        weight = self.stretch(run) if self.weight is None else self.weight
        mean = _mean_latent(run.data.source, run.encode.codec, run.data.size)
        return CorrectedGuide(
            CFG(scale=self.scale), weight or 0.0, mean, run.flow.predict.build(ctx)
        )


@dataclass(frozen=True)
class CorrectedGuide:
    """v <- (1 - lambda) v + lambda u_mean, after guidance away from the empty prompt.

    A contrastive term of weight lambda asks for (u - lambda u_mean) / (1 - lambda), which this
    undoes. Guidance sums its two velocities with weights that add up to one: it does not matter
    whether they are put right before or after it. u_mean is the mean of u = eps - x0 over samples
    that know nothing of this one: that of the mean picture without noise, at any t.
    """

    guide: CFG
    weight: float  # lambda
    mean: "Tensor"  # (C, h, w) latent
    predict: slots.PredictFiller

    def __call__(self, denoise: "Denoise", x_t: "Tensor", t: "Tensor") -> "Tensor":
        return self.corrected(self.guide(denoise, x_t, t), x_t, t)

    def corrected(self, stretched: "Tensor", x_t: "Tensor", t: "Tensor") -> "Tensor":
        """v + lambda (u_mean - v)."""
        return stretched + self.weight * (self.mean_velocity(x_t, t) - stretched)

    def mean_velocity(self, x_t: "Tensor", t: "Tensor") -> "Tensor":
        """u_mean (B, C, h, w) at every sample's time; pictures of another size have the mean
        resized."""
        from torch.nn import functional as F

        mean = self.mean.to(x_t)[None]
        if mean.shape[-2:] != x_t.shape[-2:]:
            mean = F.interpolate(mean, size=x_t.shape[-2:], mode="bilinear", align_corners=False)
        x0 = mean.expand_as(x_t)
        eps = x_t.new_zeros(x_t.shape)
        return self.predict.to_v(self.predict.ideal(x0, eps, t), mix(x0, eps, t), t)


MEAN_OVER = 256  # pictures: their mean errs by a sixteenth of one picture's deviation


@cache
def _mean_latent(source: slots.SourceFiller, codec: slots.CodecFiller, size: int) -> "Tensor":
    """(C, h, w), place by place, over the first pictures of a source."""
    import torch

    pictures = torch.from_numpy(source.glimpse(size, MEAN_OVER))
    with torch.no_grad():
        return codec.build(None).encode(pictures.float() / 127.5 - 1).mean(0)


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
