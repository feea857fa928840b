"""Trackers: TensorBoard and Weights & Biases as observers, grouped by study, arm and seed. They
look, they never touch."""

import functools
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from PIL import Image

from fulcrum.files.sealed import read_tail
from fulcrum.spec.errors import BadInput, install_extra, nearest
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.loop import Observer
from fulcrum.training.observers import Averager
from fulcrum.training.run_folder import RunFolder

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb"}  # tracker -> what it imports
PROJECT = "fulcrum"
MOST_CURVE = 1 << 20  # bytes of a held-out curve that are looked at: ten thousand points
Watchers = Callable[[Built, RunFolder, State], list[Observer]]


class RunLabels(NamedTuple):
    """Where a run stands among others: a study (or any group of runs), one of its arms, a seed."""

    group: str
    arm: str
    seed: int


class Sink(Protocol):
    def put(self, values: dict[str, float], images: int) -> None: ...

    def show(self, picture: Path, images: int) -> None:
        """A preview, as the PNG that it is."""

    def close(self) -> None: ...


def require_trackers(names: Sequence[str]) -> None:
    """Asked before anything is built: a tracker that cannot be had must not be found out after an
    hour."""
    for name in names:
        if name not in PACKAGES:
            raise BadInput(f"no tracker is called '{name}'", nearest(name, PACKAGES))
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise BadInput(
                f"the tracker '{name}' needs the package {PACKAGES[name]}, which is not installed",
                f"install it with: {install_extra(name)}; or leave out the tracker",
            )


def tracking(names: Sequence[str], labels: RunLabels) -> Watchers:
    """What `perform` takes as observers: a watcher for each named tracker, closed with the run's
    last step."""
    return Trackers(names, labels, stay=False).watch


class Trackers:
    """The trackers of one run from its start to what is measured after its end; in the first
    process only."""

    def __init__(self, names: Sequence[str], labels: RunLabels, stay: bool = True) -> None:
        require_trackers(names)
        self.names, self.labels, self.stay, self.first = names, labels, stay, True
        self.open: list[Tracker] = []

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, *failed: object) -> None:
        for tracker in self.open:
            tracker.close()
        self.open = []

    def watch(self, built: Built, folder: RunFolder, state: State) -> list[Observer]:
        """What `perform` takes as observers."""
        self.first = built.ranks.first
        self._begin(folder, state)
        return [*self.open]

    def tell(self, folder: RunFolder, values: Mapping[str, float], images: int) -> None:
        """Hand over numbers that are not the loop's; a run that was trained before goes on in its
        trackers."""
        if not self.open:
            try:
                self._begin(folder, State(images=images))
            except BadInput as error:  # what was measured is written: no reason to fail now
                print(
                    f"not told to {', '.join(self.names)}: {error.message}",
                    file=sys.stderr,
                    flush=True,
                )
        for tracker in self.open:
            tracker.show_previews()
            tracker.put(dict(values), images)

    def _begin(self, folder: RunFolder, state: State) -> None:
        names = self.names if self.first else ()
        self.open = [
            Tracker(name, SINKS[name](self.labels, folder, state), folder, state, self.stay)
            for name in names
        ]


def together(*watchers: Watchers) -> Watchers:
    """Several watchers as one, in this order."""
    return lambda built, folder, state: [
        observer for watch in watchers for observer in watch(built, folder, state)
    ]


