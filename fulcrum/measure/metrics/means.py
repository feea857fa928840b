"""Metrics that are means over pictures: attributes, scores, name rank, validation loss."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from fulcrum.judge.card import METRICS, Measured, MetricCard
from fulcrum.measure.features.extractor import PLACES
from fulcrum.measure.features.kept import Rows, Scores
from fulcrum.measure.metrics.base import (
    BOOTSTRAP,
    Distance,
    Interval,
    MeanScore,
    bootstrap_shares,
    student,
    student_quantile,
)
from fulcrum.spec.record import Frozen

# --------------------------------------------------------------------------------------------------
# Does the picture show what the scene says: attributes right at their place, judged by a held-out
# classifier.
#
# B images, P places of the 3 x 3 grid, C classes
#
# An attribute counts as right when the judge sees an object at that place *and* names the
# attribute: what is not drawn has no right colour, and a guess about an empty place earns nothing.
#
# Recall alone is gamed by plenty: a picture full of objects has the right one somewhere. The
# F-score therefore counts what was seen as well as what was asked for: an object that nobody asked
# for is four wrong attributes.


ATTRIBUTES = ("shape", "colour", "texture", "size")
SHARES = (
    "attribute_f1",
    "attribute_accuracy",
    "attribute_precision",
    *(f"{name}_accuracy" for name in ATTRIBUTES),
    "presence_accuracy",
    "extra_objects",
)
SECOND = "attribute_f1_second"  # the F-score again, by the second judge
NEED_SCENES = (*SHARES, SECOND)  # asked of pictures whose scene is known

# share: (right (B,), asked (B,)), one entry per image
Counts = dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]


def score(logits: Mapping[str, Tensor], truth: Mapping[str, NDArray[np.integer]]) -> Counts:
    """Per image, how many were right and how many were asked for, of each share.

    logits  {"present": (B, P, 2), attribute: (B, P, C)}
    truth   {"present": (B, P) of 0 and 1, attribute: (B, P), -1 where empty}
    """
    _check(logits, truth)
    present = np.asarray(truth["present"]) == 1  # (B, P)
    seen = _named(logits["present"]) == 1
    hits = {
        name: present & seen & (_named(logits[name]) == np.asarray(truth[name]))
        for name in ATTRIBUTES
    }
    objects = _per_image(present)
    counts: Counts = {f"{name}_accuracy": (_per_image(hit), objects) for name, hit in hits.items()}
    right: NDArray[np.int64] = np.stack([_per_image(hit) for hit in hits.values()]).sum(
        axis=0, dtype=np.int64
    )
    asked: NDArray[np.int64] = objects * len(ATTRIBUTES)
    drawn: NDArray[np.int64] = _per_image(seen) * len(ATTRIBUTES)
    counts["attribute_accuracy"], counts["attribute_precision"] = (right, asked), (right, drawn)
    counts["attribute_f1"] = (2 * right, asked + drawn)
    counts["presence_accuracy"] = (_per_image(present & seen), objects)
    counts["extra_objects"] = (_per_image(~present & seen), _per_image(~present))
    return {name: counts[name] for name in SHARES}


def count_rows(counts: Counts) -> Tensor:
    """The counts as scores of each picture: what was right, then what was asked for, of every
    share.  (B, 2k)"""
    return torch.from_numpy(
        np.stack([counts[name][side] for side in (0, 1) for name in SHARES], axis=1)
    ).float()


def pooled(counts: NDArray[np.int64]) -> dict[str, float]:
    """Every share, sum(right) / sum(asked), of the counts of n pictures as `count_rows` has them.
    (n, 2k)

    Pictures in which the judge sees no object at all have a precision of 0: nothing of what was
    asked for is there.
    """
    right, asked = counts.reshape(len(counts), 2, len(SHARES)).sum(axis=0)  # (k,) each
    never = [
        name
        for name, total in zip(SHARES, asked, strict=True)
        if total == 0 and name != "attribute_precision"
    ]
    if never:
        raise ValueError(
            "nothing was asked for: no scene holds an object (or an empty place) to judge"
        )
    return {name: float(right[k]) / max(int(asked[k]), 1) for k, name in enumerate(SHARES)}


class AttributeShare(Distance):
    """One of the shares. Images, not attributes, are resampled: the attributes of one picture
    succeed and fail together."""

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
    # (n, k) each
    low, high = bootstrap_shares(*counts.reshape(len(counts), 2, len(SHARES)).transpose(1, 0, 2))
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
            raise ValueError(
                f"{name}: truth holds class {wanted.max()}, the judge knows {answer.shape[2]}"
                " classes"
            )
    present = np.asarray(truth["present"])
    if logits["present"].shape[2] != 2 or not np.isin(present, (0, 1)).all():
        raise ValueError("present: expected two classes, 0 for an empty place and 1 for an object")
    for name in ATTRIBUTES:
        if not ((np.asarray(truth[name]) >= 0) == (present == 1)).all():
            raise ValueError(
                f"{name}: truth must hold a class where an object is present, and -1 elsewhere"
            )


# --------------------------------------------------------------------------------------------------
# Means of one score per picture: how well it fits its caption (CLIP), how far it is from the real
# picture (LPIPS).


class ClipScore(MeanScore):
    """Needs captions and no reference."""

    name = "clip_score"
    label = "CLIP score"
    better = "higher"
    explain = "Mean of 100 max(cos, 0) between the CLIP embeddings of a picture and of its caption."
    estimator = "mean of 100 max(cos, 0) over pictures"
    referenced = False


class Lpips(MeanScore):
    """Needs the reference picture that has the same caption."""

    name = "lpips"
    label, explain = METRICS["vgg.lpips"].label, METRICS["vgg.lpips"].explain
    estimator = "LPIPS with blurred pooling, to the real picture of the same caption, mean"


# --------------------------------------------------------------------------------------------------
# Does a picture show what it is called? A linear map from a vision network to a sentence encoder's
# vectors of names.
#
# Fitted by ridge regression on real training pictures and their names; the strength of the penalty
# is chosen on pictures of validation concepts. A picture is then given the nearest of the held-out
# names. Without a model that was trained on pairs of pictures and texts (CLIP) this is what two
# separate networks can tell: real pictures of unseen concepts find their name far above chance, and
# far from always. Compare with what real pictures reach; never read it as an accuracy.
#
# n pictures, K names, d feature width, E text width


# penalties, in units of a standardised feature's variance
LADDER = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class NamedRows(NamedTuple):
    """Pictures with the names they go by."""

    rows: Tensor  # (n, d)
    names: Sequence[str]  # n


class Namer(NamedTuple):
    mean: Tensor  # (d,) of the training features, and their deviation
    scale: Tensor
    weights: Tensor  # (d, E)
    centre: Tensor  # (E,) mean of the training names' vectors
    penalty: float

    def scores(self, rows: Tensor, vectors: Tensor) -> Tensor:
        """Cosine of what each picture says with each name's vector, both about the centre.  (n, d),
        (K, E) -> (n, K)"""
        directions = ((rows.double() - self.mean) / self.scale) @ self.weights
        names = vectors.double() - self.centre
        return (
            torch.nn.functional.normalize(directions, dim=1)
            @ torch.nn.functional.normalize(names, dim=1).T
        )


def fit(train: NamedRows, validation: NamedRows, vectors: dict[str, Tensor]) -> Namer:
    """The map with the penalty that ranks the names of validation pictures best; `vectors` holds
    each name's (E,)."""
    rows = train.rows.double()
    mean, scale = rows.mean(0), rows.std(0).clamp_min(1e-6)
    wanted = torch.stack([vectors[name] for name in train.names]).double()
    centre = wanted.mean(0)
    x = (rows - mean) / scale
    gram, cross = x.T @ x, x.T @ (wanted - centre)
    values, axes = torch.linalg.eigh(gram)
    turned = axes.T @ cross
    held = {name: vectors[name] for name in set(validation.names)}
    best: tuple[float, Namer] | None = None
    for penalty in LADDER:
        weights = axes @ (turned / (values.clamp_min(0) + penalty * len(rows))[:, None])
        namer = Namer(mean, scale, weights, centre, penalty)
        rank = float(ranks(namer, validation, held)[0].mean())
        if best is None or rank > best[0]:
            best = rank, namer
    assert best is not None
    return best[1]


