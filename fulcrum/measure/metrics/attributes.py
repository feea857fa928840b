"""Does the picture show what the scene says: attributes right at their place, judged by a held-out classifier.

B images, P places of the 3 x 3 grid, C classes

An attribute counts as right when the judge sees an object at that place *and* names the attribute: what is not drawn
has no right colour, and a guess about an empty place earns nothing.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

PLACES = 9
ATTRIBUTES = ("shape", "colour", "texture", "size")
SHARES = (
    "attribute_accuracy", *(f"{name}_accuracy" for name in ATTRIBUTES), "presence_accuracy", "extra_objects",
)  # fmt: skip

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
    counts["attribute_accuracy"] = (
        np.sum([_per_image(hit) for hit in hits.values()], axis=0, dtype=np.int64), objects * len(ATTRIBUTES),
    )  # fmt: skip
    counts["presence_accuracy"] = (_per_image(present & seen), objects)
    counts["extra_objects"] = (_per_image(~present & seen), _per_image(~present))
    return {name: counts[name] for name in SHARES}


def share(right: NDArray[np.int64], asked: NDArray[np.int64]) -> tuple[float, float]:
    """The share sum(right) / sum(asked) and its standard error over images (linearised ratio).

    Images, not attributes, are the unit: the attributes of one picture succeed and fail together.
    """
    n, total = len(asked), int(asked.sum())
    if total == 0:
        raise ValueError("nothing was asked for: no scene holds an object (or an empty place) to judge")
    value = float(right.sum()) / total
    residual = right - value * asked
    error = float(np.sqrt(n / max(n - 1, 1) * np.square(residual).sum())) / total
    return value, error


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
