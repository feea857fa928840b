"""Models that are open: loaded once, kept while there is room, their codecs and text encoders shared."""

import threading
from collections import OrderedDict
from typing import Any

from fulcrum.gallery.exhibit import Exhibit
from fulcrum.spec.run import System
from fulcrum.training.dist.choose_system import device_named
from fulcrum.training.kept_weights import weights_at
from fulcrum.training.painter import Painter

MOST_BYTES = 4 << 30  # of open weights together; one model at least


class OpenModels:
    """Painters by (run, images seen), the least recently used closed first."""

    def __init__(self, device: str = "cpu", most_bytes: int = MOST_BYTES) -> None:
        self.system, self.most_bytes = System(device=device_named(device)), most_bytes
        self.painters: OrderedDict[tuple[str, int], tuple[Painter, int]] = OrderedDict()
        self.parts: dict[Any, Any] = {}
        self.lock = threading.Lock()

    def painter(self, exhibit: Exhibit, images: int) -> Painter:
        with self.lock:
            key = (exhibit.key, images)
            if key not in self.painters:
                weights = weights_at(exhibit.folder, images)
                run = exhibit.run
                painter = Painter(run, weights, self._part(run.encode.codec), self._part(run.encode.text), self.system)
                _ = painter.empty  # read once: copies that draw with other settings share it
                self.painters[key] = painter, sum(value.nbytes for value in weights.values())
            self.painters.move_to_end(key)
            while len(self.painters) > 1 and sum(size for _, size in self.painters.values()) > self.most_bytes:
                self.painters.popitem(last=False)
            return self.painters[key][0]

    def _part(self, filler: Any) -> Any:
        """A codec or a text encoder: one for all runs that describe it alike."""
        if filler not in self.parts:
            self.parts[filler] = filler.build(None)
        return self.parts[filler]
