"""A store without what its user does not want: too small, alike, badly captioned, ill-fitting. What went is in the ledger.

Held-out pictures stay unless they are asked for too: a run on either store is then judged by the same pictures.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.store.derived_store import REQUEST, Decided, derive, made_already, partial_of, tidy, unfinished
from fulcrum.data.store.near_duplicates import alike, store_looks
from fulcrum.data.store.picture_store import (
    ABOUT,
    CARD,
    LEDGER,
    LINES,
    SHARDS,
    SPLITS,
    TABLES,
    PictureStore,
    caption_names,
    read_about,
)
from fulcrum.data.store.remote_store import local_folder
from fulcrum.data.texts.caption_rules import CaptionRules
from fulcrum.files.atomic import is_aside, rename_folder, write_json
from fulcrum.files.folders import LOCK, BeginMark, require_begun
from fulcrum.files.sealed import sha256_json
from fulcrum.spec.errors import BadInput, nearest

Say = Callable[[str], None]
_TABLES = "|".join(map(re.escape, (LOCK, *TABLES, LINES, LEDGER, CARD, ABOUT)))
_OURS = re.compile(rf"{_TABLES}|part-\d{{5}}\.jsonl|{SHARDS}/\d{{5}}(\.writing|-[0-9a-f]{{16}}\.tar)")
MOST_BITS = 12  # of 64: beyond that, hashes of pictures that have nothing in common meet


def _of_before(partial: Path) -> bool:
    """Is it what a killed filter left before filters wrote a mark: under its lock, all of it by names that it gives?"""
    files = [path.relative_to(partial) for path in partial.rglob("*") if not path.is_dir() or path.is_symlink()]
    lock = partial / LOCK
    return (
        lock.is_file() and not lock.stat().st_size and all(_OURS.fullmatch(str(path)) or is_aside(path) for path in files)
    )


BEGUN = BeginMark("filter.json", "filter", "filter", _of_before)


@dataclass(frozen=True)
class FilterRules:
    """What stays; none of a bound: not asked."""

    least_side: int | None = None  # of the picture as it was given
    most_aspect: float | None = None  # longer to shorter side, as given
    duplicates: int | None = None  # bits in which perceptual hashes of alike pictures may differ
    caption: str = ""  # the column that the rules and scores are about; empty: not asked
    rules: CaptionRules | None = None
    least_score: float | None = None
    drop: float | None = None  # share of the training pictures that goes, worst scores first
    held_out: bool = False  # held-out pictures are filtered too

    def plain(self) -> dict[str, Any]:
        """What is asked for, as it is written down."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def checked(self, store: PictureStore, scored: bool) -> None:
        if self.duplicates is not None and not 0 <= self.duplicates <= MOST_BITS:
            raise BadInput(f"--duplicates is a number of bits from 0 to {MOST_BITS}, found {self.duplicates}")
        if (self.least_score is not None or self.drop is not None) != scored:
            raise BadInput(
                "scores and what to do with them go together",
                "--scores FILE or --score NAME with --least-score X or --drop SHARE",
            )
        if self.drop is not None and not 0 < self.drop < 1:
            raise BadInput(f"--drop is a share between 0 and 1, found {self.drop}")
        names = caption_names(store.about)
        if self.caption and self.caption not in names:
            raise BadInput(f"not every picture has a caption '{self.caption}'", nearest(self.caption, names))
        asked = (self.least_side, self.most_aspect, self.duplicates, self.rules, self.least_score, self.drop)
        if all(one is None for one in asked):
            raise BadInput("nothing is asked for: every picture would stay", "such as --duplicates 4 or --least-side 256")


def filter_store(
    folder: Path, to: Path, wanted: FilterRules, scores: NDArray[np.float64] | None, say: Say, about: dict[str, Any]
) -> dict[str, Any]:
    """Write the new store; `scores` (rows,) with nan where there is none. `about`: who scored. Returns store.json."""
    if done := filtered_already(folder, to, wanted, scores is not None, say, about):
        return done
    store = PictureStore(local_folder(folder))
    reasons = _reasons(store, wanted, scores, say)
    asked = {"filter": {**wanted.plain(), **about}, REQUEST: _request(store.about, wanted, about)}
    with unfinished(to, BEGUN) as partial:
        write_json(partial / BEGUN.name, asked)
        derive(
            store,
            partial,
            lambda row: Decided("dropped", reasons[row]) if row in reasons else Decided("kept"),
            lambda: {"generator": "fulcrum data filter", **asked},
            True,
            say,
        )
        rename_folder(partial, to)
    tidy(to, BEGUN)
    return read_about(to)


