"""Bundles: several levers under one name. They say so: an arm that uses one is a compound, its effect belongs to all."""

from fulcrum.levers.aligned_codec import AlignedCodec
from fulcrum.levers.base import Bundle, Card, Lever
from fulcrum.levers.bottleneck import Bottleneck
from fulcrum.levers.ema import UseEMA
from fulcrum.levers.lpips import UseLPIPS
from fulcrum.levers.muon import UseMuon
from fulcrum.levers.perceptual_features import UsePerceptualFeatures
from fulcrum.levers.pixels import UsePixels
from fulcrum.levers.repa import Repa
from fulcrum.levers.resolution_ladder import ResolutionLadder
from fulcrum.levers.sft_stage import SFTStage
from fulcrum.levers.synthetic_then_real import SyntheticThenReal
from fulcrum.levers.tread import Tread
from fulcrum.levers.x_prediction import PredictX
from fulcrum.spec.record import Fraction


class JiT(Bundle):
    name = "jit"
    card = Card(says="no codec: pixels, a clean-picture prediction and a narrow way in, as JiT has it")

    def parts(self) -> tuple[Lever, ...]:
        return (UsePixels(), PredictX(), Bottleneck())


class Speedrun(Bundle):
    until: Fraction = 0.9  # share of the images at the smaller size, with alignment

    name = "speedrun"
    card = Card(
        says="the stack of the published 24-hour run: pixels, x-prediction and bottleneck; half the size first, with "
        "alignment; half of the tokens routed; perceptual terms; Muon; EMA"
    )

    def parts(self) -> tuple[Lever, ...]:
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


class PRXRecipe(Bundle):
    name = "prx_recipe"
    card = Card(
        says="what the published ablations recommend together on a latent baseline: an aligned tokenizer, alignment for "
        "the first half, Muon, an average of the weights, synthetic pictures before real ones, a curated end",
        warns="never measured as a whole in public; long captions and fp32 storage are the baseline's already",
    )

    def parts(self) -> tuple[Lever, ...]:
        return (AlignedCodec(), Repa(until=0.5), UseMuon(), UseEMA(), SyntheticThenReal(), SFTStage())


BUNDLES: tuple[type[Bundle], ...] = (JiT, Speedrun, PRXRecipe)
