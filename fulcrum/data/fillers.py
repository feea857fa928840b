"""Records of the data seams: sources and caption choosers."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from fulcrum.spec import seam

Style = Literal["long", "medium", "short"]


class World(seam.Source):
    """The embedded world: captioned scenes, made on the spot, the same everywhere."""

    kind: ClassVar[str] = "world"
    domain: Literal["synthetic", "real"] = "real"
    split: Literal["train", "validation", "reference", "curated"] = "train"
    count: Annotated[int, Field(ge=1, le=1_000_000_000)] = 16_384    # distinct scenes
    max_objects: Literal[1, 2, 3] = 3

    def build(self, ctx: Any) -> Any:
        from fulcrum.data.source import WorldSource
        return WorldSource(split=self.split, domain=self.domain, size=ctx.run.data.size, count=self.count,
                           max_objects=self.max_objects)

    def hashes(self) -> dict[str, str]:
        from fulcrum.data.world.vocabulary import WORLD_VERSION
        return {"world": str(WORLD_VERSION)}


class OneStyle(seam.Caption):
    """Every sample gets the caption of one length."""

    kind: ClassVar[str] = "captions"
    style: Style = "long"

    def build(self, ctx: Any) -> Any:
        from fulcrum.data.caption import Chooser
        return Chooser((self.style,), (1.0,))


class MixedStyles(seam.Caption):
    """Each sample gets one length, chosen by weight."""

    kind: ClassVar[str] = "mixed_captions"
    long: float = 0.5
    medium: float = 0.0
    short: float = 0.5

    @field_validator("long", "medium", "short")
    @classmethod
    def _weight(cls, value: float) -> float:
        if value < 0:
            raise ValueError(f"a weight cannot be negative, found {value}")
        return value

    def build(self, ctx: Any) -> Any:
        from fulcrum.data.caption import Chooser
        return Chooser(("long", "medium", "short"), (self.long, self.medium, self.short))


FILLERS = (World, OneStyle, MixedStyles)