def filtered_already(
    folder: Path, to: Path, wanted: FilterRules, scored: bool, say: Say, about: dict[str, Any]
) -> dict[str, Any] | None:
    """All that can be refused before anybody scores; store.json, where this very filter is done."""
    store = PictureStore(local_folder(folder), verify=False)
    done = made_already(to, _request(store.about, wanted, about), BEGUN, say)
    wanted.checked(store, scored)
    require_begun(partial_of(to), BEGUN)
    return done


def _request(parent: dict[str, Any], wanted: FilterRules, about: dict[str, Any]) -> str:
    return sha256_json({"parent": parent["content"], "filter": {**wanted.plain(), **about}})


def _reasons(store: PictureStore, wanted: FilterRules, scores: NDArray[np.float64] | None, say: Say) -> dict[int, str]:
    """Row -> why it goes: the first rule that it breaks, in the order of what is cheap to know."""
    judged = np.ones(len(store), bool) if wanted.held_out else store.rows["split"] == SPLITS.index("train")
    reasons: dict[int, str] = {}
    for row in np.flatnonzero(judged).tolist():
        if why := _by_size(store, wanted, row) or _by_caption(store, wanted, row):
            reasons[row] = why
    if scores is not None:
        reasons |= _by_score(wanted, scores, [row for row in np.flatnonzero(judged).tolist() if row not in reasons])
    if wanted.duplicates is not None:
        reasons |= _by_likeness(store, wanted.duplicates, judged, reasons, say)
    return reasons


def _by_size(store: PictureStore, wanted: FilterRules, row: int) -> str:
    width, height = (int(store.rows[row][name]) for name in ("width", "height"))
    if wanted.least_side is not None and min(width, height) < wanted.least_side:
        return f"too small: {width} x {height}, a side has at least {wanted.least_side}"
    if wanted.most_aspect is not None and max(width, height) > wanted.most_aspect * min(width, height):
        return f"too long and thin: {width} x {height}, at most {wanted.most_aspect:g} to 1"
    return ""


def _by_caption(store: PictureStore, wanted: FilterRules, row: int) -> str:
    """Every wording under the name must pass."""
    if wanted.rules is None:
        return ""
    style = wanted.caption.rsplit("_", 1)[-1]
    for text in store.captions(row)[wanted.caption]:
        if fault := wanted.rules.fault(text, style if style == "tags" else ""):
            kind, _, particulars = fault.partition(":")
            return f"caption {kind}: {wanted.caption},{particulars}" if particulars else f"caption {kind}"
    return ""


def _by_score(wanted: FilterRules, scores: NDArray[np.float64], rows: list[int]) -> dict[int, str]:
    if missing := [row for row in rows if np.isnan(scores[row])]:
        raise BadInput(
            f"{len(missing):,} pictures have no score, such as row {missing[0]}", "score them too, or --held-out less"
        )
    if wanted.least_score is not None:
        return {
            row: f"score: {scores[row]:.4g}, at least {wanted.least_score:g}"
            for row in rows
            if scores[row] < wanted.least_score
        }
    worst = sorted(rows, key=lambda row: (scores[row], row))[: round((wanted.drop or 0) * len(rows))]
    return {row: f"score among the worst {wanted.drop:.0%}: {scores[row]:.4g}" for row in worst}


def _by_likeness(
    store: PictureStore, bits: int, judged: NDArray[np.bool_], gone: dict[int, str], say: Say
) -> dict[int, str]:
    """Of pictures that look alike one stays: a held-out one before a training one, then the largest, then the first. A
    training picture that looks like a held-out one goes: it would tell the answer."""
    hashes, thumbs = store_looks(store, say)
    area = store.rows["width"].astype(np.int64) * store.rows["height"]
    left = np.array([row in gone for row in range(len(store))])
    rank = np.argsort(np.argsort(_ranked(left, ~judged, area), kind="stable"), kind="stable")
    best = alike(hashes, thumbs, rank, bits)
    goes = (best != np.arange(len(store))) & judged & ~left
    return {row: f"alike: it looks like {store.name(int(best[row]))}" for row in np.flatnonzero(goes).tolist()}


def _ranked(left: NDArray[np.bool_], held: NDArray[np.bool_], area: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number for each picture; the lowest of a group stays."""
    ranked: NDArray[np.float64] = left * 4.0 + ~held * 2.0 - area / (area.max() + 1)
    return ranked
