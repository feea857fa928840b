"""Previews: a few fixed prompts and noises drawn while a run trains, and the held-out loss beside them."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from fulcrum.networks.text import readable
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.study.run.curve_lines import CURVE, append_to_curve, read_lines, write_curve
from fulcrum.study.run.measuring.run_evaluation import SEED, Held, prompts
from fulcrum.training.average import shared_weights
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.collectives import of_first
from fulcrum.training.loop import Look, Observer
from fulcrum.training.observers import Alarm, Every, collapsed, sound
from fulcrum.training.painter import KnownPrompts, Painter
from fulcrum.training.pictures import save_sheet
from fulcrum.training.run_folder import RunEvents, RunFolder
from fulcrum.training.trackers import Watchers
from fulcrum.training.trained_run import shared_sheet

LOOKS = 5  # per budget
SHOWN = 8  # pictures, unless a person gives prompts
SHARE = 0.05  # of the time that training took, which pictures may take
COLUMNS = 4  # of a sheet
PASSES = 3  # of a picture through the denoiser make a step with it: forward, and twice as much backward


class PreviewPlan(NamedTuple):
    """What a person asked to see."""

    prompts: tuple[str, ...] = ()  # none: held-out captions
    every: int | None = None  # images between two sheets, 0: none at all; None: a fifth of the budget


USUAL = PreviewPlan()


class HeldCurve:
    """Writes a line of curve.jsonl: the held-out loss."""

    def __init__(self, built: Built, folder: RunFolder, state: State) -> None:
        feed, self.folder, self.last = built.feed, folder.path, ""
        self.held = Held(built.run, feed.codec(), feed.text(), feed.root, built.system.bare(), built.ranks)
        if built.ranks.first:
            kept = [line for line in read_lines(self.folder / CURVE, None) if line["images"] <= state.images]
            self.last = write_curve(self.folder, kept)  # a resumed run writes its later points again

    def __call__(self, look: Look, weights: Mapping[str, Tensor]) -> None:
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
    """Writes previews/<images>.png, a sheet of pictures over their prompts. Where they would take too long, fewer are
    drawn: they are to be looked at, and nothing is computed from them."""

    def __init__(self, built: Built, folder: RunFolder, state: State, wanted: Sequence[str] = ()) -> None:
        self.folder, self.wanted = folder.path, list(wanted) or prompts(built.run, SHOWN).texts
        self.codec, text = built.feed.codec(), built.feed.text()
        self.picture_seconds: float | None = None  # of one, as it was measured last
        self.said, self.collapse = False, ""  # what is wrong with the last pictures, if they are nearly the same
        self.read, cut = readable(text, self.wanted)
        for line in cut if wanted else ():
            built.feed.tell(f"previews: {line}")
        try:
            self.text = KnownPrompts(text, self.read)  # what is wrong is said before the first step, not at the first look
        except ValueError as error:
            raise BadInput(f"a preview's prompt: {error}", "mend the line of --preview-prompts") from None

    def __call__(self, look: Look, weights: Mapping[str, Tensor], seconds: float) -> float:
        """Draw what can be drawn in so many seconds; returns those that it took."""
        begun, self.collapse, ranks = time.perf_counter(), "", look.built.ranks
        count = of_first(self.affordable(look, seconds) if ranks.first else 0, ranks)  # clocks of processes differ
        if not count:
            return 0.0
        pictures = self.drawn(look, weights, count)
        if pictures is None:  # no room on a GPU, which also holds the training; what was taken for it is free again
            look.built.feed.tell(
                f"the GPU has no room for previews beside the training: none at {look.images:,} images; the run goes on"
            )
            return time.perf_counter() - begun
        if ranks.first:
            self.show(look, pictures)
        taken = time.perf_counter() - begun
        self.picture_seconds = taken / count
        return taken

    def show(self, look: Look, pictures: Tensor) -> None:
        """Look at them and write the sheet."""
        count, shown = len(pictures), self.folder / "previews"
        self.collapse = collapsed(pictures, self.wanted[:count])
        try:
            if shown.is_symlink():
                raise RunFailed(f"cannot write into {shown}: it is a link, expected a folder")
            save_sheet(pictures.unbind(), self.wanted[:count], shown / f"{look.state.images:012d}.png", COLUMNS)
        except RunFailed as error:  # a picture to look at: the run goes on without it
            look.built.feed.tell(f"{error.message}; this preview is left out")

    def drawn(self, look: Look, weights: Mapping[str, Tensor], count: int) -> Tensor | None:
        """So many pictures, by painters that last no longer."""
        run, bare = look.built.run, look.built.system.bare()
        return shared_sheet(
            lambda: Painter(run, weights, self.codec, self.text, bare), run.data.size, self.read[:count], SEED,
            look.built.ranks,
        )  # fmt: skip

    def affordable(self, look: Look, seconds: float) -> int:
        """Pictures that can be drawn in so many seconds; at the end one at least."""
        run, state = look.built.run, look.state
        passes = run.sample.steps * (1 if getattr(run.sample.guide, "scale", 1.0) == 1.0 else 2)
        one = self.picture_seconds or state.seconds / max(state.images, 1) / PASSES * passes  # before the first: a guess
        last = state.images >= run.budget.images
        count = min(len(self.wanted), max(int(seconds / max(one, 1e-9)), int(last)))
        if count < len(self.wanted) and not self.said and not look.built.feed.cache.quiet:
            self.said = True
            drawn = f"{count} of {len(self.wanted)} preview pictures are" if count else "no preview picture is"
            look.built.feed.tell(
                f"{drawn} drawn after {state.images:,} images: drawing may take {SHARE:.0%} of training's time and no more "
                "(at the end one at least is drawn)"
            )
        return count


class Looks:
    """The looks of a run, and the time that their pictures may take together; all processes take part in each."""

    def __init__(self, curve: HeldCurve, preview: Preview | None, state: State) -> None:
        self.curve, self.preview, self.begun, self.spent = curve, preview, state.seconds, 0.0

    def at(self, curve: bool, pictures: bool) -> Callable[[Look], str]:
        """What is done at a look; it gives back what is wrong with the pictures, or nothing."""

        def act(look: Look) -> str:
            weights = shared_weights(look.built.step, look.built.average, look.built.ranks)
            if curve:
                self.curve(look, weights)
            if pictures and self.preview is not None:
                left = SHARE * (look.state.seconds - self.begun) - self.spent
                self.spent += self.preview(look, weights, left)
                return self.preview.collapse
            return ""

        return act


def _sounding(act: Callable[[Look], str], events: RunEvents) -> Callable[[Look], None]:
    """All processes learn of pictures that have collapsed, and do the same about it."""

    def look_at(look: Look) -> None:
        if why := of_first(act(look), look.built.ranks):
            sound(Alarm("collapse", look.images, why), look.built, events)

    return look_at


def previews(built: Built, folder: RunFolder, state: State, plan: PreviewPlan = USUAL) -> list[Observer]:
    """All processes draw, each its share; the first writes."""
    stretch = max(built.run.budget.images // LOOKS, built.run.budget.batch)
    own = stretch if plan.every is None else plan.every
    looks = Looks(HeldCurve(built, folder, state), Preview(built, folder, state, plan.prompts) if own else None, state)
    events = RunEvents(folder.path, built.feed.tell)
    curve = _sounding(looks.at(curve=True, pictures=own == stretch), events)
    own_looks = _sounding(looks.at(curve=False, pictures=True), events)
    observer = Every(stretch, curve, state.images, at_end=True)
    return [observer] if own in (0, stretch) else [observer, Every(own, own_looks, state.images, at_end=True)]


def previewing(plan: PreviewPlan) -> Watchers:
    """What `perform` takes as observers."""
    return lambda built, folder, state: previews(built, folder, state, plan)
