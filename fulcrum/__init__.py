"""Fulcrum: a laboratory for training text-to-image models.

    import fulcrum as fc
    run = fc.train("spark + muon", seed=1)
    run.sample("a large red circle at the top left.")  # a picture, in a notebook
    run.measure()["mmd"].value
    fc.study("quick").effects.frame()

`build`, `feed` and `phrase` are for a loop of your own; `sample` and `measure` also take folders,
keys and arrays.

What is here and in the modules of docs/decisions/0020-public-api.md may be built on. Torch is
imported when a function that needs it is called.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fulcrum.old_paths import keep_former_paths

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fulcrum.levers.base import Card, Lever
    from fulcrum.notebook import FinishedRun, Measurements, Study
    from fulcrum.spec.edit import put
    from fulcrum.spec.run import RunSpec
    from fulcrum.studies.plan import Plan
    from fulcrum.training.feed import Feed
    from fulcrum.training.step import Step
    from fulcrum.training.trained_run import TrainedRun

    __version__: str

__all__ = [
    "Card",
    "Lever",
    "__version__",
    "build",
    "feed",
    "measure",
    "phrase",
    "put",
    "sample",
    "study",
    "train",
]

# A first import binds a package's name in its parent. Rooms that share a name with a function,
# today or formerly, are imported before the functions are defined, so that no later import rebinds
# the name: docs/decisions/0020-public-api.md.
import_module(f"{__name__}.measure")
keep_former_paths()

Files = Iterable[str | Path]
Say = Callable[[str], None]


def phrase(text: str, *settings: str, files: Files = ()) -> "RunSpec":
    """The run that a phrase describes.

        run = phrase("pocket + muon + tread(drop=0.5)", "optim.lr=2e-4")

    `settings` are "path=value"; `files` are Python files of your own with levers, recipes or
    fillers.
    """
    from fulcrum.levers.catalog import read_phrase

    return read_phrase(text, map(Path, files), settings)[0].run


def build(run: "RunSpec", seed: int = 0, **system: Any) -> "Step":
    """The Step of a run, a torch module: losses = step(batch, draw). `system` are fields of System:
    threads, compile."""
    from fulcrum.spec.edit import require_seed
    from fulcrum.spec.run import System
    from fulcrum.training.build import build as build_step

    require_seed(seed)
    return build_step(_described(run), seed, System(**system))


def feed(
    run: "RunSpec", seed: int = 0, cache: Path | str = "runs/cache", device: str = "cpu"
) -> "Feed":
    """Batches and draws of a run by position, on the device of its step: batch, draw =
    feed.at(images)."""
    from fulcrum.spec.edit import require_seed
    from fulcrum.training.feed import Feed

    require_seed(seed)
    return Feed(_described(run), seed, Path(cache), device=device)


def train(
    run: "RunSpec | str",
    seed: int = 0,
    out: Path | str = "runs",
    *,
    settings: Sequence[str] = (),
    files: Files = (),
    device: str = "cpu",
    threads: int | None = None,
    compile: bool | None = None,
    mesh: str | None = None,
    microbatch: int | None = None,
    recompute: str | None = None,
    save_every: int | None = None,
    on_alarm: str | None = None,
    timeout: float | None = None,
    track: Sequence[str] = (),
    preview_prompts: Sequence[str] = (),
    preview_every: int | None = None,
    keep_checkpoints: int = 0,
    most_skipped: float = 0.05,
    say: Say | None = None,
) -> "FinishedRun":
    """Train a run to its end: key, folder and result. One that stopped goes on, a finished one is
    not run again.

        run = train("spark + muon", seed=1, settings=["budget.images=3200"])
        run.result["images_per_second"]
        run.sample("a large red circle.")

    A phrase trains under the key that `fulcrum train` gives it. `settings` are "path=value", beside
    a phrase; `threads` and `compile` are chosen by what the machine has; `say` hears of the
    progress. All others are the options of that name of `fulcrum train`, and none of them is part
    of the key; in a script that torchrun starts, many processes share the run.
    """
    from fulcrum.levers.catalog import foreign_code, read_phrase
    from fulcrum.measure.preview import PreviewPlan, train_run
    from fulcrum.notebook import FinishedRun
    from fulcrum.spec.errors import BadInput
    from fulcrum.training.dist.choose_system import choose_system
    from fulcrum.training.dist.ranks import TIMEOUT, processes
    from fulcrum.training.session import Order

    tell, paths = say or _unheard, tuple(map(Path, files))
    _require_within("timeout", timeout, 1, 1e6)
    _require_within("preview_every", preview_every, 0, None)
    _require_within("keep_checkpoints", keep_checkpoints, 0, 1000)
    _require_within("most_skipped", most_skipped, 0, 1)
    for name, words in (("track", track), ("preview_prompts", preview_prompts)):
        if isinstance(words, str):
            raise BadInput(f"{name} is one text, expected several", f"write {name}=[{words!r}]")
    if isinstance(run, str):
        read, hashes = read_phrase(run, paths, settings)
        label = " ".join([str(read), *(f"--set {setting}" for setting in settings)])
        spec, levers = read.run, read.levers
    elif settings:
        raise BadInput(
            "settings go with a phrase, found them beside a run",
            "put(run, path, value) changes a run",
        )
    else:
        spec = _described(run)
        hashes, label, levers = foreign_code(spec), "a run of your own", ()
    asked = {
        "mesh": mesh,
        "microbatch": microbatch,
        "recompute": recompute,
        "save_every": save_every,
        "on_alarm": on_alarm,
    }
    system = choose_system(
        threads, compile, spec.budget.images, device, tell, processes(os.environ), **asked
    )
    order = Order(
        spec, seed, label, Path(out), system, hashes, say is None, label, "", levers, most_skipped
    )
    drawn = PreviewPlan(tuple(preview_prompts), preview_every)
    result, _ = train_run(order, tell, track, drawn, keep_checkpoints, timeout or TIMEOUT)
    return FinishedRun.of(result, paths)


def sample(
    run: "TrainedRun | Path | str",
    prompts: Sequence[str] | str,
    seed: int = 0,
    out: Path | str = "runs",
    *,
    guidance: float | None = None,
    steps: int | None = None,
    size: tuple[int, int] | str | None = None,
    files: Files = (),
    device: str = "cpu",
) -> "NDArray[np.uint8]":
    """Pictures (B, H, W, 3) that a trained run draws, one for each prompt; each has its own noise.

        pictures = sample(run, ["a large red circle at the top left."], guidance=3.0)

    A run is what `train` returned, a folder, or the beginning of a key under `out`; one text alone
    is one prompt; `size` is a text, "48x32" (width and height), or the numbers (height, width).
    Words that the text encoder does not know, and what it cut off a long prompt, are told as
    warnings.
    """
    from fulcrum.levers.catalog import with_files
    from fulcrum.networks.text import misread, readable
    from fulcrum.spec.errors import BadInput
    from fulcrum.training.pictures import picture_size
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import draw, open_painter

    alone = isinstance(prompts, str) or not isinstance(prompts, Iterable)
    wanted: list[Any] = [prompts] if alone else list(prompts)
    if not wanted or not all(isinstance(prompt, str) for prompt in wanted):
        raise BadInput(
            f"expected one prompt or more, as text, found {prompts!r}",
            'such as ["a large red circle."]',
        )
    fillers = with_files(map(Path, files))[0].fillers
    shape = None if size is None else picture_size(size)
    painter = open_painter(RunFolder(_folder(run, out)), fillers, guidance, steps, device, shape)
    pictures = draw(painter, wanted, seed).permute(0, 2, 3, 1).contiguous().numpy()
    for line in (*readable(painter.text, wanted)[1], *misread(painter.text)):
        warnings.warn(line, stacklevel=2)
    return pictures


def measure(
    pictures: "TrainedRun | Path | str | NDArray[np.uint8]",
    reference: "Path | str | NDArray[np.uint8] | None" = None,
    samples: int = 512,
    out: Path | str = "runs",
    *,
    features: Sequence[str] = (),
    files: Files = (),
    device: str = "cpu",
    say: Say | None = None,
) -> "Measurements":
    """What `fulcrum measure` measures, of a trained run or of pictures: values with their intervals
    and cards, by name.

        values = measure(run, samples=1024)
        values["mmd"].value, values["mmd"].low, values["mmd"].card.better
        values = measure("photos", "other_photos", features=["lite0"])

    Without a `reference`, a run: `samples` held-out prompts are drawn. With one, two sets of
    pictures: folders, tar shards, an .npz, or arrays (N, H, W, 3). `features` name the networks to
    measure with; a run's own is always among them. `files` hold your own fillers (a run) or your
    own metrics (two sets).
    """
    from fulcrum.notebook import Measurements
    from fulcrum.training.dist.choose_system import device_named

    where, paths = device_named(device), tuple(map(Path, files))
    if reference is not None:
        from fulcrum.measure.folders import measure_sets
        from fulcrum.measure.pictures import as_picture_set
        from fulcrum.measure.user_metrics import choose_comparisons

        comparisons = choose_comparisons(features, paths, (), where)
        with (
            as_picture_set(pictures, "the pictures") as drawn,
            as_picture_set(reference, "the reference") as held,
        ):
            return Measurements(
                measure_sets(drawn, held, comparisons, Path(out) / "cache" / "features").metrics
            )
    from fulcrum.levers.catalog import with_files
    from fulcrum.measure.evaluation import judges_among, measure_run
    from fulcrum.spec.edit import read
    from fulcrum.training.run_folder import RunFolder

    judges, folder = judges_among(features), RunFolder(_folder(pictures, out))
    run = read(folder.about()["run"], with_files(paths)[0].fillers)
    return Measurements(
        measure_run(folder, run, samples, Path(out) / "cache", judges, where, say or _unheard, None)
    )


def study(
    plan: "Plan | Mapping[str, Any] | Path | str",
    out: Path | str = "runs",
    *,
    files: Files = (),
    say: Say | None = None,
) -> "Study":
    """Run a study and return its result: effects, cells, verdicts. Finished cells are not run
    again.

        result = study("quick")
        [(effect.arm, effect.mean, effect.verdict) for effect in result.effects]
        result.effects.of(metric="attribute_f1").frame()  # pandas; .records() without it

    A plan is a TOML file, the name of a shipped one, the same fields as a mapping, or a Plan. Its
    report is `result.page`.
    """
    from fulcrum.levers.catalog import with_files
    from fulcrum.notebook import Study
    from fulcrum.spec.errors import BadInput
    from fulcrum.studies.plan import Plan
    from fulcrum.studies.plan_file import EXAMPLE, from_person, load
    from fulcrum.studies.study import run
    from fulcrum.training.dist.compiled_code import compiles_here

    if isinstance(plan, str | Path):
        plan = load(Path(plan))
    elif isinstance(plan, Mapping):
        plan = from_person(plan, "the plan")
    elif not isinstance(plan, Plan):
        raise BadInput(
            f"expected a plan: a file, a mapping or a Plan, found {type(plan).__name__}", EXAMPLE
        )
    paths = tuple(map(Path, files))
    known, hashes = with_files(paths)
    tell = say or _unheard
    compiles = plan.compile and compiles_here(tell)
    result, page = run(
        plan, known, Path(out), "", tell, files=paths, user_files=hashes, compile_blocks=compiles
    )
    return Study.of(result, page)


def _described(run: object) -> "RunSpec":
    from fulcrum.spec.errors import BadInput
    from fulcrum.spec.run import RunSpec

    if not isinstance(run, RunSpec):
        raise BadInput(
            f"expected the description of a run, found {type(run).__name__}",
            'such as phrase("spark + muon")',
        )
    return run


def _folder(run: object, out: Path | str) -> Path:
    from fulcrum.spec.errors import BadInput
    from fulcrum.training.trained_run import TrainedRun, find_run

    if isinstance(run, str | Path):
        return find_run(str(run), Path(out))
    if not isinstance(run, TrainedRun):
        raise BadInput(
            f"expected a run, found {type(run).__name__}",
            "pictures are measured against a reference",
        )
    return run.folder


def _require_within(name: str, value: float | None, low: float, high: float | None) -> None:
    """The ranges of the command line's options."""
    from fulcrum.spec.errors import BadInput

    if value is not None and not (low <= value and (high is None or value <= high)):
        bounds = f"{low:g} or more" if high is None else f"from {low:g} to {high:g}"
        raise BadInput(f"{name} must be {bounds}, found {value!r}", "see: fulcrum train --help")


def _unheard(text: str) -> None:
    """Nobody asked to hear."""


def __getattr__(name: str) -> Any:
    """What needs pydantic or the installed package's facts is looked up when it is asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("fulcrum-lab")
    homes = {
        "Lever": "fulcrum.levers.base",
        "Card": "fulcrum.levers.base",
        "put": "fulcrum.spec.edit",
    }
    if name in homes:
        return getattr(import_module(homes[name]), name)
    raise AttributeError(f"module 'fulcrum' has no attribute '{name}'")
