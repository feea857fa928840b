"""Does the picture show what the scene says: attributes right at their place, judged by a held-out classifier.

B images, P places of the 3 x 3 grid, C classes

An attribute counts as right when the judge sees an object at that place *and* names the attribute: what is not drawn
has no right colour, and a guess about an empty place earns nothing.

Recall alone is gamed by plenty: a picture full of objects has the right one somewhere. The F-score therefore counts what
was seen as well as what was asked for: an object that nobody asked for is four wrong attributes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.measure.card import METRICS
from fulcrum.measure.features.extractor import PLACES
from fulcrum.measure.features.gathered import Scores
from fulcrum.measure.metrics.base import Distance
from fulcrum.measure.metrics.interval import BOOTSTRAP, Interval, bootstrap_shares

ATTRIBUTES = ("shape", "colour", "texture", "size")
SHARES = (
    "attribute_f1", "attribute_accuracy", "attribute_precision", *(f"{name}_accuracy" for name in ATTRIBUTES),
    "presence_accuracy", "extra_objects",
)  # fmt: skip
SECOND = "attribute_f1_second"  # the F-score again, by the second judge
NEED_SCENES = (*SHARES, SECOND)  # asked of pictures whose scene is known

Counts = dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]  # share: (right (B,), asked (B,)), one entry per image


def score(logits: Mapping[str, Tensor], truth: Mapping[str, NDArray[np.integer]]) -> Counts:
    """Per image, how many were right and how many were asked for, of each share.

    logits  {"present": (B, P, 2), attribute: (B, P, C)}
    truth   {"present": (B, P) of 0 and 1, attribute: (B, P), -1 where empty}
    """
    _check(logits, truth)
    present = np.asarray(truth["present"]) == 1  # (B, P)
    seen = _named(logits["present"]) == 1
    hits = {name: present & seen & (_named(logits[name]) == np.asarray(truth[name])) for name in ATTRIBUTES}
    objects = _per_image(present)
    counts: Counts = {f"{name}_accuracy": (_per_image(hit), objects) for name, hit in hits.items()}
    right: NDArray[np.int64] = np.stack([_per_image(hit) for hit in hits.values()]).sum(axis=0, dtype=np.int64)
    asked: NDArray[np.int64] = objects * len(ATTRIBUTES)
    drawn: NDArray[np.int64] = _per_image(seen) * len(ATTRIBUTES)
    counts["attribute_accuracy"], counts["attribute_precision"] = (right, asked), (right, drawn)
    counts["attribute_f1"] = (2 * right, asked + drawn)
    counts["presence_accuracy"] = (_per_image(present & seen), objects)
    counts["extra_objects"] = (_per_image(~present & seen), _per_image(~present))
    return {name: counts[name] for name in SHARES}


def count_rows(counts: Counts) -> Tensor:
    """The counts as scores of each picture: what was right, then what was asked for, of every share.  (B, 2k)"""
    return torch.from_numpy(np.stack([counts[name][side] for side in (0, 1) for name in SHARES], axis=1)).float()


def pooled(counts: NDArray[np.int64]) -> dict[str, float]:
    """Every share, sum(right) / sum(asked), of the counts of n pictures as `count_rows` has them.  (n, 2k)

    Pictures in which the judge sees no object at all have a precision of 0: nothing of what was asked for is there.
    """
    right, asked = counts.reshape(len(counts), 2, len(SHARES)).sum(axis=0)  # (k,) each
    never = [name for name, total in zip(SHARES, asked, strict=True) if total == 0 and name != "attribute_precision"]
    if never:
        raise ValueError("nothing was asked for: no scene holds an object (or an empty place) to judge")
    return {name: float(right[k]) / max(int(asked[k]), 1) for k, name in enumerate(SHARES)}


class AttributeShare(Distance):
    """One of the shares. Images, not attributes, are resampled: the attributes of one picture succeed and fail together."""

    estimator = "judged at each place"
    interval = BOOTSTRAP
    referenced = False
    gathers = Scores

    def __init__(self, name: str, share: str | None = None) -> None:
        self.name, self.label, _, self.better, self.explain, self.sees = METRICS[name]
        self.share = share or name

    def gather(self, width: int, reference: bool) -> Scores:
        return Scores(2 * len(SHARES))

    def compute(self, pictures: Scores, reference: Any = None) -> Interval:
        return pictures.once("shares", lambda: _shares(pictures.rows))[self.share]


ATTRIBUTE_SHARES = tuple(AttributeShare(name) for name in SHARES)
SECOND_SHARES = (AttributeShare(SECOND, "attribute_f1"),)


def _shares(rows: Tensor) -> dict[str, Interval]:
    counts = rows.numpy().astype(np.int64)
    values = pooled(counts)
    low, high = bootstrap_shares(*counts.reshape(len(counts), 2, len(SHARES)).transpose(1, 0, 2))  # (n, k) each
    return {name: (values[name], float(low[k]), float(high[k])) for k, name in enumerate(SHARES)}


def _named(logits: Tensor) -> NDArray[np.int64]:
    named: NDArray[np.int64] = logits.detach().cpu().argmax(dim=-1).numpy()
    return named


def _per_image(hits: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.asarray(hits.sum(axis=1), dtype=np.int64)


def _check(logits: Mapping[str, Tensor], truth: Mapping[str, NDArray[np.integer]]) -> None:
    for name in ("present", *ATTRIBUTES):
        if name not in logits or name not in truth:
            where = "the judge's answer" if name not in logits else "the truth"
            raise ValueError(f"{where} lacks {name!r}; expected present, {', '.join(ATTRIBUTES)}")
        answer, wanted = logits[name], np.asarray(truth[name])
        if answer.ndim != 3 or answer.shape[1] != PLACES or wanted.shape != tuple(answer.shape[:2]):
            raise ValueError(
                f"{name}: expected logits (B, {PLACES}, classes) and truth (B, {PLACES}), "
                f"found {tuple(answer.shape)} and {wanted.shape}"
            )
        if not bool(answer.isfinite().all()):
            raise ValueError(f"{name}: the judge gave NaN or infinite logits")
        if wanted.max(initial=-1) >= answer.shape[2]:
            raise ValueError(f"{name}: truth holds class {wanted.max()}, the judge knows {answer.shape[2]} classes")
    present = np.asarray(truth["present"])
    if logits["present"].shape[2] != 2 or not np.isin(present, (0, 1)).all():
        raise ValueError("present: expected two classes, 0 for an empty place and 1 for an object")
    for name in ATTRIBUTES:
        if not ((np.asarray(truth[name]) >= 0) == (present == 1)).all():
            raise ValueError(f"{name}: truth must hold a class where an object is present, and -1 elsewhere")
