"""The explicit catalogue: every recipe, lever and filler that a phrase may name."""

import sys
from collections.abc import Iterable, Mapping
from inspect import signature
from pathlib import Path
from types import FunctionType

from fulcrum.data import fillers as data
from fulcrum.files.paths import read_regular
from fulcrum.files.sealed import sha256_bytes
from fulcrum.files.user_code import UserFile, hash_of, load
from fulcrum.levers.alignment import DinoV2, DinoV3, IRepa, Repa
from fulcrum.levers.base import Card, Lever
from fulcrum.levers.bundles import BUNDLES
from fulcrum.levers.captions import CaptionFilter, MixedCaptions, Recaptioned, ShortCaptions
from fulcrum.levers.codecs import (
    AlignedCodec,
    EndToEndCodec,
    Flux2Codec,
    Qwen3VLText,
    RepaECodec,
    UseLatentAlignment,
    UsePixels,
    WideCodec,
)
from fulcrum.levers.flow import (
    ContrastiveFlow,
    EDMPrecondition,
    PlacedTimes,
    PredictX,
    ShiftedTime,
    UseEDMNoise,
    UseEDMWeight,
    UseMinSNR,
    UseUniformTime,
)
from fulcrum.levers.guidance import ContrastiveCorrection, PathDropGuidance, RoutedGuidance
from fulcrum.levers.model import Bottleneck, Lora, ResolutionCondition, SizeCropCondition, TrainOnly
from fulcrum.levers.optim import UseEMA, UseMuon
from fulcrum.levers.perceptual import UseLPIPS, UsePerceptualFeatures
from fulcrum.levers.precision import (
    BF16Compute,
    BF16Everything,
    BF16Op,
    BF16OptimizerState,
    BF16Storage,
    StochasticRounding,
)
from fulcrum.levers.recipes import (
    pocket,
    pocket_64,
    pocket_pixels,
    pocket_pixels_large,
    prx_7b,
    prx_256,
    prx_256_flux2,
    prx_256_repa_e,
    prx_pixels_1024,
    spark,
    speedrun_24h,
)
from fulcrum.levers.routing import Sprint, Tread
from fulcrum.levers.stages import RateStage, RealData, ResolutionLadder, SFTStage, SyntheticThenReal
from fulcrum.networks import fillers as encode
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import PREFIX, Catalogue, Phrase, parse
from fulcrum.spec.record import Filler
from fulcrum.spec.run import RunSpec
from fulcrum.training import fillers as train
from fulcrum.training.flow import fillers as flow
from fulcrum.training.loss import fillers as codec_loss
from fulcrum.training.loss import fillers as loss
from fulcrum.training.model import fillers as model
from fulcrum.training.optim import fillers as optim

LEVERS: tuple[type[Lever], ...] = (
    ShortCaptions,
    MixedCaptions,
    RealData,
    SyntheticThenReal,
    SFTStage,
    RateStage,
    ResolutionLadder,
    CaptionFilter,
    Recaptioned,
    Tread,
    Sprint,
    RoutedGuidance,
    PathDropGuidance,
    UseMuon,
    BF16Storage,
    BF16OptimizerState,
    StochasticRounding,
    BF16Everything,
    BF16Compute,
    BF16Op,
    UseEMA,
    Repa,
    IRepa,
    DinoV2,
    DinoV3,
    UsePerceptualFeatures,
    UseLPIPS,
    PredictX,
    UseUniformTime,
    PlacedTimes,
    ShiftedTime,
    UseMinSNR,
    EDMPrecondition,
    UseEDMNoise,
    UseEDMWeight,
    ContrastiveFlow,
    ContrastiveCorrection,
    UsePixels,
    WideCodec,
    AlignedCodec,
    Flux2Codec,
    RepaECodec,
    Qwen3VLText,
    UseLatentAlignment,
    EndToEndCodec,
    Bottleneck,
    ResolutionCondition,
    SizeCropCondition,
    Lora,
    TrainOnly,
)
RECIPES = {
    recipe.__name__: recipe
    for recipe in (
        *(spark, pocket, pocket_64, pocket_pixels, pocket_pixels_large),
        *(prx_256, prx_256_flux2, prx_256_repa_e, prx_pixels_1024, prx_7b, speedrun_24h),
    )
}
FILLERS: tuple[type[Filler], ...] = (
    *data.FILLERS,
    *encode.FILLERS,
    *flow.FILLERS,
    *model.FILLERS,
    *loss.FILLERS,
    *codec_loss.CODEC_FILLERS,
    *optim.FILLERS,
    *train.FILLERS,
)

GUIDE = "docs/write-a-lever.md"

CATALOG = Catalogue(
    RECIPES,
    {lever.name: lever for lever in LEVERS},
    FILLERS,
    {bundle.name: bundle for bundle in BUNDLES},
)


