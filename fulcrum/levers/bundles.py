"""Bundles: several levers under one name. They say so: an arm that uses one is a compound, its effect belongs to all."""

from typing import ClassVar

from fulcrum.levers.base import Bundle, Card, Lever
from fulcrum.levers.bottleneck import Bottleneck
from fulcrum.levers.pixels import UsePixels
from fulcrum.levers.x_prediction import PredictX


class JiT(Bundle):
    name: ClassVar[str] = "jit"
    card: ClassVar[Card] = Card(says="no codec: pixels, a clean-picture prediction and a narrow way in, as JiT has it")

    def parts(self) -> tuple[Lever, ...]:
        return (UsePixels(), PredictX(), Bottleneck())


BUNDLES: tuple[type[Bundle], ...] = (JiT,)
