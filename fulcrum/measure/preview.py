"""Previews while a run trains: a few fixed prompts, the held-out loss, and their curves."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import explained, open_regular
from fulcrum.files.sealed import append_records, parse_line, seal
from fulcrum.measure.evaluation import SEED, Held, prompts
from fulcrum.networks.text import readable
from fulcrum.spec.edit import require_seed
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.training.average import shared_weights
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.cost_record import sessions
from fulcrum.training.dist.collectives import of_first, require_agreement
from fulcrum.training.dist.ranks import TIMEOUT, start
from fulcrum.training.kept_weights import keeping
from fulcrum.training.loop import Observer, StepReport
from fulcrum.training.observers import Alarm, Every, collapsed, sound
from fulcrum.training.painter import KnownPrompts, Painter
from fulcrum.training.pictures import save_sheet
from fulcrum.training.run_folder import RunEvents, RunFolder
from fulcrum.training.session import Order, perform
from fulcrum.training.trackers import RunLabels, Trackers, Watchers, together
from fulcrum.training.trained_run import shared_sheet

# --------------------------------------------------------------------------------------------------
# The lines that a cell writes as it trains, held to the hashes that were taken when it was
# measured.
#
# Until then every line of its curve carries a checksum of itself and of all lines before it.


CURVE = "curve.jsonl"
NUMBERS = {CURVE: ("images", "seconds", "validation_loss"), "record.jsonl": ("images", "loss")}

HINT = (
    "put it back as it was, or remove the run with 'fulcrum runs rm' and run the study again: it is"
    " trained anew"
)


class _Content(NamedTuple):
    sha256: str
    lines: int
    last: bytes  # line; while it is written, a part of one


def write_curve(folder: Path, lines: Sequence[Mapping[str, Any]]) -> str:
    """A curve from its beginning on; returns the checksum of its last line."""
    checked, last = list[dict[str, Any]](), ""
    for line in lines:
        last = _check(folder, line, last)
        checked.append({**line, "check": last})
    write_atomic(folder / CURVE, "".join(json.dumps(line) + "\n" for line in checked), flush=False)
    return last


def append_to_curve(folder: Path, line: Mapping[str, Any], last: str) -> str:
    """`last` is the checksum of the line before, empty for the first; returns that of this one."""
    check = _check(folder, line, last)
    append_records(folder / CURVE, {**line, "check": check})
    return check


NOT_ENDED: Mapping[str, str] = {}  # of a run that may still write: no hashes


def hashes(folder: Path) -> dict[str, str]:
    """Of a run that has ended: nothing is written to these files any more."""
    return {name: _look(folder / name, flush=True).sha256 for name in NUMBERS}


def require_unchanged(folder: Path, measured: Mapping[str, Any]) -> None:
    """A cell that was not `measured` is held to the checksums in its curve."""
    expected = line_hashes(measured)
    for name in NUMBERS:
        _require(folder / name, _look(folder / name), expected)
    if CURVE not in expected:
        read_lines(folder / CURVE)


def read_lines(
    path: Path, expected: Mapping[str, str] = NOT_ENDED, most: int | None = None
) -> list[dict[str, Any]]:
    """Lines of a file of `NUMBERS`, thinned to about `most`, the last always among them.

    `expected` are the hashes of the files of a cell that was measured. Those of another may still
    be written to, so its last line may be cut off.
    """
    seen = _look(path)
    _require(path, seen, expected)
    step = max(-(-seen.lines // most), 1) if most else 1
    first = max(seen.lines - 1, 0) % step
    cut = not (seen.last.startswith(b"{") and seen.last.endswith(b"}"))
    texts = islice(_texts(path), first, max(seen.lines - cut, 0), step)
    lines = [_line(path, first + place * step, text) for place, text in enumerate(texts)]
    if path.name == CURVE and path.name not in expected:
        _require_chain(path, lines)
    return lines


def _require_chain(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Curves that were begun before lines had checksums have none at all."""
    last = ""
    for place, line in enumerate(lines if any("check" in line for line in lines) else ()):
        if line.get("check") != _check(path.parent, line, last):
            raise BadInput(
                f"line {place + 1} of {path} was changed after it was written: its checksum does"
                " not fit",
                HINT,
            )
        last = line["check"]


def _check(folder: Path, line: Mapping[str, Any], last: str) -> str:
    """The folder is the cell's key: a curve does not fit into another cell."""
    return seal({**line, "after": [folder.name, last]})[:16]


def _line(path: Path, place: int, text: bytes) -> dict[str, Any]:
    line, needed = parse_line(text).value, NUMBERS[path.name]
    if line is None or not all(isinstance(line.get(name), int | float) for name in needed):
        raise BadInput(
            f"line {place + 1} of {path} cannot be read: expected a JSON object with the numbers "
            f"{', '.join(needed)}, found {text.decode(errors='replace')[:60]!r}",
            HINT,
        )
    return line


def _require(path: Path, seen: _Content, expected: Mapping[str, str]) -> None:
    """Cells that were measured before hashes were taken have none."""
    if seen.sha256 != expected.get(path.name, seen.sha256):
        raise BadInput(
            f"{path} was changed after the cell was measured: its checksum does not fit", HINT
        )


