"""The explicit catalogue: every recipe, lever and filler that a phrase may name."""

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from fulcrum.data import fillers as data
from fulcrum.encode import fillers as encode
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

LEVERS: tuple[type[Lever], ...] = (ShortCaptions, MixedCaptions, RealData, SyntheticThenReal, SFTStage,
                                   ResolutionLadder, CaptionFilter, Tread, Sprint, RoutedGuidance,
                                   PathDropGuidance, UseMuon, BF16Storage,
                                   BF16OptimizerState, StochasticRounding, UseEMA,
                                   Repa, IRepa, UsePerceptualFeatures, UseLPIPS,
                                   PredictX, UseUniformTime, ShiftedTime, UseMinSNR, EDMPrecondition, ContrastiveFlow,
                                   UsePixels, WideCodec, AlignedCodec, EndToEndCodec, Bottleneck, ResolutionCondition)
RECIPES = {recipe.__name__: recipe
           for recipe in (spark, pocket, pocket_pixels, pocket_pixels_large, emoji, prx_256, prx_pixels_1024)}
FILLERS: tuple[type[Filler], ...] = (*data.FILLERS, *encode.FILLERS, *flow.FILLERS, *model.FILLERS, *loss.FILLERS,
                                     *optim.FILLERS, *train.FILLERS)

CATALOG = Catalogue(RECIPES, {lever.name: lever for lever in LEVERS}, FILLERS, {bundle.name: bundle for bundle in BUNDLES})


def _sound(lever: type[Lever], path: Path) -> None:
    """A lever that can be listed and used, or a message that says what it lacks."""
    name, touches = getattr(lever, "name", None), getattr(lever, "touches", None)
    if not (isinstance(name, str) and name.isidentifier()):
        raise BadInput(f"{path}: {lever.__name__} needs a `name` that can stand in a phrase, found {name!r}")
    if not (isinstance(touches, tuple) and touches and all(isinstance(slot, str) for slot in touches)):
        raise BadInput(f"{path}: '{name}' needs `touches`, a tuple of the slots it may change, found {touches!r}")
    if not isinstance(getattr(lever, "card", None), Card):
        raise BadInput(f"{path}: '{name}' needs a `card`", "write: card: ClassVar[Card] = Card(says=...)")
    required = [field for field, facts in lever.model_fields.items() if facts.is_required()]
    if required:
        raise BadInput(f"{path}: the setting '{required[0]}' of '{name}' has no default", "every setting needs one")


def files_of(phrase: Phrase, hashes: Mapping[str, str]) -> dict[str, str]:
    """The user's files that a phrase really uses, by lever or by filler: they enter the key of its run."""
    used = {type(getattr(lever, "lever", lever)).__module__ for lever in phrase.levers}
    used |= {type(filler).__module__ for filler in phrase.run.fillers()}
    return {name: value for name, value in hashes.items() if name in used}


def with_files(paths: Iterable[Path]) -> tuple[Catalogue, dict[str, str]]:
    """The catalogue with the levers and fillers of a user's own files, and the hash of each file for the key."""
    levers, fillers, hashes = dict(CATALOG.levers), list(CATALOG.fillers), {}
    for path in paths:
        if not path.is_file():
            raise BadInput(f"there is no lever file at {path}", "give the path of a Python file with --levers")
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        name = f"fulcrum_user_{path.stem}_{content[:12]}"
        hashes[name] = content
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise BadInput(f"{path} is not a Python file", "a lever file ends in .py: see docs/write-a-lever.md")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:             # the user's own code: say which file and what it said
            raise BadInput(f"{path} cannot be read: {type(error).__name__}: {error}") from error
        found = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == name]
        own = [value for value in found if issubclass(value, Lever)]
        if not own:
            raise BadInput(f"{path} holds no lever", "write a class that derives from fulcrum.levers.base.Lever")
        for lever in own:
            _sound(lever, path)
            if lever.name in levers or lever.name in CATALOG.bundles or lever.name in CATALOG.recipes:
                raise BadInput(f"{path} names a lever '{lever.name}', a name that is taken", "choose another name")
            levers[lever.name] = lever
        fillers += [value for value in found if issubclass(value, Filler)]
    return Catalogue(CATALOG.recipes, levers, tuple(fillers), CATALOG.bundles), hashes
