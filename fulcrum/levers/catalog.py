"""The explicit catalogue: every recipe, lever and filler that a phrase may name."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from fulcrum.data import fillers as data
from fulcrum.encode import fillers as encode
from fulcrum.files.user_code import UserFile, load
from fulcrum.flow import fillers as flow
from fulcrum.levers.aligned_codec import AlignedCodec
from fulcrum.levers.base import Card, Lever
from fulcrum.levers.bf16_optimizer_state import BF16OptimizerState
from fulcrum.levers.bf16_storage import BF16Storage
from fulcrum.levers.bottleneck import Bottleneck
from fulcrum.levers.bundles import BUNDLES
from fulcrum.levers.caption_filter import CaptionFilter
from fulcrum.levers.contrastive_flow import ContrastiveFlow
from fulcrum.levers.edm_precondition import EDMPrecondition
from fulcrum.levers.ema import UseEMA
from fulcrum.levers.end_to_end_codec import EndToEndCodec
from fulcrum.levers.irepa import IRepa
from fulcrum.levers.lpips import UseLPIPS
from fulcrum.levers.min_snr import UseMinSNR
from fulcrum.levers.mixed_captions import MixedCaptions
from fulcrum.levers.muon import UseMuon
from fulcrum.levers.path_drop_guidance import PathDropGuidance
from fulcrum.levers.perceptual_features import UsePerceptualFeatures
from fulcrum.levers.pixels import UsePixels
from fulcrum.levers.real_data import RealData
from fulcrum.levers.repa import Repa
from fulcrum.levers.resolution_condition import ResolutionCondition
from fulcrum.levers.resolution_ladder import ResolutionLadder
from fulcrum.levers.routed_guidance import RoutedGuidance
from fulcrum.levers.sft_stage import SFTStage
from fulcrum.levers.shifted_time import ShiftedTime
from fulcrum.levers.short_captions import ShortCaptions
from fulcrum.levers.sprint import Sprint
from fulcrum.levers.stochastic_rounding import StochasticRounding
from fulcrum.levers.synthetic_then_real import SyntheticThenReal
from fulcrum.levers.tread import Tread
from fulcrum.levers.uniform_time import UseUniformTime
from fulcrum.levers.wide_codec import WideCodec
from fulcrum.levers.x_prediction import PredictX
from fulcrum.loss import fillers as loss
from fulcrum.model import fillers as model
from fulcrum.optim import fillers as optim
from fulcrum.recipes.emoji import emoji
from fulcrum.recipes.pocket import pocket, pocket_pixels, pocket_pixels_large
from fulcrum.recipes.prx import prx_256, prx_pixels_1024
from fulcrum.recipes.spark import spark
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue, Phrase
from fulcrum.spec.record import Filler
from fulcrum.train import fillers as train

LEVERS: tuple[type[Lever], ...] = (
    ShortCaptions,
    MixedCaptions,
    RealData,
    SyntheticThenReal,
    SFTStage,
    ResolutionLadder,
    CaptionFilter,
    Tread,
    Sprint,
    RoutedGuidance,
    PathDropGuidance,
    UseMuon,
    BF16Storage,
    BF16OptimizerState,
    StochasticRounding,
    UseEMA,
    Repa,
    IRepa,
    UsePerceptualFeatures,
    UseLPIPS,
    PredictX,
    UseUniformTime,
    ShiftedTime,
    UseMinSNR,
    EDMPrecondition,
    ContrastiveFlow,
    UsePixels,
    WideCodec,
    AlignedCodec,
    EndToEndCodec,
    Bottleneck,
    ResolutionCondition,
)
RECIPES = {
    recipe.__name__: recipe
    for recipe in (spark, pocket, pocket_pixels, pocket_pixels_large, emoji, prx_256, prx_pixels_1024)
}
FILLERS: tuple[type[Filler], ...] = (
    *data.FILLERS,
    *encode.FILLERS,
    *flow.FILLERS,
    *model.FILLERS,
    *loss.FILLERS,
    *optim.FILLERS,
    *train.FILLERS,
)

GUIDE = "docs/write-a-lever.md"

CATALOG = Catalogue(RECIPES, {lever.name: lever for lever in LEVERS}, FILLERS, {bundle.name: bundle for bundle in BUNDLES})


def _sound(lever: type[Lever], path: Path) -> None:
    """A lever that can be listed and used, or a message that says what it lacks."""
    name, touches = getattr(lever, "name", None), getattr(lever, "touches", None)
    if not (isinstance(name, str) and name.isidentifier()):
        raise BadInput(
            f"{path}: {lever.__name__} needs a `name` that can stand in a phrase, found {name!r}",
            f'write: name: ClassVar[str] = "my_lever"; see {GUIDE}',
        )
    if not (isinstance(touches, tuple) and touches and all(isinstance(slot, str) for slot in touches)):
        raise BadInput(
            f"{path}: '{name}' needs `touches`, a tuple of the slots it may change, found {touches!r}",
            f'write: touches: ClassVar[tuple[str, ...]] = ("optim.lr",); see {GUIDE}',
        )
    if not isinstance(getattr(lever, "card", None), Card):
        raise BadInput(f"{path}: '{name}' needs a `card`", f"write: card: ClassVar[Card] = Card(says=...); see {GUIDE}")
    required = [field for field, facts in lever.model_fields.items() if facts.is_required()]
    if required:
        raise BadInput(f"{path}: the setting '{required[0]}' of '{name}' has no default", f"give it one: {GUIDE}")


def files_of(phrase: Phrase, hashes: Mapping[str, str]) -> dict[str, str]:
    """The user's files that a phrase really uses, by lever or by filler: they enter the key of its run."""
    used = {type(getattr(lever, "lever", lever)).__module__ for lever in phrase.levers}
    used |= {type(filler).__module__ for filler in phrase.run.fillers()}
    return {name: value for name, value in hashes.items() if name in used}


def with_files(paths: Iterable[Path]) -> tuple[Catalogue, dict[str, str]]:
    """The catalogue with the levers and fillers of a user's own files, and the hash of each file for the key."""
    known, hashes, problems = with_sound_files(paths)
    if problems:
        raise problems[0]
    return known, hashes


def with_sound_files(paths: Iterable[Path]) -> tuple[Catalogue, dict[str, str], list[BadInput]]:
    """As `with_files`, without the files that cannot be used: what is wrong with them comes last."""
    known, hashes, problems = CATALOG, {}, []
    for path in paths:
        try:
            own = load(path, GUIDE)
            known = _with(known, own, path)
        except BadInput as error:
            problems.append(error)
        else:
            hashes[own.module.__name__] = own.sha256
    return known, hashes, problems


def _with(known: Catalogue, own: UserFile, path: Path) -> Catalogue:
    classes, levers = own.classes(), dict(known.levers)
    mine = [value for value in classes if issubclass(value, Lever)]
    if not mine:
        raise BadInput(f"{path} holds no lever", f"write a class that derives from fulcrum.levers.base.Lever: {GUIDE}")
    for lever in mine:
        _sound(lever, path)
        if lever.name in levers or lever.name in known.bundles or lever.name in known.recipes:
            raise BadInput(f"{path} names a lever '{lever.name}', a name that is taken", "choose another name")
        levers[lever.name] = lever
    return known._replace(
        levers=levers, fillers=(*known.fillers, *(value for value in classes if issubclass(value, Filler)))
    )