def line_hashes(measured: Mapping[str, Any]) -> Mapping[str, str]:
    """The hashes of the files of `NUMBERS` that stand in what was measured of a cell."""
    hashes = measured.get("lines", {})
    if not isinstance(hashes, dict):
        raise BadInput(f"what was measured holds no hashes of lines but {repr(hashes)[:60]}", HINT)
    return hashes


def _look(path: Path, flush: bool = False) -> _Content:
    """What a file holds, read line by line: a record of weeks is large. Flushed, it outlasts a
    power cut with its hash."""
    digest, lines, last = hashlib.sha256(), 0, b""
    for text in _texts(path, flush, ends=True):
        digest.update(text)
        lines, last = lines + 1, text
    return _Content(digest.hexdigest(), lines, last.rstrip(b"\r\n"))


def _texts(path: Path, flush: bool = False, ends: bool = False) -> Iterator[bytes]:
    """Its lines, with their `ends` if they are asked for; a file that is not there has none."""
    if not os.path.lexists(path):
        return
    with (
        explained("read", path, hint=HINT, kind=BadInput),
        open(open_regular(path), "rb") as stream,
    ):
        if flush:
            os.fsync(stream.fileno())
        for text in stream:
            yield text if ends else text.rstrip(b"\r\n")


# --------------------------------------------------------------------------------------------------
# Previews: a few fixed prompts and noises drawn while a run trains, and the held-out loss beside
# them.


LOOKS = 5  # per budget
SHOWN = 8  # pictures, unless a person gives prompts
SHARE = 0.05  # of the time that training took, which pictures may take
COLUMNS = 4  # of a sheet
# of a picture through the denoiser make a step with it: forward, and twice as much backward
PASSES = 3


class PreviewPlan(NamedTuple):
    """What a person asked to see."""

    prompts: tuple[str, ...] = ()  # none: held-out captions
    #: images between two sheets, 0: none at all; None: a fifth of the budget
    every: int | None = None


USUAL = PreviewPlan()


class HeldCurve:
    """Writes a line of curve.jsonl: the held-out loss."""

    def __init__(self, built: Built, folder: RunFolder, state: State) -> None:
        feed, system = built.feed, built.system.bare()
        self.folder = folder.path
        self.last = ""
        self.held = Held(built.run, feed.codec(), feed.text(), feed.root, system, built.ranks)
        if built.ranks.first:
            kept = [
                line for line in read_lines(self.folder / CURVE) if line["images"] <= state.images
            ]
            # a resumed run writes its later points again
            self.last = write_curve(self.folder, kept)

    def __call__(self, look: StepReport, weights: Mapping[str, Tensor]) -> None:
        loss = self.held.loss(weights)
        if not look.built.ranks.first:
            return
        line = {
            "images": look.state.images,
            "seconds": round(look.state.seconds, 3),
            "validation_loss": loss.loss,
            "bins": [part.loss for part in loss.bins],
        }
        self.last = append_to_curve(self.folder, line, self.last)


class Preview:
    """Writes previews/<images>.png, a sheet of pictures over their prompts. Where they would take
    too long, fewer are drawn: they are to be looked at, and nothing is computed from them."""

    def __init__(
        self, built: Built, folder: RunFolder, state: State, wanted: Sequence[str] = ()
    ) -> None:
        self.folder, self.wanted = folder.path, list(wanted) or prompts(built.run, SHOWN).texts
        self.codec, text = built.feed.codec(), built.feed.text()
        self.picture_seconds: float | None = None  # of one, as it was measured last
        # what is wrong with the last pictures, if they are nearly the same
        self.said, self.collapse = False, ""
        self.read, cut = readable(text, self.wanted)
        for line in cut if wanted else ():
            built.feed.tell(f"previews: {line}")
        try:
            # what is wrong is said before the first step, not at the first look
            self.text = KnownPrompts(text, self.read)
        except ValueError as error:
            raise BadInput(
                f"a preview's prompt: {error}", "mend the line of --preview-prompts"
            ) from None

    def __call__(self, look: StepReport, weights: Mapping[str, Tensor], seconds: float) -> float:
        """Draw what can be drawn in so many seconds; returns those that it took."""
        begun, self.collapse, ranks = time.perf_counter(), "", look.built.ranks
        # clocks of processes differ
        count = of_first(self.affordable(look, seconds) if ranks.first else 0, ranks)
        if not count:
            return 0.0
        pictures = self.drawn(look, weights, count)
        # no room on a GPU, which also holds the training; what was taken for it is free again
        if pictures is None:
            look.built.feed.tell(
                "the GPU has no room for previews beside the training: none at"
                f" {look.state.images:,} images; the run goes on"
            )
            return time.perf_counter() - begun
        if ranks.first:
            self.show(look, pictures)
        taken = time.perf_counter() - begun
        self.picture_seconds = taken / count
        return taken

    def show(self, look: StepReport, pictures: Tensor) -> None:
        """Look at them and write the sheet."""
        count, shown = len(pictures), self.folder / "previews"
        self.collapse = collapsed(pictures, self.wanted[:count])
        try:
            if shown.is_symlink():
                raise RunFailed(f"cannot write into {shown}: it is a link, expected a folder")
            save_sheet(
                pictures.unbind(),
                self.wanted[:count],
                shown / f"{look.state.images:012d}.png",
                COLUMNS,
            )
        except RunFailed as error:  # a picture to look at: the run goes on without it
            look.built.feed.tell(f"{error.message}; this preview is left out")

    def drawn(self, look: StepReport, weights: Mapping[str, Tensor], count: int) -> Tensor | None:
        """So many pictures, by painters that last no longer."""
        run, bare = look.built.run, look.built.system.bare()
        return shared_sheet(
            lambda: Painter(run, weights, self.codec, self.text, bare),
            run.data.size,
            self.read[:count],
            SEED,
            look.built.ranks,
        )

    def affordable(self, look: StepReport, seconds: float) -> int:
        """Pictures that can be drawn in so many seconds; at the end one at least."""
        run, state = look.built.run, look.state
        passes = run.sample.steps * (1 if getattr(run.sample.guide, "scale", 1.0) == 1.0 else 2)
        # before the first: a guess
        one = self.picture_seconds or state.seconds / max(state.images, 1) / PASSES * passes
        last = state.images >= run.budget.images
        count = min(len(self.wanted), max(int(seconds / max(one, 1e-9)), int(last)))
        if count < len(self.wanted) and not self.said and not look.built.feed.cache.quiet:
            self.said = True
            drawn = (
                f"{count} of {len(self.wanted)} preview pictures are"
                if count
                else "no preview picture is"
            )
            look.built.feed.tell(
                f"{drawn} drawn after {state.images:,} images: drawing may take {SHARE:.0%} of"
                " training's time and no more (at the end one at least is drawn)"
            )
        return count


