"""Metrics as the report shows them: how to read them, their ends, and how far a second judge agrees with the first."""

import numpy as np

from fulcrum.measure.card import METRICS
from fulcrum.report.schema import ShownMetric
from fulcrum.study.judge.pairing import Measurements, values_of

SECOND = {"attribute_f1": "attribute_f1_second"}  # metric -> the same number by another judge


def shown_metric(name: str, measured: Measurements, baseline: str) -> ShownMetric:
    """A metric with the card and the ends of its scale that the baseline's cells carry, as far as there are any."""
    metric = METRICS[name]
    cards = [cell["metrics"][name]["card"] for cell in measured.get(baseline, {}).values() if name in cell["metrics"]]
    card = cards[0] if cards else {}
    return ShownMetric(
        name=name,
        label=metric.label,
        unit=metric.unit,
        better=metric.better,
        explain=metric.explain,
        card=card,
        floors=card.get("floors") or {},
        ceiling=card.get("ceiling"),
        agreement=agreement(name, measured) if name in SECOND else "",
    )


def agreement(metric: str, measured: Measurements) -> str:
    """How far two judges agree on the cells that both have looked at, in words; empty: there are fewer than three."""
    pairs = []
    for arm in measured:
        first, second = (values_of(measured, arm, name) for name in (metric, SECOND[metric]))
        pairs += [(first[seed], second[seed]) for seed in first.keys() & second.keys()]
    if len(pairs) < 3:
        return ""
    one, other = np.array(pairs).T
    apart = f"their values lie {np.abs(one - other).mean():.2g} apart on average"
    if min(one.std(), other.std()) < 1e-12:
        return f"over {len(pairs)} cells {apart}"
    return f"over {len(pairs)} cells the two judges correlate at {np.corrcoef(one, other)[0, 1]:.2f}, and {apart}"
