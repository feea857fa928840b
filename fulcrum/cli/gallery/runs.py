"""The runs of a gallery: opened once, kept while there is memory, and what a page may ask for."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, field_validator

from fulcrum.judge.figures import COLOURS, colour
from fulcrum.judge.page import read as read_result
from fulcrum.judge.schema import StudyResult
from fulcrum.spec.edit import read
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.record import Filler, Frozen
from fulcrum.spec.run import RunSpec, System
from fulcrum.training.dist.choose_system import device_named
from fulcrum.training.kept_weights import points, weights_at
from fulcrum.training.painter import Painter, cells
from fulcrum.training.run_folder import RunFolder, require_parts
from fulcrum.training.trained_run import find_run, run_label, runs_under

# --------------------------------------------------------------------------------------------------
# What the page may ask for: a prompt, a noise, settings and columns, each within a limit; nothing
# of it is a path.


MOST_LETTERS, MOST_PICTURES, MOST_STEPS, MOST_COLUMNS, MOST_GUIDANCE = 2000, 8, 200, 12, 100.0
MOST_SEED = 2**53 - 1  # a browser counts no further


class WantedColumn(Frozen):
    key: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]  # of a run of the gallery
    at: Annotated[int | None, Field(ge=1)] = None  # images seen; none: its newest weights


class GalleryRequest(Frozen):
    #: who asks: a newer request of the same page ends this one
    page: Annotated[str, Field(pattern="^[0-9a-z]{1,32}$")]
    prompt: Annotated[str, Field(max_length=MOST_LETTERS)]
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 0
    count: Annotated[int, Field(ge=1, le=MOST_PICTURES)] = 1  # pictures of each run
    guidance: Annotated[float | None, Field(gt=0, le=MOST_GUIDANCE)] = None  # none: each run's own
    steps: Annotated[int | None, Field(ge=1, le=MOST_STEPS)] = None
    columns: Annotated[tuple[WantedColumn, ...], Field(min_length=1, max_length=MOST_COLUMNS)]

    @field_validator("prompt")
    @classmethod
    def _one_line(cls, prompt: str) -> str:
        """Letters that cannot be seen become spaces: the prompt is pasted into terminals."""
        return "".join(letter if letter.isprintable() else " " for letter in prompt).strip()


# --------------------------------------------------------------------------------------------------
# What hangs in the gallery: runs that can be drawn with, chosen at the start; and those that
# cannot, with the reason.


MOST_RUNS = 64  # that a person can choose from
RESULT = "report.json"


class Exhibit(NamedTuple):
    """One run of the gallery."""

    folder: RunFolder
    run: RunSpec
    name: str  # for people
    origin: str  # phrase and seed, as `fulcrum sample` writes them into a picture
    colour: str  # classes of the style sheet

    @property
    def key(self) -> str:
        return self.folder.path.name

    @property
    def noise(self) -> tuple[object, ...]:
        """Runs that agree in this begin from the same noise."""
        size = self.run.data.size
        return (
            self.run.encode.codec.channels,
            *cells(self.run, (size, size)),
            self.run.flow.noise_scale,
        )

    def facts(self) -> dict[str, Any]:
        """What the page knows of it, as the folder stands now."""
        known, finished = points(self.folder), (self.folder.path / "result.json").exists()
        budget, size = self.run.budget.images, self.run.data.size
        now = known[-1] if known else 0
        return {
            "key": self.key,
            "name": self.name,
            "detail": " · ".join(
                [*([self.origin] if self.origin != self.name else []), self.key[:8], f"{size} px"]
            ),
            "state": "" if finished else f"not finished: at {now:,} of {budget:,} images",
            "colour": self.colour,
            "points": known,
            "guidance": float(getattr(self.run.sample.guide, "scale", 1.0)),
            "steps": self.run.sample.steps,
            "noise": repr(self.noise),
            "size": size,
        }


class Absent(NamedTuple):
    """A run that was asked for and cannot be drawn with."""

    name: str
    reason: str


class Collection(NamedTuple):
    """All of it, as it was when the gallery was opened."""

    title: str
    exhibits: tuple[Exhibit, ...]
    absent: tuple[Absent, ...] = ()
    study: Path | None = None  # the folder of the study whose arms these are

    def by_key(self, key: str) -> Exhibit | None:
        return next((exhibit for exhibit in self.exhibits if exhibit.key == key), None)


class _Hanging(NamedTuple):
    """A run on its way into the gallery."""

    path: Path
    name: str = ""  # empty: its phrase
    colour: str = ""


def named_runs(names: Sequence[str], out: Path, fillers: tuple[type[Filler], ...]) -> Collection:
    """Runs by folder, key or the beginning of a key; none named: all under `out`, the newest
    first."""
    if names:
        paths = list(dict.fromkeys(find_run(name, out) for name in names))
    else:
        paths = sorted(
            runs_under(out), key=lambda path: (path / "about.json").stat().st_mtime, reverse=True
        )[:MOST_RUNS]
    if not paths:
        raise BadInput(
            f"there are no runs under {out}",
            "train one with: fulcrum train spark; or name the place: --out",
        )
    return _hung("", [_Hanging(path) for path in paths], fillers)


def arms_of(study: Path, seed: int | None, fillers: tuple[type[Filler], ...]) -> Collection:
    """A study's arms under one seed, the baseline first, then best first; no seed: the first that
    most arms have."""
    try:
        result = read_result(study / RESULT)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{study} holds no study's result that can be read: {str(error).splitlines()[0]}",
            "give a plan, or the folder of a study: runs/study-...; fulcrum study run makes one",
        ) from None
    wanted = _best_seed(result) if seed is None else seed
    if wanted not in result.plan.seeds:
        raise BadInput(
            f"the study has no cells of seed {wanted}",
            f"it has: {', '.join(map(str, result.plan.seeds))}; choose with --seed",
        )
    hanging, absent = [], []
    for arm in (
        result.baseline,
        *(result.combinations or [a for a in result.ranked if a.name != result.baseline.name]),
    ):
        cell = next((cell for cell in arm.cells if cell.seed == wanted), None)
        if cell is None or not (study.parent / cell.key / "about.json").is_file():
            absent.append(Absent(arm.label, f"no run of seed {wanted} lies beside the study"))
        else:
            hanging.append(_Hanging(study.parent / cell.key, arm.label, colour(result, arm)))
    hung = _hung(f"{result.title}, seed {wanted}", hanging[:MOST_RUNS], fillers, absent)
    return hung._replace(study=study)


def _best_seed(result: StudyResult) -> int:
    done = {seed: 0 for seed in result.plan.seeds}
    for arm in result.trained:
        for cell in arm.cells:
            done[cell.seed] = done.get(cell.seed, 0) + (cell.state == "done")
    return max(result.plan.seeds, key=lambda seed: done[seed])


def _hung(
    title: str,
    hanging: Iterable[_Hanging],
    fillers: tuple[type[Filler], ...],
    before: Iterable[Absent] = (),
) -> Collection:
    exhibits: list[Exhibit] = []
    absent = list(before)
    for place, one in enumerate(hanging):
        name = one.name or one.path.name[:8]
        try:
            exhibits.append(_exhibit(one, f"arm-{1 + place % COLOURS}", fillers))
        except (FulcrumError, KeyError, TypeError, RecursionError) as error:
            absent.append(Absent(name, getattr(error, "message", "its description is damaged")))
    if not exhibits:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in absent[:4])
        raise BadInput(
            f"none of the runs can be drawn with: {reasons}", "train one: fulcrum train spark"
        )
    several = f"{len(exhibits)} runs side by side" if len(exhibits) > 1 else exhibits[0].name
    return Collection(title or several, tuple(exhibits), tuple(absent))


def _exhibit(one: _Hanging, usual: str, fillers: tuple[type[Filler], ...]) -> Exhibit:
    folder = RunFolder(one.path)
    about = folder.about()
    require_parts(about)
    run = read(about["run"], fillers)
    folder.result()  # one that cannot be read is told now
    if not points(folder):
        raise BadInput(
            "it has no checkpoint yet: it was not trained, or its weights were not copied"
        )
    phrase = str(about["phrase"])
    return Exhibit(
        folder,
        run,
        one.name or f"{phrase.partition(' --set ')[0]}, seed {about['seed']}",
        run_label(about),
        one.colour or usual,
    )


# --------------------------------------------------------------------------------------------------
# Models that are open: loaded once, kept while there is room, their codecs and text encoders
# shared.


MOST_BYTES = 4 << 30  # of open weights together; one model at least


class OpenModels:
    """Painters by (run, images seen), the least recently used closed first."""

    def __init__(self, device: str = "cpu", most_bytes: int = MOST_BYTES) -> None:
        self.system, self.most_bytes = System(device=device_named(device)), most_bytes
        self.painters: OrderedDict[tuple[str, int], tuple[Painter, int]] = OrderedDict()
        self.parts: dict[Any, Any] = {}
        self.lock = threading.Lock()

    def painter(self, exhibit: Exhibit, images: int) -> Painter:
        with self.lock:
            key = (exhibit.key, images)
            if key not in self.painters:
                weights = weights_at(exhibit.folder, images)
                run = exhibit.run
                painter = Painter(
                    run,
                    weights,
                    self._part(run.encode.codec),
                    self._part(run.encode.text),
                    self.system,
                )
                _ = painter.empty  # read once: copies that draw with other settings share it
                self.painters[key] = painter, sum(value.nbytes for value in weights.values())
            self.painters.move_to_end(key)
            while (
                len(self.painters) > 1
                and sum(size for _, size in self.painters.values()) > self.most_bytes
            ):
                self.painters.popitem(last=False)
            return self.painters[key][0]

    def _part(self, filler: Any) -> Any:
        """A codec or a text encoder: one for all runs that describe it alike."""
        if filler not in self.parts:
            self.parts[filler] = filler.build(None)
        return self.parts[filler]
