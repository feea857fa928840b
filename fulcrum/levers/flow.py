"""Levers of the flow: times, prediction targets, loss weights and contrastive flow matching."""

from typing import Annotated

from fulcrum.levers.base import Built, Card, Lever, Swap
from fulcrum.levers.published import claim
from fulcrum.spec.edit import put, put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Factor, Share, Within
from fulcrum.spec.run import RunSpec
from fulcrum.spec.slots import TimeFiller, WeightFiller
from fulcrum.training.flow.fillers import (
    EDMLoss,
    EDMNoise,
    Location,
    LogitNormal,
    MinSNR,
    Preconditioned,
    ShiftedTimes,
    Spread,
    UniformTime,
    XPrediction,
    data_deviation,
)
from fulcrum.training.loss.fillers import Contrastive

# --------------------------------------------------------------------------------------------------
# When a lever of EDM cannot know the deviation of what the denoiser sees, said when the phrase is
# read.


LOOKED_AT = 64  # pictures


def unmeasured(run: RunSpec, sigma_data: float | None) -> str | None:
    """Why `sigma_data` must be given, with what the first pictures have where they can be had;
    None: it is known."""
    if data_deviation(run, sigma_data) is not None:
        return None
    pictures = (
        run.data.source.glimpse(run.data.size, LOOKED_AT) if run.encode.codec.stride == 1 else None
    )
    measured = (
        ""
        if pictures is None
        else f" (the first {len(pictures)} pictures have {pictures.std() / 127.5:.2f})"
    )
    return (
        f"nobody has measured the deviation of what {run.encode.codec.kind} gives of these"
        f" pictures{measured}: write it as sigma_data=..., so that it stands in the run"
    )


# --------------------------------------------------------------------------------------------------
# What the witnesses of times and loss weights look at: what the built run draws and counts.


def draws_from(built: Built, time: TimeFiller) -> bool:
    """Return whether the last step's times are those that this law makes of its uniform numbers. A
    stage before it may have other times."""
    import numpy as np

    from fulcrum.training.flow import noise

    last = built.run.budget.images - built.run.budget.batch
    t = built.feed.at(last)[1].t.cpu()
    u = noise.uniform(built.seed, "t", np.arange(last, last + len(t)))[:, 0]
    return bool(t.equal(time.build(built)(u)))


def weighs_by(built: Built, weight: WeightFiller) -> bool:
    """Return whether flow matching counts the first step's times by this weight."""
    t = built.feed.at(0)[1].t.cpu()
    counted = built.step.terms["flow_matching"].weight(t)
    return bool(counted.equal(weight.build(built)(t)))


# --------------------------------------------------------------------------------------------------
# EDM's noise law: the logarithm of the noise level is normal, as published with mean -1.2 and
# deviation 1.2.
#
# ln sigma ~ N(-1.2, 1.2) for data of deviation 0.5; sigma / 0.5 = n t / ((1 - t) s) for ours, s the
# data's deviation and n the noise's scale, so that a level destroys as much of the picture as it
# did there.  arXiv:2206.00364


class UseEDMNoise(Swap):
    name = "edm_noise"
    slot, filler = "flow.time", EDMNoise
    card = Card(
        says=(
            "times from EDM's log-normal noise levels: most of the budget at low noise (published"
            " for CIFAR-10 and ImageNet-64 in pixels, with EDM's preconditioning and loss weight;"
            " SD3 ranked edm(-1.2, 1.2) far behind logit-normal times on latents)"
        ),
        train_only=True,
        warns=(
            "no share of the times is uniform and none is shifted: the law is EDM's whole; sampling"
            " keeps the run's grid"
        ),
    )

    def needs(self, run: RunSpec) -> str | None:
        if not isinstance(run.flow.time, EDMNoise):
            return f"something else chose the times: {run.flow.time}"
        return unmeasured(run, self.sigma_data)

    def witness(self, built: Built) -> bool:
        return draws_from(built, self.made())


# --------------------------------------------------------------------------------------------------
# EDM preconditioning: what the network sees and what it gives have unit variance at every time.
# arXiv:2206.00364
#
# x_t ── x c_in ──► network ──► F ── x c_out ──┬──► x0
#   └───────────────── x c_skip ───────────────┘
#
# c_in, c_skip, c_out of sigma = n t / (1 - t), n the noise's scale


class EDMPrecondition(Swap):
    name = "edm_precondition"
    slot, filler = "flow.predict", Preconditioned
    card = Card(
        says=(
            "inputs and targets of unit variance at every time; the loss stays on the velocity, its"
            " times and weights are the run's (published for small pixel pictures, with EDM's own"
            " noise law and loss weight beside it)"
        ),
        warns=(
            "sigma_data is the spread of what the denoiser sees, as the codec's card or the world's"
            " pixels give it"
        ),
    )

    def needs(self, run: RunSpec) -> str | None:
        predict = run.flow.predict
        if not isinstance(predict, Preconditioned):
            return f"the network's output means something else here: {predict}"
        return unmeasured(run, self.sigma_data)

    def witness(self, built: Built) -> bool:
        """The network sees the noisy picture as this preconditioning scales it."""
        batch, draw = built.feed.at(0)
        seen = built.step.predict.inputs(batch.x0, draw.t)
        return bool(seen.equal(self.made().build(built).inputs(batch.x0, draw.t)))


