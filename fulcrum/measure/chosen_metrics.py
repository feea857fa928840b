"""The networks and metrics that a person asked for by name, their own files among them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fulcrum.measure.evaluate import Comparison
from fulcrum.measure.features.extractor import load_extractor
from fulcrum.measure.metrics.distances import DISTANCES
from fulcrum.measure.user_metrics import load
from fulcrum.spec.errors import BadInput, nearest


def choose_comparisons(
    features: Sequence[str], files: Iterable[Path], only: Sequence[str], device: str
) -> list[Comparison]:
    """Every metric over every network; without names the embedded network, or those of the user's files."""
    own = load(list(files))
    wanted = features or list(own.extractors) or ["embedded"]
    extractors = [own.extractors[text] if text in own.extractors else load_extractor(text).on(device) for text in wanted]
    names = [part.name for part in extractors]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"the extractor '{twice[0]}' was given twice", "measure with one after the other")
    every = {metric.name: metric for metric in (*DISTANCES, *own.metrics)}
    for name in only:
        if name not in every:
            raise BadInput(f"no metric is called '{name}'", nearest(name, every))
    metrics = [metric for name, metric in every.items() if not only or name in only]
    return [Comparison(part, metrics) for part in extractors]
