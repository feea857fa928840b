"""The explicit catalogue: every recipe, lever and filler that a phrase may name."""

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from fulcrum.data import fillers as data
from fulcrum.encode import fillers as encode
from fulcrum.flow import fillers as flow
from fulcrum.levers.base import Lever
from fulcrum.levers.bf16_storage import BF16Storage
from fulcrum.levers.ema import UseEMA
from fulcrum.levers.muon import UseMuon
from fulcrum.levers.sft_stage import SFTStage
from fulcrum.levers.short_captions import ShortCaptions
from fulcrum.levers.synthetic_then_real import SyntheticThenReal
from fulcrum.levers.tread import Tread
from fulcrum.loss import fillers as loss
from fulcrum.model import fillers as model
from fulcrum.optim import fillers as optim
from fulcrum.recipes.pocket import pocket, pocket_pixels, pocket_pixels_large
from fulcrum.recipes.prx import prx_256, prx_pixels_1024
from fulcrum.recipes.spark import spark
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.record import Filler
from fulcrum.train import fillers as train

LEVERS: tuple[type[Lever], ...] = (ShortCaptions, SyntheticThenReal, SFTStage, Tread, UseMuon, BF16Storage, UseEMA)
RECIPES = {recipe.__name__: recipe
           for recipe in (spark, pocket, pocket_pixels, pocket_pixels_large, prx_256, prx_pixels_1024)}
FILLERS: tuple[type[Filler], ...] = (*data.FILLERS, *encode.FILLERS, *flow.FILLERS, *model.FILLERS, *loss.FILLERS,
                                     *optim.FILLERS, *train.FILLERS)

CATALOG = Catalogue(RECIPES, {lever.name: lever for lever in LEVERS}, FILLERS)


def with_files(paths: Iterable[Path]) -> tuple[Catalogue, dict[str, str]]:
    """The catalogue with the levers and fillers of a user's own files, and the hash of each file for the key."""
    levers, fillers, hashes = dict(CATALOG.levers), list(CATALOG.fillers), {}
    for path in paths:
        if not path.is_file():
            raise BadInput(f"there is no lever file at {path}", "give the path of a Python file with --levers")
        hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        name = f"fulcrum_user_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise BadInput(f"{path} is not a Python file", "a lever file ends in .py: see docs/write-a-lever.md")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:                           # the user's own code: say which file and what it said
            raise BadInput(f"{path} cannot be read: {type(error).__name__}: {error}") from error
        found = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == name]
        own = [value for value in found if issubclass(value, Lever)]
        if not own:
            raise BadInput(f"{path} holds no lever", "write a class that derives from fulcrum.levers.base.Lever")
        for lever in own:
            if lever.name in levers:
                raise BadInput(f"{path} names a lever '{lever.name}' that exists already", "choose another name")
            levers[lever.name] = lever
        fillers += [value for value in found if issubclass(value, Filler)]
    return Catalogue(CATALOG.recipes, levers, tuple(fillers)), hashes
