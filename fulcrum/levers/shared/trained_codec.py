"""What the levers that train the codec with the denoiser share: the codec, its terms, what it costs, and a witness."""

from typing import Any, ClassVar

from fulcrum.levers.base import Built, Cost, Lever
from fulcrum.networks.codec_flops import codec_parameters, tuning_flops
from fulcrum.networks.fillers import KL, TunedKL
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.record import Factor, Fraction
from fulcrum.spec.run import RunSpec


class TrainedCodec(Lever):
    """A lever whose run goes on training its embedded codec; a subclass says by which terms."""

    half_life: Fraction = 0.02  # of the latents' running statistics, share of the budget
    lr_ratio: Factor = 0.03  # of the codec's learning rate to the run's; see the card

    sampled: ClassVar[bool]  # is the denoiser shown a sample of the posterior, or its mean?

    def terms(self) -> tuple[Any, ...]:
        """The terms that train the codec."""
        raise BadInput(f"{type(self).__name__} defines no `terms`")

    def edit(self, run: RunSpec) -> RunSpec:
        codec = run.encode.codec
        if not isinstance(codec, KL):
            raise BadInput(f"'{self.name}' trains an embedded codec, and this run has '{codec.kind}'")
        tuned = TunedKL(
            channels=codec.channels,
            asset=codec.asset,
            half_life=self.half_life,
            lr_ratio=self.lr_ratio,
            sampled=self.sampled,
        )
        run = put(run, "encode.codec", tuned)
        for term in self.terms():
            run = put(run, f"terms.{term.name}", term)
        return run

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        if not isinstance(codec, TunedKL):
            return f"something else replaced the codec by {codec}"
        problems = (term.problem(run) for term in self.terms() if hasattr(term, "problem"))
        return next(filter(None, problems), None)

    def cost(self, run: RunSpec) -> Cost:
        """Against the run with the terms that it has already."""
        edited, terms = self.edit(run), self.terms()
        asset = edited.encode.codec.asset  # type: ignore[attr-defined]
        before = denoiser_training_flops(run) + sum(term.flops(run) for term in run.terms if hasattr(term, "flops"))
        more = tuning_flops(edited, asset) + sum(term.flops(edited) for term in terms if hasattr(term, "flops"))
        learned = codec_parameters(asset) + sum(term.parameters(edited) for term in terms if hasattr(term, "parameters"))
        share = learned / (parameters(run) + sum(term.parameters(run) for term in run.terms if hasattr(term, "parameters")))
        return Cost(flops=1 + more / before, memory=1 + share, parameters=1 + share)

    def witness(self, built: Built) -> bool:
        """Its terms are on, they are its own, and the codec gets gradients."""
        codec, on = built.step.codec, {term.name for term in self.terms()} <= built.weights(0).keys()
        return bool(codec is not None and on and all(weight.requires_grad for weight in codec.parameters()))