def ranks(
    namer: Namer, pictures: NamedRows, vectors: dict[str, Tensor]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Of each picture: the share of the other names that fit worse than its own (chance: 0.5), and
    whether none fits better. The names to choose from are all of `vectors`."""
    names = sorted(vectors)
    # (n, K)
    scores = namer.scores(pictures.rows, torch.stack([vectors[name] for name in names])).numpy()
    place = {name: number for number, name in enumerate(names)}
    own = scores[np.arange(len(scores)), [place[name] for name in pictures.names]][:, None]
    below, equal = (scores < own).sum(1), (scores == own).sum(1) - 1
    return (below + 0.5 * equal) / max(len(names) - 1, 1), (scores > own).sum(1) == 0


def by_concept(values: NDArray[np.float64], names: Sequence[str]) -> Interval:
    """Mean over pictures, its interval over concepts: pictures of one concept succeed and fail
    together."""
    groups: dict[str, list[float]] = {}
    for value, name in zip(values, names, strict=True):
        groups.setdefault(name, []).append(float(value))
    n, count, mean = len(values), len(groups), float(np.mean(values))
    if count < 2:
        raise ValueError(f"an interval over concepts needs at least 2 of them, found {count}")
    residual = [sum(scores) - mean * len(scores) for scores in groups.values()]
    error = math.sqrt(count / (count - 1) * float(np.square(residual).sum())) / n
    reach = student_quantile(count - 1, 0.975) * error
    return mean, mean - reach, mean + reach


class NameRank(Distance):
    """The mean rank of each picture's own name among the held-out ones."""

    name = "name_rank"
    label, explain = METRICS["lite0.name_rank"].label, METRICS["lite0.name_rank"].explain
    unit, better = "share", "higher"
    interval = "95 %, over concepts"

    def __init__(
        self, namer: Namer, vectors: dict[str, Tensor], names: Sequence[str], estimator: str
    ) -> None:
        self.namer, self.vectors, self.names, self.estimator = namer, vectors, names, estimator

    def compute(self, pictures: Rows, reference: Any = None) -> Interval:
        return by_concept(
            self.scores(*ranks(self.namer, NamedRows(pictures.rows, self.names), self.vectors)),
            self.names,
        )

    def scores(self, rank: NDArray[np.float64], first: NDArray[np.bool_]) -> NDArray[np.float64]:
        return rank


class NameRecall(NameRank):
    """The share of pictures whose own name comes first."""

    name = "name_recall"
    label, explain = METRICS["lite0.name_recall"].label, METRICS["lite0.name_recall"].explain

    def scores(self, rank: NDArray[np.float64], first: NDArray[np.bool_]) -> NDArray[np.float64]:
        return first.astype(np.float64)


# --------------------------------------------------------------------------------------------------
# The record of a validation loss at fixed times and noises. The training code computes it; here it
# gets its card.


class TimeBin(Frozen):
    """Mean loss of the times in [low, high)."""

    low: float
    high: float
    n: int
    loss: float


class ValidationLoss(Frozen):
    """Mean loss over held-out pictures, each with its own fixed t and noise (a fresh draw each time
    is fault A15)."""

    n: int = Field(ge=2)
    loss: float
    sd: float = Field(ge=0)  # over pictures
    bins: tuple[TimeBin, ...] = ()
    latents: str  # hash of the codec: losses of two latent spaces are not on one scale
    objective: str  # what is predicted and how it is weighted: the same fence for the objective
    pictures: str  # fingerprint of the held-out pictures and captions
    draws: str  # key of the fixed times and noises

    @model_validator(mode="after")
    def _bins_cover(self) -> "ValidationLoss":
        if self.bins and sum(part.n for part in self.bins) != self.n:
            raise ValueError(
                f"the time bins hold {sum(part.n for part in self.bins)} pictures, expected"
                f" {self.n}"
            )
        return self

    def measured(self) -> Measured:
        """As a number with its card, which differs, and so refuses comparison, where the loss means
        another thing."""
        value, low, high = student(self.loss, self.sd, self.n)
        card = MetricCard(
            metric="validation_loss",
            better=METRICS["validation_loss"].better,
            estimator=f"mean of {self.objective}",
            interval=(
                "95 %, Student over pictures; arms share pictures, times and noises, so pair "
                "them by seed"
            ),
            extractor=self.latents,
            n=self.n,
            reference=self.pictures,
            noise=self.draws,
        )
        return Measured(value=value, low=low, high=high, card=card)