# --------------------------------------------------------------------------------------------------
# EDM's loss weight: every noise level counts as much as its preconditioned output errs.
# arXiv:2206.00364
#
# (sigma^2 + s^2) / (sigma s)^2 on the error of x0; on that of v, with sigma = n t / (1 - t): t^2 /
# s^2 + (1 - t)^2 / n^2


class UseEDMWeight(Swap):
    name = "edm_weight"
    slot, filler = "flow.weight", EDMLoss
    card = Card(
        says=(
            "the middle of the path counts about half of both ends (published for small pixel"
            " pictures, with EDM's preconditioning and noise law beside it)"
        ),
        train_only=True,
        warns="the loss is on another scale than the baseline's",
    )

    def needs(self, run: RunSpec) -> str | None:
        return unmeasured(run, self.sigma_data)

    def witness(self, built: Built) -> bool:
        return weighs_by(built, self.made())


# --------------------------------------------------------------------------------------------------
# Logit-normal time: where the times lie and how far they spread, SD3's rf/lognorm(m, s).
# arXiv:2403.03206
#
# t = sigmoid(mean + deviation z), z standard normal; t = 1 is noise here as in SD3


SETTINGS = ("mean", "deviation", "uniform_share", "shift")


class PlacedTimes(Lever):
    mean: Location = 0.5  # above zero = more noise
    deviation: Spread = 0.6
    uniform_share: Share | None = None  # none: the run's own
    shift: Factor | None = None  # of the times, not of the sampler; none: the run's own

    name = "logit_normal_time"
    touches = tuple(f"flow.time.{setting}" for setting in SETTINGS)
    card = Card(
        says=(
            "the budget goes to a chosen band of noise levels; SD3 tried such bands on latents of"
            " 256 px and ranked rf/lognorm(0, 1), which is the recipes' own, before (1, 0.6) and"
            " (0.5, 0.6)"
        ),
        train_only=True,
        warns=(
            "SD3's mixture has no uniform part, and the recipes' keep their tenth unless"
            " uniform_share=0 is written; a shift of k adds ln k to the mean"
        ),
    )

    def _asked(self) -> list[tuple[str, float]]:
        """What it sets; what is none stays the run's own."""
        values = ((setting, getattr(self, setting)) for setting in SETTINGS)
        return [(f"flow.time.{setting}", value) for setting, value in values if value is not None]

    def edit(self, run: RunSpec) -> RunSpec:
        if not isinstance(run.flow.time, LogitNormal):
            raise BadInput(
                f"'{self.name}' places logit-normal times, and flow.time is {run.flow.time}"
            )
        return put_all(run, self._asked())

    def needs(self, run: RunSpec) -> str | None:
        time = run.flow.time
        if not isinstance(time, LogitNormal):
            return f"it places logit-normal times, and flow.time is {time}"
        return (
            "all times are uniform (uniform_share=1): none is left to be placed"
            if time.uniform_share == 1
            else None
        )

    def witness(self, built: Built) -> bool:
        return draws_from(built, self.edit(built.run).flow.time)


# --------------------------------------------------------------------------------------------------
# Min-SNR weighting: times near the data, which are easy and many, count less.  arXiv:2303.09556
#
# weight of (v - u)^2 at t = min((1 - t)^2 / n^2, gamma t^2), from min(SNR, gamma) on the error of
# x0, with noise of scale n and SNR = (1 - t)^2 / (n t)^2


class UseMinSNR(Swap):
    name = "min_snr"
    slot, filler = "flow.weight", MinSNR
    card = Card(
        says=(
            "times count by their signal-to-noise ratio, capped: both ends of the path lose weight"
            " (published for class-conditional diffusion on a cosine schedule with gamma 5, never"
            " on this path)"
        ),
        train_only=True,
        warns="pure noise (t = 1) counts nothing; the loss is on another scale than the baseline's",
    )

    def witness(self, built: Built) -> bool:
        return weighs_by(built, self.made())


# --------------------------------------------------------------------------------------------------
# Shifted time: training and sampling move towards noise, as larger pictures need.  arXiv:2403.03206
#
# S_k(t) = k t / (1 + (k - 1) t), on the times (the uniform part of a mixture stays) and on the
# sampler's grid


