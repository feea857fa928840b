"""Which metrics a study is judged on, and how the report shows them: their ends, and how far a second judge agrees."""

import numpy as np

from fulcrum.judge.card import JUDGED, METRICS
from fulcrum.judge.schema import ShownMetric
from fulcrum.measure.evaluation import can_measure
from fulcrum.spec.remark import Remark, remark
from fulcrum.spec.run import RunSpec
from fulcrum.study.judge.pairing import Measurements, values_of
from fulcrum.study.plan.plan import Plan

SHOWN = (
    "attribute_f1",
    "attribute_f1_second",
    "attribute_accuracy",
    "attribute_precision",
    "frechet",
    "mmd",
    "validation_loss",
    "colour_accuracy",
    "shape_accuracy",
    "texture_accuracy",
    "size_accuracy",
    "presence_accuracy",
    "extra_objects",
    "mmd_published",
)
FAMILY = 100  # comparisons that power is reckoned for, at most: the metrics of an arm move together
SECOND = {"attribute_f1": "attribute_f1_second"}  # metric -> the same number by another judge


def metrics_of(plan: Plan, run: RunSpec) -> list[str]:
    """What a study is judged on, the primary metric first. Where real networks judge, the distances of the embedded one,
    which was made for the embedded world, are left out."""
    names: tuple[str, ...] = SHOWN
    if plan.judges:
        own = (name for name in SHOWN if name not in ("frechet", "mmd", "mmd_published"))
        names = (*(name for judge in plan.judges for name in JUDGED[judge]), *own)
    return [name for name in dict.fromkeys((plan.primary, *names)) if can_measure(run, name)]


def shown_metric(name: str, measured: Measurements, baseline: str) -> ShownMetric:
    """A metric with the card and the ends of its scale that the baseline's cells carry, as far as there are any."""
    metric = METRICS[name]
    cards = [cell["metrics"][name]["card"] for cell in measured.get(baseline, {}).values() if name in cell["metrics"]]
    card = cards[0] if cards else {}
    agreed = agreement(name, measured) if name in SECOND else None
    return ShownMetric(
        name=name,
        label=metric.label,
        unit=metric.unit,
        better=metric.better,
        explain=metric.explain,
        card=card,
        floors=card.get("floors") or {},
        ceiling=card.get("ceiling"),
        agreement=agreed.text if agreed else "",
        codes=(agreed,) if agreed else (),
    )


def agreement(metric: str, measured: Measurements) -> Remark | None:
    """How far two judges agree on the cells that both have looked at; None: there are fewer than three."""
    pairs = []
    for arm in measured:
        first, second = (values_of(measured, arm, name) for name in (metric, SECOND[metric]))
        pairs += [(first[seed], second[seed]) for seed in first.keys() & second.keys()]
    if len(pairs) < 3:
        return None
    one, other = np.array(pairs).T
    distance = float(np.abs(one - other).mean())
    apart = f"their values lie {distance:.2g} apart on average"
    if min(one.std(), other.std()) < 1e-12:
        text = f"over {len(pairs)} cells {apart}"
        return remark("judges-apart", text, cells=len(pairs), distance=distance)
    correlation = float(np.corrcoef(one, other)[0, 1])
    text = f"over {len(pairs)} cells the two judges correlate at {correlation:.2f}, and {apart}"
    return remark("judges-correlate", text, cells=len(pairs), correlation=correlation, distance=distance)
