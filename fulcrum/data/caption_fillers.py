"""Records of what chooses the caption of a sample."""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from fulcrum.spec import slots as seam
from fulcrum.spec.record import Within

Style = Literal["long", "medium", "short"]
Weight = Annotated[float, Within("[0, 1000]")]  # of a length among others

# Tokens of a caption on average, the start counted, by most objects in a scene: for costs, from 6,000 scenes (a test
# counts again).
TOKENS: dict[int, dict[str, float]] = {
    1: {"long": 19.9, "medium": 10.7, "short": 6.0},
    2: {"long": 24.2, "medium": 13.9, "short": 6.6},
    3: {"long": 26.8, "medium": 15.7, "short": 6.7},
}


class OneStyle(seam.CaptionFiller):
    """Every sample gets the caption of one length."""

    kind: ClassVar[str] = "captions"
    style: Style = "long"

    def caption_names(self) -> tuple[str, ...]:
        return (self.style,)

    def tokens(self, max_objects: int) -> float:
        return TOKENS[max_objects][self.style]

    def build(self, ctx: Any) -> Any:
        from fulcrum.data.caption import Chooser

        return Chooser((self.style,), (1.0,))


class MixedStyles(seam.CaptionFiller):
    """A sample gets one length whenever it is read, chosen by weight."""

    kind: ClassVar[str] = "mixed_captions"
    long: Weight = 0.5
    medium: Weight = 0.25
    short: Weight = 0.25

    @model_validator(mode="after")
    def _some(self) -> "MixedStyles":
        if self.long + self.medium + self.short <= 0:
            raise ValueError("at least one style needs a weight above zero")
        return self

    def caption_names(self) -> tuple[str, ...]:
        return tuple(style for style in get_args(Style) if getattr(self, style) > 0)

    def tokens(self, max_objects: int) -> float:
        tokens = TOKENS[max_objects]
        weighed = self.long * tokens["long"] + self.medium * tokens["medium"] + self.short * tokens["short"]
        return weighed / (self.long + self.medium + self.short)

    def build(self, ctx: Any) -> Any:
        from fulcrum.data.caption import Chooser

        return Chooser(("long", "medium", "short"), (self.long, self.medium, self.short))


class NamedCaptions(seam.CaptionFiller):
    """Captions of the user's own pictures by name, one whenever a sample is read, chosen by weight."""

    kind: ClassVar[str] = "named_captions"
    names: Annotated[tuple[str, ...], Field(min_length=1)]
    weights: tuple[Annotated[float, Field(ge=0.0)], ...] = ()  # none: all alike

    @model_validator(mode="after")
    def _paired(self) -> "NamedCaptions":
        if self.weights and (len(self.names) != len(self.weights) or sum(self.weights) <= 0):
            raise ValueError(f"one weight per name, not all zero: found {len(self.names)} names and {self.weights}")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"a caption is named twice in {self.names}")
        return self

    def caption_names(self) -> tuple[str, ...]:
        weights = self.weights or (1.0,) * len(self.names)
        return tuple(name for name, weight in zip(self.names, weights, strict=True) if weight)

    def build(self, ctx: Any) -> Any:
        from fulcrum.data.caption import NamedChooser

        return NamedChooser(self.names, self.weights or (1.0,) * len(self.names))
