"""Former import paths of public modules: each is an alias of the module that replaced it.

A user's file keeps its hash in the keys of runs, so it must not be edited when a module of Fulcrum
moves. The table holds every module of docs/decisions/0020-public-api.md that has moved.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER_PATHS = {
    "fulcrum.data.caption": "fulcrum.data.captions",
    "fulcrum.data.readers.untrusted_archive": "fulcrum.data.readers.shards",
    "fulcrum.data.readers.untrusted_file": "fulcrum.data.readers.reader",
    "fulcrum.data.store.completion": "fulcrum.data.stores.finish_import",
    "fulcrum.data.store.folder_source": "fulcrum.data.stores.folder_source",
    "fulcrum.data.store.importing": "fulcrum.data.stores.importing",
    "fulcrum.data.world.render": "fulcrum.data.world.scene",
    "fulcrum.encode.fillers": "fulcrum.networks.fillers",
    "fulcrum.flow.fillers": "fulcrum.training.flow.fillers",
    "fulcrum.flow.noise": "fulcrum.training.flow.noise",
    "fulcrum.loss.fillers": "fulcrum.training.loss.fillers",
    "fulcrum.measure.metric": "fulcrum.measure.metrics.base",
    "fulcrum.measure.own": "fulcrum.measure.user_metrics",
    "fulcrum.model.fillers": "fulcrum.training.model.fillers",
    "fulcrum.optim.fillers": "fulcrum.training.optim.fillers",
    "fulcrum.spec.seam": "fulcrum.spec.slots",
    "fulcrum.train.fillers": "fulcrum.training.fillers",
}
# asked for only where no such room exists
FORMER_ROOMS = {path.rpartition(".")[0] for path in FORMER_PATHS}


class FormerPaths(MetaPathFinder, Loader):
    """Find a former path after every other finder has failed, and put the module of today in its
    place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in FORMER_PATHS:
            return ModuleSpec(fullname, self)
        if fullname in FORMER_ROOMS:
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in FORMER_PATHS:
            sys.modules[module.__name__] = import_module(FORMER_PATHS[module.__name__])


def keep_former_paths() -> None:
    """Install the finder, and load the former room `fulcrum.train` before the function of that name
    is bound."""
    if not any(isinstance(finder, FormerPaths) for finder in sys.meta_path):
        sys.meta_path.append(FormerPaths())
    import_module("fulcrum.train")
