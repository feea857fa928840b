"""Bundles: several levers under one name. They say so: an arm that uses one is a compound, its
effect belongs to all."""

from fulcrum.levers.alignment import Repa
from fulcrum.levers.base import Bundle, Card, Lever
from fulcrum.levers.captions import MixedCaptions
from fulcrum.levers.codecs import AlignedCodec, UsePixels
from fulcrum.levers.flow import EDMPrecondition, PlacedTimes, PredictX, UseEDMNoise, UseEDMWeight
from fulcrum.levers.model import Bottleneck
from fulcrum.levers.optim import UseEMA, UseMuon
from fulcrum.levers.perceptual import UseLPIPS, UsePerceptualFeatures
from fulcrum.levers.routing import Tread
from fulcrum.levers.stages import ResolutionLadder, SFTStage, SyntheticThenReal
from fulcrum.spec.phrase import Staged
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec

# of a picture in the published speed run: 512 px in patches of 32, and 1,024 at its end
FEWEST_TOKENS = 256


class JiT(Bundle):
    """arXiv:2511.13720. There t = 1 is data and t = sigmoid(N(-0.8, 0.8)): our 1 - t has a mean of
    0.8."""

    name = "jit"
    card = Card(
        says=(
            "no codec: pixels, a clean-picture prediction, a narrow way in and times with a median"
            " noise level of 0.69, as JiT has them (class-conditional ImageNet at 256 px, patch 16,"
            " noise of scale 1)"
        ),
        warns=(
            "JiT's transformer, its in-context class tokens and its Heun sampler are not part of it"
        ),
    )

    def parts(self) -> tuple[Lever | Staged, ...]:
        times = PlacedTimes(mean=0.8, deviation=0.8, uniform_share=0.0, shift=1.0)
        return (UsePixels(), PredictX(), Bottleneck(), times)


class EDM(Bundle):
    name = "edm"
    card = Card(
        says=(
            "the objective of EDM: its preconditioning, noise law and loss weight together"
            " (arXiv:2206.00364, CIFAR-10 and ImageNet-64 in pixels)"
        ),
        warns="its sampler, augmentation and network are not part of it",
    )

    def parts(self) -> tuple[Lever | Staged, ...]:
        return (EDMPrecondition(), UseEDMNoise(), UseEDMWeight())


class Speedrun(Bundle):
    until: Fraction = 0.9  # share of the images at the smaller size, with alignment

    name = "speedrun"
    card = Card(
        says=(
            "the stack of the published 24-hour run: pixels, x-prediction and bottleneck; half the"
            " size first, with alignment; half of the tokens routed; perceptual terms; Muon; EMA"
            " (PRX Part 3: 512 px for 100k steps, then 1024 px for 20k, 1.2 B parameters; the stack"
            " was never ablated)"
        ),
        warns=(
            f"refused below {FEWEST_TOKENS} tokens at the run's own size, the fewest that the"
            " published run ever routed"
        ),
    )

    def parts(self) -> tuple[Lever | Staged, ...]:
        return (
            UsePixels(),
            PredictX(),
            Bottleneck(),
            ResolutionLadder(until=self.until),
            Repa(until=self.until),
            Tread(),
            UseLPIPS(),
            UsePerceptualFeatures(),
            UseMuon(),
            UseEMA(),
        )

    def needs(self, run: RunSpec) -> str | None:
        if run.tokens >= FEWEST_TOKENS:
            return None
        return (
            f"the run has {run.tokens} tokens, and the published run had {FEWEST_TOKENS} (512 px),"
            " then 1,024: routing pays with many tokens only (TREAD alone: FID -3.32 at 1,024"
            " tokens, +3.41 at 256); take larger pictures, such as --set data.size=128 with tokens"
            " of 8 px"
        )


class PRXRecipe(Bundle):
    name = "prx_recipe"
    card = Card(
        says=(
            "what the published ablations recommend together on a latent baseline: an aligned"
            " tokenizer, alignment for the first half, Muon, an average of the weights, synthetic"
            " pictures before real ones, long captions before mixed lengths, a curated end"
        ),
        warns=(
            "never measured as a whole in public; long captions and fp32 storage are the baseline's"
            " already"
        ),
    )

    def parts(self) -> tuple[Lever | Staged, ...]:
        mixed = Staged(MixedCaptions(), 0.5, 1.0)
        return (
            AlignedCodec(),
            Repa(until=0.5),
            UseMuon(),
            UseEMA(),
            SyntheticThenReal(),
            mixed,
            SFTStage(),
        )


BUNDLES: tuple[type[Bundle], ...] = (JiT, EDM, Speedrun, PRXRecipe)
