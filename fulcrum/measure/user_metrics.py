"""A user's own metrics and extractors, and the ones that were chosen by name."""

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, get_args

from torch import Tensor

from fulcrum.files.sealed import sha256_file
from fulcrum.files.user_code import load as read_own
from fulcrum.judge.card import MEASURE_VERSION, PROBES, Declared
from fulcrum.measure.evaluate import Comparison
from fulcrum.measure.features.extractor import (
    LOADERS,
    Extractor,
    FeatureFunction,
    digest_of,
    load_extractor,
)
from fulcrum.measure.metrics.base import Distance
from fulcrum.measure.metrics.distances import DISTANCES
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.phrase import failed

# --------------------------------------------------------------------------------------------------
# A user's own metrics and extractors from a Python file: checked, hashed, and then treated like all
# others.
#
# B images, d feature width


GUIDE = "docs/write-a-metric.md"
NAME = re.compile(r"[A-Za-z0-9_-]+")


class OwnExtractor(ABC):
    """Derive from it in your file. Built without arguments, once."""

    name: ClassVar[str]
    width: ClassVar[int]
    resize: ClassVar[str]  # in words: what it does to a picture's size
    value_range: ClassVar[str] = "uint8"  # what the network reads, in words
    #: files that decide what it computes: they enter its hash
    weights: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def features(self, images: Tensor) -> Tensor:
        """uint8 (B, 3, H, W) -> (B, width)."""


class Own(NamedTuple):
    metrics: tuple[Distance, ...]
    extractors: dict[str, Extractor]


def load(paths: list[Path]) -> Own:
    """Everything that these files define."""
    metrics: list[Distance] = []
    extractors: dict[str, Extractor] = {}
    taken = {metric.name for metric in DISTANCES}
    for path in paths:
        file = read_own(path, GUIDE)
        content = file.sha256
        classes = [kind for kind in file.classes() if not inspect.isabstract(kind)]
        try:
            own = [kind() for kind in classes if issubclass(kind, Distance)]
            networks = [kind() for kind in classes if issubclass(kind, OwnExtractor)]
        # the user's own code: say which file and what it said
        except (Exception, SystemExit) as error:
            raise failed(error, f"{path} cannot be used", GUIDE) from error
        if not own and not networks:
            raise BadInput(
                f"{path} defines neither a metric nor an extractor",
                "derive from RowDistance (fulcrum.measure.metrics.base) or OwnExtractor"
                " (fulcrum.measure.user_metrics)",
            )
        for metric in own:
            _sound_metric(metric, path, taken)
            taken.add(metric.name)
            type(metric).code = f"{MEASURE_VERSION}, {path.name} {content[:16]}"
            metrics.append(metric)
        for network in networks:
            part = _as_extractor(network, path, content)
            if part.name in extractors or part.name in LOADERS:
                raise BadInput(
                    f"{path}: an extractor called '{part.name}' exists already",
                    "choose another name",
                )
            extractors[part.name] = part
    return Own(tuple(metrics), extractors)


def _sound_metric(metric: Distance, path: Path, taken: set[str]) -> None:
    kind = type(metric).__name__
    for attribute in ("name", "label", "estimator"):
        if not isinstance(getattr(metric, attribute, None), str):
            raise BadInput(f"{path}: {kind} needs `{attribute}`, a string", f"see {GUIDE}")
    if not metric.name.isidentifier() or metric.name in taken:
        raise BadInput(
            f"{path}: the name '{metric.name}' of {kind} is taken or is no word",
            "choose another name",
        )
    if not isinstance(metric.sees, Mapping):
        raise BadInput(
            f"{path}: `sees` of '{metric.name}' is {metric.sees!r}",
            "write {fault: what it does}: " + GUIDE,
        )
    if not isinstance(metric.minimum, int) or metric.minimum < 2:
        raise BadInput(
            f"{path}: `minimum` of '{metric.name}' is {metric.minimum!r}",
            "write a number of pictures, at least 2",
        )
    if not isinstance(metric.gathers, type) or not hasattr(metric.gathers, "update"):
        raise BadInput(
            f"{path}: `gathers` of '{metric.name}' is {metric.gathers!r}",
            "give a class with `update(rows, ids)`, such as Rows of fulcrum.measure.features.kept",
        )
    if metric.better not in ("lower", "higher"):
        raise BadInput(
            f"{path}: `better` of '{metric.name}' is {metric.better!r}", 'write "lower" or "higher"'
        )
    for fault, says in metric.sees.items():
        if fault not in PROBES:
            raise BadInput(
                f"{path}: '{metric.name}' declares a fault '{fault}'", nearest(fault, PROBES)
            )
        if says not in get_args(Declared):
            raise BadInput(
                f"{path}: '{metric.name}' says '{says}' of {fault}",
                "write " + ", ".join(get_args(Declared)),
            )


def _as_extractor(network: OwnExtractor, path: Path, content: str) -> Extractor:
    kind = type(network).__name__
    for attribute, wanted in (("name", str), ("width", int), ("resize", str)):
        if not isinstance(getattr(network, attribute, None), wanted):
            raise BadInput(
                f"{path}: {kind} needs `{attribute}`, a {wanted.__name__}", f"see {GUIDE}"
            )
    if not NAME.fullmatch(network.name) or network.width < 1:
        raise BadInput(
            f"{path}: an extractor is called {network.name!r} and has width {network.width}",
            "a name has letters, digits, - and _; a width is at least 1",
        )
    if isinstance(network.weights, str) or not all(
        isinstance(name, str) for name in network.weights
    ):
        raise BadInput(
            f"{path}: `weights` of '{network.name}' is {network.weights!r}",
            "write a tuple of file names",
        )
    weights = []
    for name in network.weights:
        place = path.parent / name
        if not place.is_file():
            raise BadInput(f"{path}: {kind} names weights at {place}, which are not there")
        weights.append(sha256_file(place))
    return Extractor(
        network.name,
        digest_of("own", content, kind, weights),
        network.resize,
        network.value_range,
        network.width,
        _kept_running(network),
    )


def _kept_running(network: OwnExtractor) -> FeatureFunction:
    def features(images: Tensor) -> Tensor:
        try:
            return network.features(images)
        except SystemExit as error:  # it would end the command with success and no word
            raise failed(
                error, f"the extractor '{network.name}' ended the process", GUIDE
            ) from error

    return features


# --------------------------------------------------------------------------------------------------
# The networks and metrics that a person asked for by name, their own files among them.


def choose_comparisons(
    features: Sequence[str], files: Iterable[Path], only: Sequence[str], device: str
) -> list[Comparison]:
    """Every metric over every network; without names the embedded network, or those of the user's
    files."""
    own = load(list(files))
    wanted = features or list(own.extractors) or ["embedded"]
    extractors = [
        own.extractors[text] if text in own.extractors else load_extractor(text).on(device)
        for text in wanted
    ]
    names = [part.name for part in extractors]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(
            f"the extractor '{twice[0]}' was given twice", "measure with one after the other"
        )
    every = {metric.name: metric for metric in (*DISTANCES, *own.metrics)}
    for name in only:
        if name not in every:
            raise BadInput(f"no metric is called '{name}'", nearest(name, every))
    metrics = [metric for name, metric in every.items() if not only or name in only]
    return [Comparison(part, metrics) for part in extractors]
