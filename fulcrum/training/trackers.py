"""Trackers: TensorBoard and Weights & Biases, grouped by study, arm and seed. They observe a run
and never change it."""

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fulcrum.files.sealed import read_tail
from fulcrum.spec.errors import BadInput, install_extra, nearest
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.loop import Observer
from fulcrum.training.observers import Averager
from fulcrum.training.run_folder import RunFolder

PROJECT = "fulcrum"
MOST_CURVE = 1 << 20  # bytes of a held-out curve that are looked at: ten thousand points
RECORDED = ("loss", "gradient_norm", "rate", "skipped", "stalled")  # of a line of the record
Watchers = Callable[[Built, RunFolder, State], list[Observer]]


class RunLabels(NamedTuple):
    """Where a run stands among others: a study (or any group of runs), one of its arms, a seed."""

    group: str
    arm: str
    seed: int


class TensorBoard:
    """Event files under OUT/tensorboard/GROUP/ARM/seed-N-KEY: `tensorboard --logdir
    OUT/tensorboard` groups by itself, and runs that share phrase and seed have separate curves."""

    package = "tensorboard"

    def __init__(self, labels: RunLabels, folder: RunFolder, state: State) -> None:
        from torch.utils.tensorboard import SummaryWriter

        name = f"seed-{labels.seed}-{folder.path.name[:8]}"
        path = folder.path.parent / "tensorboard" / _file(labels.group) / _file(labels.arm) / name
        # a resumed run writes the points after its checkpoint again: the earlier ones are purged
        self.writer = SummaryWriter(
            str(path), purge_step=state.images + 1 if state.images else None
        )
        if not state.images:
            self.writer.add_text("run", f"{labels.arm}, seed {labels.seed}, key {folder.path.name}")

    def put(self, values: Mapping[str, float], images: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, images)
        self.writer.flush()

    def show(self, picture: Path, images: int) -> None:
        with Image.open(picture) as image:
            pixels = np.asarray(image.convert("RGB"))
        self.writer.add_image("previews", pixels, images, dataformats="HWC")
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB:
    """A run of the project `fulcrum`: group = study, job type = arm, id = the run's key, by which a
    resumed run continues."""

    package = "wandb"

    def __init__(self, labels: RunLabels, folder: RunFolder, state: State) -> None:
        import wandb

        folder.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.run = wandb.init(
                project=PROJECT,
                group=labels.group,
                job_type=labels.arm,
                name=f"{labels.arm}/{labels.seed}",
                id=folder.path.name,
                resume="allow",
                dir=str(folder.path.parent),
                config={
                    "key": folder.path.name,
                    "arm": labels.arm,
                    "seed": labels.seed,
                    "study": labels.group,
                    "run": folder.about()["run"],
                },
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

    def put(self, values: Mapping[str, float], images: int) -> None:
        self.run.log({"images": images, **values})

    def show(self, picture: Path, images: int) -> None:
        import wandb

        self.run.log({"images": images, "previews": wandb.Image(str(picture))})

    def close(self) -> None:
        self.run.finish()


Sink = TensorBoard | WandB
SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "wandb": WandB}


def require_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker that does not exist or is not installed, before anything is built."""
    for name in names:
        if name not in SINKS:
            raise BadInput(f"no tracker is called '{name}'", nearest(name, SINKS))
        package = SINKS[name].package
        if importlib.util.find_spec(package) is None:
            raise BadInput(
                f"the tracker '{name}' needs the package {package}, which is not installed",
                f"install it with: {install_extra(name)}; or leave out the tracker",
            )


class Trackers(Averager):
    """The trackers of one run, from its start to what is measured after its end: give `watch` to
    `perform` inside `with`. Only the first process has any. A sink that fails is left, and the run
    continues."""

    def __init__(self, names: Sequence[str], labels: RunLabels) -> None:
        super().__init__()
        require_trackers(names)
        self.names = names
        self.labels = labels
        self.sinks: dict[str, Sink] = {}
        self.opened = False
        self.seconds = 0.0  # at the last line of the record
        self.images = 0

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, *failed: object) -> None:
        if self.sinks:
            self._hand_over_files()
            self._each(lambda sink: sink.close())
        self.opened = False

    def watch(self, built: Built, folder: RunFolder, state: State) -> list[Observer]:
        """What `perform` takes as observers; it asks again when it builds the run again."""
        self.__exit__()
        if not built.ranks.first:
            self.names = ()
        self._open(folder, state)
        return [self] if self.sinks else []

    def tell(self, folder: RunFolder, values: Mapping[str, float], images: int) -> None:
        """Hand over numbers that are not the loop's. A run that was trained before is opened
        again."""
        if not self.opened:
            try:
                self._open(folder, State(images=images))
            except BadInput as error:  # what was measured is written: no reason to fail now
                _warn(f"not told to {', '.join(self.names)}: {error.message}")
        if self.sinks:
            self._hand_over_files()
            self._each(lambda sink: sink.put(values, images))

    def write(self, line: dict[str, Any], last: bool) -> None:
        values = {f"train/{name}": float(line[name]) for name in RECORDED if name in line}
        values |= {f"loss/{name}": value for name, value in line["parts"].items()}
        seconds = line["seconds"] - self.seconds
        if seconds > 0:
            values["train/images_per_second"] = (line["images"] - self.images) / seconds
        self.seconds, self.images = line["seconds"], line["images"]
        self._each(lambda sink: sink.put(values, self.images))
        self._hand_over_files()

    def _open(self, folder: RunFolder, state: State) -> None:
        super().__init__()  # no loss of an earlier session is averaged in
        self.sinks = {}
        self.opened = True
        self.folder = folder.path
        self.seconds = state.seconds
        self.images = state.images
        self.heard = self.shown = state.images
        for name in self.names:
            self.sinks[name] = SINKS[name](self.labels, folder, state)

    def _hand_over_files(self) -> None:
        """The points of the held-out curve and the previews that the sinks have not had."""
        for point in read_tail(self.folder / "curve.jsonl", MOST_CURVE):
            if "validation_loss" in point and point["images"] > self.heard:
                self.heard = point["images"]
                loss = {"held_out/validation_loss": float(point["validation_loss"])}
                self._each(lambda sink, loss=loss: sink.put(loss, self.heard))
        for sheet in sorted((self.folder / "previews").glob("[0-9]*.png")):
            if sheet.stem.isdigit() and int(sheet.stem) > self.shown:
                self.shown = int(sheet.stem)
                self._each(lambda sink, sheet=sheet: sink.show(sheet, self.shown))

    def _each(self, act: Callable[..., None]) -> None:
        for name, sink in list(self.sinks.items()):
            try:
                act(sink)
            except Exception as error:  # a full disk or a lost network: no reason to stop here
                _warn(f"the tracker '{name}' failed and is left; training goes on: {error}")
                del self.sinks[name]


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def together(*watchers: Watchers) -> Watchers:
    """Several watchers as one, in this order."""
    return lambda built, folder, state: [
        observer for watch in watchers for observer in watch(built, folder, state)
    ]


def _file(text: str) -> str:
    """A name that every file system takes, and that leads nowhere else."""
    return re.sub(r"[^\w.+()=-]+", "_", text).strip("._") or "run"