class Looks:
    """The looks of a run, and the time that their pictures may take together; all processes take
    part in each."""

    def __init__(self, curve: HeldCurve, preview: Preview | None, state: State) -> None:
        self.curve, self.preview, self.begun, self.spent = curve, preview, state.seconds, 0.0

    def at(self, curve: bool, pictures: bool) -> Callable[[StepReport], str]:
        """What is done at a look; it gives back what is wrong with the pictures, or nothing."""

        def act(look: StepReport) -> str:
            weights = shared_weights(look.built.step, look.built.average, look.built.ranks)
            if curve:
                self.curve(look, weights)
            if pictures and self.preview is not None:
                left = SHARE * (look.state.seconds - self.begun) - self.spent
                self.spent += self.preview(look, weights, left)
                return self.preview.collapse
            return ""

        return act


def _sounding(act: Callable[[StepReport], str], events: RunEvents) -> Callable[[StepReport], None]:
    """All processes learn of pictures that have collapsed, and do the same about it."""

    def look_at(look: StepReport) -> None:
        if why := of_first(act(look), look.built.ranks):
            sound(Alarm("collapse", look.state.images, why), look.built, events)

    return look_at


def previews(
    built: Built, folder: RunFolder, state: State, plan: PreviewPlan = USUAL
) -> list[Observer]:
    """All processes draw, each its share; the first writes."""
    stretch = max(built.run.budget.images // LOOKS, built.run.budget.batch)
    own = stretch if plan.every is None else plan.every
    looks = Looks(
        HeldCurve(built, folder, state),
        Preview(built, folder, state, plan.prompts) if own else None,
        state,
    )
    events = RunEvents(folder.path, built.feed.tell)
    curve = _sounding(looks.at(curve=True, pictures=own == stretch), events)
    own_looks = _sounding(looks.at(curve=False, pictures=True), events)
    observer = Every(stretch, curve, state.images, at_end=True)
    return (
        [observer]
        if own in (0, stretch)
        else [observer, Every(own, own_looks, state.images, at_end=True)]
    )


def previewing(plan: PreviewPlan) -> Watchers:
    """What `perform` takes as observers."""
    return lambda built, folder, state: previews(built, folder, state, plan)


# --------------------------------------------------------------------------------------------------
# Training outside of a study: a run with its previews, its bill and the trackers that were asked
# for.


def train_run(
    order: Order,
    say: Callable[[str], None],
    track: Sequence[str] = (),
    plan: PreviewPlan = USUAL,
    kept: int = 0,
    timeout: float = TIMEOUT,
) -> tuple[dict[str, Any], bool]:
    """The result of the run, and whether this is the first of its processes: only that one speaks.
    `kept`: points of the training at which its weights are kept to be drawn with; `timeout`:
    seconds that a process waits for another."""
    require_seed(order.seed)
    trackers = Trackers(track, RunLabels("runs", order.phrase, order.seed))
    watchers = together(previewing(plan), keeping(kept), sessions, trackers.watch)
    with start(order.system.device, timeout) as ranks, trackers:
        require_agreement(
            ranks, "what to draw and keep", {"previews": list(plan), "--keep-checkpoints": kept}
        )
        return perform(order, say if ranks.first else _unheard, watchers, ranks), ranks.first


def _unheard(text: str) -> None:
    """What all processes would say is said once."""
