"""Records of the flow's fillers; their torch code is imported when they are built."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from fulcrum.spec import seam
from fulcrum.spec.record import Fraction, Positive, Share


class LogitNormal(seam.Time):
    """Most times from sigmoid(N(0,1)), shifted; a share uniform, so that both ends are seen."""

    kind: ClassVar[str] = "logit_normal"
    uniform_share: Share = 0.1
    shift: Positive = 1.0

    def build(self, ctx: Any) -> Any:
        from fulcrum.flow.time import LogitNormalTime
        return LogitNormalTime(self.uniform_share, self.shift)


class UniformTime(seam.Time):
    kind: ClassVar[str] = "uniform"

    def build(self, ctx: Any) -> Any:
        from fulcrum.flow.time import LogitNormalTime
        return LogitNormalTime(uniform_share=1.0, k=1.0)


class Velocity(seam.Predict):
    kind: ClassVar[str] = "velocity"

    def build(self, ctx: Any) -> Any:
        from fulcrum.flow.predict import VelocityPrediction
        return VelocityPrediction()


class XPrediction(seam.Predict):
    kind: ClassVar[str] = "x"
    floor: Fraction = 0.05                                   # t below this counts as this, or the loss explodes at t = 0

    def build(self, ctx: Any) -> Any:
        from fulcrum.flow.predict import CleanPrediction
        return CleanPrediction(self.floor)


class EvenWeight(seam.Weight):
    kind: ClassVar[str] = "even"

    def build(self, ctx: Any) -> Any:
        from fulcrum.flow.time import even
        return even


class CFG(seam.Guide):
    """Classifier-free guidance: away from the empty prompt."""

    kind: ClassVar[str] = "cfg"
    scale: Annotated[float, Field(gt=0.0, le=100.0)]

    def build(self, ctx: Any) -> Any:
        from fulcrum.flow.guide import ClassifierFree
        return ClassifierFree(self.scale)


FILLERS = (LogitNormal, UniformTime, Velocity, XPrediction, EvenWeight, CFG)