def _sound(lever: type[Lever], path: Path) -> None:
    """A lever that can be listed and used, or a message that says what it lacks."""
    name, touches = getattr(lever, "name", None), getattr(lever, "touches", None)
    if not (isinstance(name, str) and name.isidentifier()):
        raise BadInput(
            f"{path}: {lever.__name__} needs a `name` that can stand in a phrase, found {name!r}",
            f'write: name: ClassVar[str] = "my_lever"; see {GUIDE}',
        )
    if not (
        isinstance(touches, tuple) and touches and all(isinstance(slot, str) for slot in touches)
    ):
        raise BadInput(
            f"{path}: '{name}' needs `touches`, a tuple of the slots it may change, found"
            f" {touches!r}",
            f'write: touches: ClassVar[tuple[str, ...]] = ("optim.lr",); see {GUIDE}',
        )
    if not isinstance(getattr(lever, "card", None), Card):
        raise BadInput(
            f"{path}: '{name}' needs a `card`",
            f"write: card: ClassVar[Card] = Card(says=...); see {GUIDE}",
        )
    required = [field for field, facts in lever.model_fields.items() if facts.is_required()]
    if required:
        raise BadInput(
            f"{path}: the setting '{required[0]}' of '{name}' has no default",
            f"give it one: {GUIDE}",
        )


def files_of(phrase: Phrase, hashes: Mapping[str, str]) -> dict[str, str]:
    """The user's files whose code a run executes, by lever or by filler: they enter its key.

    A recipe's file does not: what it returned is the run, a value that is in the key whole.
    """
    used = {type(getattr(lever, "lever", lever)).__module__ for lever in phrase.levers}
    used |= {type(filler).__module__ for filler in phrase.run.fillers()}
    return {name: value for name, value in hashes.items() if name in used}


def require_unchanged(known: Catalogue, hashes: Mapping[str, str]) -> None:
    """The files behind a key that another process made: this one's catalogue must come from the
    very bytes it hashed."""
    modules = {kind.__module__ for kind in (*known.levers.values(), *known.fillers)}
    for name, wanted in hashes.items():
        if name not in modules or hash_of(sys.modules[name]) != wanted:
            raise BadInput(
                f"{name.removeprefix(PREFIX).rpartition('_')[0]}.py has changed since this command"
                " was started: other code would run under the key of the former",
                "start the command again: runs of the edited file get keys of their own",
            )


def foreign_code(run: RunSpec) -> dict[str, str]:
    """Hashes of the files whose code the fillers of a run are, ours left out: for a run that no
    phrase described."""
    hashes = {}
    for module in {sys.modules[type(filler).__module__] for filler in run.fillers()}:
        if module.__name__.split(".")[0] == "fulcrum":
            continue
        file = getattr(module, "__file__", None)
        if file is None:
            raise BadInput(
                f"the fillers of {module.__name__} stand in no file",
                "keys hold its hash: write it to a file",
            )
        hashes[module.__name__] = hash_of(module) or sha256_bytes(read_regular(Path(file)))
    return hashes


def read_phrase(
    text: str, files: Iterable[Path] = (), settings: Iterable[str] = (), images: int | None = None
) -> tuple[Phrase, dict[str, str]]:
    """The phrase, with the settings and the budget that were given, and the hashes of the user's
    files that it uses."""
    known, hashes = with_files(files)
    phrase = parse(
        text, known, [*settings, *([f"budget.images={images}"] if images is not None else [])]
    )
    return phrase, files_of(phrase, hashes)


def with_files(paths: Iterable[Path]) -> tuple[Catalogue, dict[str, str]]:
    """The catalogue with the levers, recipes and fillers of a user's own files, and the hash of
    each file for the key."""
    known, hashes, problems = with_sound_files(paths)
    if problems:
        raise problems[0]
    return known, hashes


def with_sound_files(paths: Iterable[Path]) -> tuple[Catalogue, dict[str, str], list[BadInput]]:
    """As `with_files`, without the files that cannot be used: what is wrong with them comes
    last."""
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
    """What a file defines, told by its base class: levers and fillers; recipes by their signature,
    () -> RunSpec."""
    classes = own.classes()
    levers = [value for value in classes if issubclass(value, Lever)]
    fillers = [value for value in classes if issubclass(value, Filler)]
    recipes = {
        name: value
        for name, value in vars(own.module).items()
        if _is_recipe(value, own.module.__name__)
    }
    if not (levers or fillers or recipes):
        raise BadInput(
            f"{path} holds no lever, no filler and no recipe",
            "write a class that derives from fulcrum.Lever or from a seam, or a function that is"
            f" marked `-> RunSpec`: {GUIDE}",
        )
    for lever in levers:
        _sound(lever, path)
    taken = {*known.levers, *known.bundles, *known.recipes}
    for what, name in (
        *(("lever", lever.name) for lever in levers),
        *(("recipe", name) for name in recipes),
    ):
        if name in taken:
            raise BadInput(
                f"{path} names a {what} '{name}', a name that is taken", "choose another name"
            )
        taken.add(name)
    return known._replace(
        recipes={**known.recipes, **recipes},
        levers={**known.levers, **{lever.name: lever for lever in levers}},
        fillers=(*known.fillers, *fillers),
    )


def _is_recipe(value: object, module: str) -> bool:
    """Is it a function of this file that takes nothing and says that it returns a run?"""
    if not (isinstance(value, FunctionType) and value.__module__ == module):
        return False
    about = signature(value)
    return not about.parameters and about.return_annotation in (RunSpec, "RunSpec")