class Tracker(Averager):
    """Hands the record's lines and the held-out curve to a sink. A sink that fails is left, and the
    run goes on."""

    def __init__(self, name: str, sink: Sink, folder: RunFolder, state: State, stay: bool) -> None:
        super().__init__()
        # stay: more is told after the end
        self.name, self.curve, self.stay = name, folder.path / "curve.jsonl", stay
        self.sink: Sink | None = sink
        self.seconds, self.images, self.heard = state.seconds, state.images, state.images
        # sheets, named by the images seen
        self.previews, self.seen = folder.path / "previews", state.images

    def write(self, line: dict[str, Any], last: bool) -> None:
        values = {
            f"train/{name}": float(line[name])
            for name in ("loss", "gradient_norm", "rate", "skipped", "stalled")
            if name in line
        }
        values |= {f"loss/{name}": value for name, value in line["parts"].items()}
        passed = line["seconds"] - self.seconds
        if passed > 0:
            values["train/images_per_second"] = (line["images"] - self.images) / passed
        self.seconds, self.images = line["seconds"], line["images"]
        self.put(values, line["images"])
        for images, point in self._held():
            self.put(point, images)
        self.show_previews()
        if last and not self.stay:
            self.close()

    def put(self, values: dict[str, float], images: int) -> None:
        self._safely(lambda sink: sink.put(values, images))

    def close(self) -> None:
        self.show_previews()
        self._safely(lambda sink: sink.close())
        self.sink = None

    def show_previews(self) -> None:
        """Hand over the previews that were drawn since the last look."""
        for path in sorted(self.previews.glob("[0-9]*.png")) if self.sink is not None else ():
            images = int(path.stem) if path.stem.isdigit() else 0
            if images > self.seen:
                self.seen = images
                self._safely(functools.partial(_show, path=path, images=images))

    def _safely(self, act: Callable[[Sink], None]) -> None:
        if self.sink is None:
            return
        try:
            act(self.sink)
        except Exception as error:  # a full disk or a lost network there: no reason to stop here
            print(
                f"the tracker '{self.name}' failed and is left; training goes on: {error}",
                file=sys.stderr,
                flush=True,
            )
            self.sink = None

    def _held(self) -> list[tuple[int, dict[str, float]]]:
        """Points of the held-out curve that the sink has not heard of yet."""
        points = []
        for line in read_tail(self.curve, MOST_CURVE):
            try:
                images, loss = int(line["images"]), float(line["validation_loss"])
            except (ValueError, KeyError, TypeError):
                continue  # another kind of point
            if images > self.heard:
                points.append((images, {"held_out/validation_loss": loss}))
        self.heard = max([self.heard, *(images for images, _ in points)])
        return points


def _show(sink: Sink, path: Path, images: int) -> None:
    sink.show(path, images)


class TensorBoard:
    """Event files under OUT/tensorboard/GROUP/ARM/seed-N-KEY: `tensorboard --logdir
    OUT/tensorboard` groups by itself, and runs that share phrase and seed have curves of their
    own."""

    def __init__(self, labels: RunLabels, folder: RunFolder, state: State) -> None:
        from torch.utils.tensorboard import SummaryWriter

        name = f"seed-{labels.seed}-{folder.path.name[:8]}"
        path = folder.path.parent / "tensorboard" / _file(labels.group) / _file(labels.arm) / name
        # Points after the checkpoint that a resumed run begins from are drawn anew.
        self.writer = SummaryWriter(
            str(path), purge_step=state.images + 1 if state.images else None
        )
        if not state.images:
            self.writer.add_text("run", f"{labels.arm}, seed {labels.seed}, key {folder.path.name}")

    def put(self, values: dict[str, float], images: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, images)
        self.writer.flush()

    def show(self, picture: Path, images: int) -> None:
        with Image.open(picture) as image:
            self.writer.add_image(
                "previews", np.asarray(image.convert("RGB")), images, dataformats="HWC"
            )
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB:
    """A run of the project `fulcrum`: group = study, job type = arm, id = the run's key: a resumed
    run goes on in it."""

    def __init__(self, labels: RunLabels, folder: RunFolder, state: State) -> None:
        import wandb

        config = {
            "key": folder.path.name,
            "arm": labels.arm,
            "seed": labels.seed,
            "study": labels.group,
            "run": folder.about()["run"],
        }
        try:
            self.run = wandb.init(
                project=PROJECT,
                group=labels.group,
                job_type=labels.arm,
                name=f"{labels.arm}/{labels.seed}",
                id=folder.path.name,
                resume="allow",
                dir=str(_made(folder.path.parent)),
                config=config,
                reinit="create_new",
            )
        except Exception as error:
            raise BadInput(
                f"Weights & Biases could not start: {error}",
                "log in with 'wandb login', or set WANDB_MODE=offline; or leave out the tracker",
            ) from error
        self.run.define_metric("images")
        # progress is counted in images seen, as everywhere here
        self.run.define_metric("*", step_metric="images")

    def put(self, values: dict[str, float], images: int) -> None:
        self.run.log({"images": images, **values})

    def show(self, picture: Path, images: int) -> None:
        import wandb

        self.run.log({"images": images, "previews": wandb.Image(str(picture))})

    def close(self) -> None:
        self.run.finish()


SINKS: dict[str, Callable[[RunLabels, RunFolder, State], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
}


def _file(text: str) -> str:
    """A name that every file system takes, and that leads nowhere else."""
    return re.sub(r"[^\w.+()=-]+", "_", text).strip("._") or "run"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
