"""Fillers of the data slots: sources and caption choosers."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from fulcrum.files.paths import at_home
from fulcrum.spec import slots
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Fraction, Share, Within

# --------------------------------------------------------------------------------------------------
# Records of what chooses the caption of a sample.


Style = Literal["long", "medium", "short"]
Weight = Annotated[float, Within("[0, 1000]")]  # of a length among others

# Tokens of a caption on average, the start counted, by most objects in a scene: for costs, from
# 6,000 scenes (a test counts again).
TOKENS: dict[int, dict[str, float]] = {
    1: {"long": 19.9, "medium": 10.7, "short": 6.0},
    2: {"long": 24.2, "medium": 13.9, "short": 6.6},
    3: {"long": 26.8, "medium": 15.7, "short": 6.7},
}


class OneStyle(slots.CaptionFiller):
    """Every sample gets the caption of one length."""

    kind: ClassVar[str] = "captions"
    style: Style = "long"

    def caption_names(self) -> tuple[str, ...]:
        return (self.style,)

    def tokens(self, max_objects: int) -> float:
        return TOKENS[max_objects][self.style]

    def build(self, ctx: slots.DataContext) -> Any:
        from fulcrum.data.captions import Chooser

        return Chooser((self.style,), (1.0,))


class MixedStyles(slots.CaptionFiller):
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
        weighed = (
            self.long * tokens["long"]
            + self.medium * tokens["medium"]
            + self.short * tokens["short"]
        )
        return weighed / (self.long + self.medium + self.short)

    def build(self, ctx: slots.DataContext) -> Any:
        from fulcrum.data.captions import Chooser

        return Chooser(("long", "medium", "short"), (self.long, self.medium, self.short))


class NamedCaptions(slots.CaptionFiller):
    """Captions of the user's own pictures by name, one whenever a sample is read, chosen by
    weight."""

    kind: ClassVar[str] = "named_captions"
    names: Annotated[tuple[str, ...], Field(min_length=1)]
    weights: tuple[Annotated[float, Field(ge=0.0)], ...] = ()  # none: all alike

    @model_validator(mode="after")
    def _paired(self) -> "NamedCaptions":
        if self.weights and (len(self.names) != len(self.weights) or sum(self.weights) <= 0):
            raise ValueError(
                f"one weight per name, not all zero: found {len(self.names)} names and"
                f" {self.weights}"
            )
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"a caption is named twice in {self.names}")
        return self

    def caption_names(self) -> tuple[str, ...]:
        weights = self.weights or (1.0,) * len(self.names)
        return tuple(name for name, weight in zip(self.names, weights, strict=True) if weight)

    def build(self, ctx: slots.DataContext) -> Any:
        from fulcrum.data.captions import NamedChooser

        return NamedChooser(self.names, self.weights or (1.0,) * len(self.names))


# --------------------------------------------------------------------------------------------------
# Records of the data seams: sources of pictures.


class World(slots.SourceFiller):
    """The embedded world: captioned scenes, made on the spot, the same everywhere."""

    kind: ClassVar[str] = "world"
    is_world: ClassVar[bool] = True
    domain: Literal["synthetic", "real"] = "real"
    split: Literal["train", "validation", "reference", "curated"] = "train"
    count: Annotated[int, Field(ge=1, le=1_000_000_000)] = 16_384  # distinct scenes
    max_objects: Literal[1, 2, 3] = 3

    mislabelled: Share = 0.0  # planted: captions that describe another scene
    #: largest share of a side that is cut away, at a keyed corner
    crop: Annotated[float, Within("[0, 0.5]")] = 0.0

    def build(self, ctx: slots.DataContext) -> Any:
        from fulcrum.data.source import WorldSource

        return WorldSource(
            split=self.split,
            domain=self.domain,
            size=ctx.run.data.size,
            count=self.count,
            max_objects=self.max_objects,
            mislabelled=self.mislabelled,
            crop=self.crop,
        )

    def caption_names(self) -> tuple[str, ...]:
        return get_args(Style)

    def geometry_missing(self) -> str | None:
        return None

    def geometry_varies(self) -> bool:
        return self.crop > 0

    def pictures(self) -> int:
        return self.count

    def held_out(self, split: str, count: int) -> "World":
        """Another split of the same world to judge by: real, whole, truly captioned, unfiltered,
        whatever is trained on."""
        return World.model_validate(
            {"domain": "real", "split": split, "count": count, "max_objects": self.max_objects}
        )

    def glimpse(self, size: int, count: int) -> Any:
        """Of a filtered world too: what is dropped there is dropped for its caption."""
        import numpy as np

        from fulcrum.data.source import WorldSource

        count = min(count, self.count)
        source = WorldSource(self.split, self.domain, size, count, self.max_objects, crop=self.crop)
        return source.read(np.arange(count)).images

    def hashes(self) -> dict[str, str]:
        from fulcrum.data.world.scene import WORLD_VERSION

        return {"world": str(WORLD_VERSION)}


class Filtered(World):
    """The world without the pairs whose picture and caption fit least; `count` is before the
    filter."""

    kind: ClassVar[str] = "filtered_world"
    drop: Fraction = 0.1  # share of the pairs that goes, worst first
    asset: str = "score"  # the shipped part that scores a pair

    def build(self, ctx: slots.DataContext) -> Any:
        from fulcrum.data.mix import FilteredSource, keep_best

        inner = super().build(ctx)
        if ctx.cache is None:
            raise BadInput(
                "a filtered source cannot be built here: nothing keeps the scores of its pairs",
                "build it through a Feed, or hand over a context that has a `cache`",
            )
        chooser = ctx.run.data.caption.build(ctx)
        scores = ctx.cache.scores(inner, chooser, self.asset, ctx.say)
        return FilteredSource(inner, keep_best(scores, self.drop))

    def hashes(self) -> dict[str, str]:
        from fulcrum.files.shipped import asset_hash

        return {**super().hashes(), f"asset:{self.asset}": asset_hash(self.asset)}


class RecaptionedWorld(World):
    """The world's pictures with the captions of the shipped captioner, which looks at the pixels
    and at nothing else."""

    kind: ClassVar[str] = "recaptioned_world"
    #: words drawn by their probability: one thing is told in several ways; else the likeliest
    drawn: bool = True

    def build(self, ctx: slots.DataContext) -> Any:
        from fulcrum.data.mix import RecaptionedSource
        from fulcrum.files.shipped import asset_hash

        inner = super().build(ctx)
        if ctx.cache is None:
            raise BadInput(
                "a recaptioned source cannot be built here: nothing keeps its captions",
                "build it through a Feed, or hand over a context that has a `cache`",
            )
        names = [
            name for name in self.caption_names() if name in ctx.run.data.caption.caption_names()
        ]
        captions = {name: ctx.cache.captions(inner, name, self.drawn, ctx.say) for name in names}
        return RecaptionedSource(inner, captions, f"{asset_hash('captioner')} {self.drawn}")

    def hashes(self) -> dict[str, str]:
        from fulcrum.files.shipped import asset_hash

        return {**super().hashes(), "asset:captioner": asset_hash("captioner")}


class Folder(slots.SourceFiller):
    """The user's pictures: a folder that `fulcrum data import` wrote. The key holds what is in it,
    not where it lies."""

    kind: ClassVar[str] = "folder"
    has_scenes: ClassVar[bool] = False  # nobody knows what is to be seen where
    path: str
    split: Literal["train", "validation", "reference"] = "train"
    count: Annotated[int, Field(ge=1)] | None = None  # the first so many; none = all
    judged: str | None = None  # the folder whose held-out pictures judge; none: its own

    @field_validator("path", "judged")
    @classmethod
    def _there(cls, path: str | None) -> str | None:
        return None if path is None else _absolute(path)

    def caption_names(self) -> tuple[str, ...]:
        from fulcrum.data.stores.picture_store import caption_names

        return caption_names(_about(self.path))

    def build(self, ctx: slots.DataContext) -> Any:
        from math import lcm

        from fulcrum.data.buckets import BucketSource, open_pictures

        run = ctx.run
        unit = lcm(
            run.encode.codec.stride * run.model.patch,
            *(teacher.patch for teacher in run.encode.teachers),
        )
        source = open_pictures(
            self.path, self.split, run.data.size, self.count, run.budget.batch, unit
        )
        if ctx.say and isinstance(source, BucketSource):
            ctx.say(source.shapes_in_words())
        return source

    def pictures(self) -> int:
        """That are trained on, as the folder says."""
        there = int(_about(self.path)["splits"].get(self.split, 0))
        return there if self.count is None else min(there, self.count)

    def geometry_missing(self) -> str | None:
        return (
            None
            if _ledger(self.path)
            else f"{self.path} has no ledger: nobody knows what its pictures were cut from"
        )

    def geometry_varies(self) -> bool:
        from fulcrum.data.stores.importing import changes_of

        changes = changes_of(_ledger(self.path))
        return any(changes[change] for change in ("cropped", "resized", "enlarged"))

    def held_out(self, split: str, count: int) -> "Folder":
        """Pictures that the import held out, square; fewer than asked where there are fewer."""
        return SquareFolder.model_validate(
            {"path": self.judged or self.path, "split": split, "count": count}
        )

    def glimpse(self, size: int, count: int) -> Any:
        """Of the square ones, where there are several shapes."""
        import numpy as np

        source = SquareFolder(
            path=self.path, split=self.split, count=min(count, self.count or count)
        ).at_size(size)
        return source.read(np.arange(len(source))).images

    def hashes(self) -> dict[str, str]:
        return _content(self.path) | ({} if self.judged is None else _content(self.judged))

    def identity(self) -> dict[str, Any]:
        judged = (
            {}
            if self.judged is None
            else {"judged_content": next(iter(_content(self.judged).values()))}
        )
        return {"split": self.split, "count": self.count, **judged}


class SquareFolder(Folder):
    """What is judged by: pictures of one shape, that of the samples."""

    kind: ClassVar[str] = "square_folder"

    def build(self, ctx: slots.DataContext) -> Any:
        return self.at_size(ctx.run.data.size)

    def at_size(self, size: int) -> Any:
        from fulcrum.data.stores.folder_source import FolderSource

        about = _about(self.path)
        several = self.split == "train" and len(about["buckets"]) > 1
        return FolderSource(
            self.path, self.split, size, self.count, shape=(about["size"],) * 2 if several else None
        )


class FilteredFolder(Folder):
    """The user's pictures without the pairs whose picture and caption fit least, by the user's own
    scores: the embedded scorer reads the embedded world only."""

    kind: ClassVar[str] = "filtered_folder"
    scores: str  # a table of rows and scores: fulcrum/data/stores/derived_store.py
    drop: Fraction = 0.1  # share of the pairs that goes, worst first

    @field_validator("scores")
    @classmethod
    def _scored(cls, path: str) -> str:
        return _absolute(path)

    def row_scores(self) -> Any:
        """(pictures of the folder,) the score of each, nan where the table has none."""
        from fulcrum.data.stores.derived_store import read_scores

        about = _about(self.path)
        return read_scores(Path(self.scores), about["count"], about["content"])

    def build(self, ctx: slots.DataContext) -> Any:
        from fulcrum.data.mix import without_worst

        return without_worst(super().build(ctx), self.row_scores(), self.drop)

    def hashes(self) -> dict[str, str]:
        from fulcrum.files.sealed import sha256_file

        content = sha256_file(Path(self.scores))
        return {**super().hashes(), f"scores:{content[:16]}": content}

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "drop": self.drop}


class Mix(slots.SourceFiller):
    """Several imported folders, mixed by weight: a source of weight 2 is seen twice as often as one
    of weight 1, whatever their sizes. Judged by the held-out pictures of the first. Where one holds
    several shapes, whole batches are dealt."""

    kind: ClassVar[str] = "mix"
    has_scenes: ClassVar[bool] = False
    paths: Annotated[tuple[str, ...], Field(min_length=1)]
    weights: tuple[Annotated[float, Field(gt=0.0)], ...]

    @field_validator("paths")
    @classmethod
    def _there(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_absolute(path) for path in paths)

    @model_validator(mode="after")
    def _paired(self) -> "Mix":
        if len(self.paths) != len(self.weights):
            raise ValueError(
                f"one weight per path: found {len(self.paths)} paths and {len(self.weights)}"
                " weights"
            )
        return self

    def build(self, ctx: slots.DataContext) -> Any:
        from fulcrum.data.mix import MixSource

        sources = [Folder(path=path).build(ctx) for path in self.paths]
        shaped = any(isinstance(one, MixSource) for one in sources)
        return MixSource(sources, self.weights, ctx.run.budget.batch if shaped else 1)

    def pictures(self) -> int:
        return sum(Folder(path=path).pictures() for path in self.paths)

    def caption_names(self) -> tuple[str, ...]:
        named = [Folder(path=path).caption_names() for path in self.paths]
        return tuple(name for name in named[0] if all(name in others for others in named))

    def geometry_missing(self) -> str | None:
        return next(
            (why for path in self.paths if (why := Folder(path=path).geometry_missing())), None
        )

    def geometry_varies(self) -> bool:
        return any(Folder(path=path).geometry_varies() for path in self.paths)

    def held_out(self, split: str, count: int) -> Folder:
        return Folder(path=self.paths[0]).held_out(split, count)

    def hashes(self) -> dict[str, str]:
        return {name: value for path in self.paths for name, value in _content(path).items()}

    def identity(self) -> dict[str, Any]:
        return {
            "contents": [next(iter(_content(path).values())) for path in self.paths],
            "weights": self.weights,
        }


def _absolute(path: str) -> str:
    """So that another working directory finds it too."""
    whole = at_home(path)
    return str(whole.resolve()) if whole.exists() else path


def _about(path: str) -> dict[str, Any]:
    """What an imported folder says of itself."""
    from fulcrum.data.stores.picture_store import local_folder, read_about

    return read_about(local_folder(path))


def _content(path: str) -> dict[str, str]:
    """The content hash of an imported folder, under a name that two folders do not share."""
    content = str(_about(path)["content"])
    return {f"data:{content[:16]}": content}


def _ledger(path: str) -> dict[str, Any]:
    """What became of the pictures of an imported folder; nothing where nobody wrote it down."""
    from fulcrum.data.stores.picture_store import LEDGER, local_folder
    from fulcrum.files.sealed import read_json

    file = local_folder(path) / LEDGER
    ledger: dict[str, Any] = read_json(file, "import the pictures again") if file.is_file() else {}
    return ledger


def varied_captions(source: slots.SourceFiller) -> MixedStyles | None:
    """All lengths that every picture of a source is captioned with, by their usual weights; None
    where there is but one."""
    usual, names = MixedStyles(), source.caption_names()
    lengths = get_args(Style) if names is None else names
    weights = {
        style: getattr(usual, style) if style in lengths else 0.0 for style in get_args(Style)
    }
    return MixedStyles(**weights) if sum(weight > 0 for weight in weights.values()) > 1 else None


def caption_tokens(source: slots.SourceFiller, caption: slots.CaptionFiller) -> float | None:
    """How many tokens these captions have on average; None where nobody has counted."""
    if isinstance(source, World) and isinstance(caption, OneStyle | MixedStyles):
        return caption.tokens(source.max_objects)
    return None


FILLERS = (
    World,
    Filtered,
    RecaptionedWorld,
    Folder,
    FilteredFolder,
    Mix,
    OneStyle,
    MixedStyles,
    NamedCaptions,
)