class ShiftedTime(Lever):
    #: the published value for pixels at 1024; above 1 = more noise
    k: Annotated[float, Within("(0, 100]")] = 3.0

    name = "shifted_time"
    touches = ("flow.time.shift", "sample.shift")
    card = Card(
        says=(
            "more of the budget and of the sampling steps at high noise, where the composition is"
            " decided"
        ),
        warns=(
            "the sampler's grid moves with the times: its pictures are drawn with another sampler"
            " than the baseline's"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        time = run.flow.time
        if isinstance(time, ShiftedTimes) and time.shift == run.sample.shift == self.k:
            raise BadInput(
                f"'shifted_time' would change nothing: times and sampler are shifted by {self.k:g}"
                " already",
                "choose another k, or leave it out",
            )
        if isinstance(time, ShiftedTimes):  # other times have no shift: `needs` says so
            run = put(run, "flow.time.shift", self.k)
        return put(run, "sample.shift", self.k)

    def needs(self, run: RunSpec) -> str | None:
        time = run.flow.time
        return (
            None
            if isinstance(time, ShiftedTimes)
            else f"it shifts times, and flow.time has no shift: {time}"
        )

    def witness(self, built: Built) -> bool:
        shifted = built.run.flow.time.model_copy(update={"shift": self.k})
        return built.run.sample.shift == self.k and draws_from(built, shifted)


# --------------------------------------------------------------------------------------------------
# Uniform time: every time is trained equally often, instead of mostly the middle; the run's shift
# stays.


class UseUniformTime(Swap):
    name = "uniform_time"
    slot, filler, settings = "flow.time", UniformTime, ()
    card = Card(
        says=(
            "times spread evenly, then shifted as the run's own: both ends get more of the budget,"
            " the middle less (named by the articles beside the logit-normal law of SD3,"
            " arXiv:2403.03206; no number was given)"
        ),
        train_only=True,
    )

    def edit(self, run: RunSpec) -> RunSpec:
        time = run.flow.time
        kept = {"shift": time.shift, "scale": time.scale} if isinstance(time, ShiftedTimes) else {}
        return put(run, self.slot, UniformTime(**kept))

    def needs(self, run: RunSpec) -> str | None:
        return (
            None
            if isinstance(run.flow.time, UniformTime)
            else f"something else chose the times: {run.flow.time}"
        )

    def witness(self, built: Built) -> bool:
        return draws_from(built, self.edit(built.run).flow.time)


# --------------------------------------------------------------------------------------------------
# x-prediction: the network gives the clean picture, and the velocity is computed from it.
# arXiv:2511.13720
#
# v = (x_t - x) / max(t, floor): the loss is still on v, the sampler divides in the same way


class PredictX(Swap):
    name = "x_prediction"
    slot, filler = "flow.predict", XPrediction
    card = Card(
        says=(
            "the network predicts the clean picture; needed where a patch is wider than the"
            " network, a choice elsewhere"
        ),
        claims=(
            claim("fid", -1.40, note="CMMD and DINO-MMD were worse in the same run"),
            claim("cmmd", +0.13),
            claim("dino_mmd", +0.10),
        ),
        warns="another objective: validation losses are not comparable with the baseline's",
    )

    def needs(self, run: RunSpec) -> str | None:
        predict = run.flow.predict
        return (
            None
            if isinstance(predict, XPrediction)
            else f"the network's output means something else here: {predict}"
        )

    def witness(self, built: Built) -> bool:
        batch, draw = built.feed.at(0)
        picture = built.step.predict.to_x(batch.x0, draw.eps, draw.t)
        return bool((picture == batch.x0).all())  # the output is the picture, whatever x_t was


# --------------------------------------------------------------------------------------------------
# Contrastive flow matching: a sample's velocity is pushed away from that of another sample.
# arXiv:2506.05350
#
# loss = mean (v_b - u_b)^2 - weight mean (v_b - u_pi(b))^2, pi one round inside each chunk of the
# batch


class ContrastiveFlow(Swap):
    name = "contrastive_flow"
    slot, filler = "terms.contrastive", Contrastive
    card = Card(
        says=(
            "velocities of different samples are told apart (published by its authors for"
            " class-conditional ImageNet and for CC3M with lambda 0.05; the numbers here are of a"
            " text-to-image model, drawn without their correction)"
        ),
        claims=(
            claim("fid", +1.83),
            claim("cmmd", -0.01),
            claim("dino_mmd", -0.03),
        ),
        train_only=True,
        warns=(
            "on average it asks for (u - weight * mean u) / (1 - weight): the velocity is"
            " stretched, and the validation loss is higher by design; its authors undo the stretch"
            " when they draw with guidance, which is a decision of its own here, of sample.guide"
        ),
    )

    def needs(self, run: RunSpec) -> str | None:
        if self.chunk == 1:
            return "a chunk of 1 has no other sample to compare with"
        if run.budget.batch % self.chunk:
            return (
                f"it compares chunks of {self.chunk}, but a batch of {run.budget.batch} is no"
                " multiple of that"
            )
        flow = next((term.weight for term in run.terms if term.name == "flow_matching"), 0.0)
        if flow <= self.weight:
            return (
                f"its weight {self.weight:g} must stay below that of flow_matching, {flow:g}, or"
                " the loss has no minimum"
            )
        return None

    def witness(self, built: Built) -> bool:
        import torch

        weights = built.weights(0)
        if "contrastive" not in weights:
            return False
        with torch.no_grad():
            losses = built.step(*built.feed.at(0), weights)
        return bool(losses.parts["contrastive"] < 0)  # it found others to be apart from
